"""How each number was made, a row a stage, in both languages: what stands behind a report when somebody asks.

Every row says what was taken, of what, by which formula, and what it is held against; ``source`` is where that comes from.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Method:
    """``stages`` are the names of the stages it explains, or empty for what belongs to none; ``how`` and ``chinese`` say the same."""

    name: str
    stages: tuple[str, ...]
    how: str
    chinese: str
    source: str = ""


METHODS = (
    Method(
        "relative error",
        (),
        "Of two numbers |candidate - reference| / |reference|; of two tensors the Frobenius norm of their difference over that of the "
        "reference, in float64. In eps: the same divided by the rounding step of the coarser compute type.",
        "两个数之间为 |待测 - 标杆| / |标杆|；两个张量之间为差的Frobenius范数除以标杆的Frobenius范数，以float64计算。"
        "eps列为误差除以较粗计算类型的舍入步长。",
        "align_hooks.compare.measures",
    ),
    Method(
        "limits",
        (),
        "Without --noise the defaults of the compute type, widened by the fourth root of the depth. With --noise three times what repeats "
        "of the reference differ by, tensor by tensor and step by step; once where a repeat's weights were moved in half precision.",
        "未给--noise时使用该计算类型的默认限值，并按层数的四次方根放宽；给出--noise时，逐张量逐步取标杆重复运行之间差异的三倍，半精度下移动权重的重复运行取一倍。",
        "align_hooks.compare.limits, align_hooks.compare.noise, docs/zoo.md",
    ),
    Method(
        "match",
        ("match",),
        "Ranks, steps, canonical names and shapes of both records are laid side by side; nothing is compared by position.",
        "将两份记录的rank、步、规范名与形状逐一对应；不按位置比较。",
    ),
    Method(
        "self-check",
        ("self-check",),
        "The norm made of all recorded squared sums must be the one that the framework took of gradients of its own choice, and copies on "
        "other ranks must be equal: each record is held against itself.",
        "由全部记录的平方和得到的范数须等于框架自身计算的范数，其他rank上的副本须相等：每份记录先与自身核对。",
        "align_hooks.record.self_check",
    ),
    Method(
        "hyper-parameters",
        ("hyper-parameters",),
        "As the built optimizers hold them, parameter group by parameter group, and the learning rate that each step's update used.",
        "取自已构建的优化器，逐参数组比较；学习率取每步更新实际使用的值。",
        "the guide's CheckList",
    ),
    Method(
        "batches",
        ("batches",),
        "Tokens, labels, masks and positions that the models consumed, element by element, global over ranks.",
        "模型实际消费的token、标签、掩码与位置，跨rank合并后逐元素比较。",
        "the guide, data set",
    ),
    Method(
        "initial weights",
        ("initial weights",),
        "Weights before the first update under canonical names, equal to the bit; by sketches within 1e-12 of each other.",
        "首次更新前的权重，按规范名比较，须逐位相等；仅有sketch时须相差不超过1e-12。",
    ),
    Method(
        "initial optimizer state",
        ("initial optimizer state",),
        "Where updates were made before the first common step: their count and Adam's moments, equal to the bit.",
        "首个公共步之前已有更新时：比较更新次数与Adam的动量，须逐位相等。",
    ),
    Method(
        "token losses",
        ("token losses",),
        "Each token's cross entropy before the mask, together, and their mean, at every step that stands on equal weights: the forward "
        "pass alone.",
        "在两侧权重相同的每一步上，每个token在掩码之前的交叉熵（整体）及其均值：只反映前向计算。",
    ),
    Method(
        "step-0 loss",
        ("step-0 loss",),
        "Loss: the sum over the sum of all valid tokens on all ranks. Objective: what was differentiated.",
        "loss：所有rank上有效token的损失之和除以有效token数之和；objective：实际求导的值。",
    ),
    Method(
        "local norms",
        ("local norms",),
        "The norm of each parameter's gradient after data-parallel reduction and unscaling, before clipping; squares summed in fp32 chunks "
        "of 8192 and added in fp64, q, k and v apart.",
        "各参数梯度的范数，取自数据并行规约与反缩放之后、裁剪之前；以8192个元素为块在fp32中求平方和，再以fp64累加，q、k、v分开。",
        "the guide, local norm; align_hooks.norms",
    ),
    Method(
        "gradients",
        ("gradients",),
        "Gradients of steps at which both runs stand on the same weights, whole tensors put together from their shards; estimated from 16 "
        "signed sums a tensor where only sketches were recorded.",
        "两次运行权重相同的步上的梯度，由切片拼成完整张量；若只记录了sketch，则由每个张量16个带符号的和估计。",
        "align_hooks.record.sketch",
    ),
    Method(
        "clipping",
        ("clipping",),
        "The global norm that each framework clipped by, the coefficient, and updates that an overflow skipped. Within 5 %, for frameworks "
        "round this norm as they please; local norms are what is exact.",
        "各框架用于裁剪的全局norm、裁剪系数，以及因溢出而跳过的更新。容差5 %，因为各框架对该范数的舍入不同；精确比较以local norm为准。",
    ),
    Method(
        "weights after an update",
        ("weights after an update",),
        "After updates from the same gradients: weights and moments against each other. And every recorded update against AdamW in float64 "
        "with the hyper-parameters on record, in roundings of the weights.",
        "由相同梯度更新之后，比较权重与动量；并将每次记录的更新与按记录的超参以float64计算的AdamW对比，以权重的舍入为单位。",
        "the guide, optimizer computation",
    ),
    Method(
        "first updates",
        ("first updates",),
        "The change of each weight in the first two updates, relative to the reference's change.",
        "前两次更新中每个权重的变化量，相对标杆的变化量。",
    ),
    Method(
        "later losses",
        ("later losses",),
        "Losses of the steps after the first; free-running steps drift, so their limit grows with the number of updates.",
        "首步之后各步的loss；自由运行的步会漂移，限值随更新次数增大。",
    ),
    Method(
        "curve",
        ("curve",),
        "The mean of all relative differences of the loss with their signs: a bias that no single step shows.",
        "所有步loss相对差（带符号）的均值：单步看不出的偏差会在此累积。",
        "the guide, around the 0-axis",
    ),
    Method(
        "free-running steps",
        ("free-running steps",),
        "Norms, gradients and weights of later steps, beside what rounding does to an honest pair after as many updates.",
        "后续各步的范数、梯度与权重，与正常的一对运行因舍入产生的差异相比。",
    ),
    Method(
        "model settings",
        ("model settings",),
        "The models' configurations as built, under Hugging Face's names.",
        "已构建模型的配置，采用Hugging Face的名称。",
    ),
    Method(
        "noise band",
        (),
        "Of each curve: the largest relative difference between the reference and its repeats at that step.",
        "每条曲线上，标杆与其重复运行在该步的最大相对差。",
    ),
)


def method(stage: str) -> Method | None:
    """How the numbers of a stage were made; a first loss has its step in its name."""
    name = "step-0 loss" if stage.startswith("first loss") else stage
    return next((one for one in METHODS if name in one.stages), None)
