"""The sentences of a comparison in Chinese: a table of templates, and what finds the one that a sentence was made from.

Not gettext: a comparison is English data, whose sentences arrive finished, with values in them, and go to the JSON, the terminal and the
tests as they are. So a sentence is taken apart by the template that fits it, and its values, which may be sentences too, likewise. What
fits none (names, numbers, paths, commands, settings) stays as it is.
"""

from __future__ import annotations

import re
from functools import lru_cache

from align_hooks.report.check_chinese import CHECK

LONGEST, DEEPEST = 4000, 8
"""Characters of a sentence, and sentences within a sentence, beyond which nothing is translated."""
VERBATIM = ("path", "command", "error")
"""Slots of what people wrote: never translated, and they may hold "; "."""
COUNTS = ("count", "step", "iteration", "rank", "all")
"""Slots of digits, which keep templates of few words from sentences that end like them."""

CHINESE: dict[str, str] = {
    # verdict.py: verdicts and statuses
    "aligned": "对齐",
    "diverged": "未对齐",
    "not comparable": "不可比",
    "inconclusive": "无法定论",
    "same": "一致",
    "different": "不一致",
    "incomplete": "不完整",
    "not compared": "未比较",
    # verdict.py: steps, and what is of one
    "step {step} (iteration {iteration})": "第{step}步（iteration {iteration}）",
    "{what} at step {step} (iteration {iteration})": "第{step}步（iteration {iteration}）的{what}",
    "the {side}'s {what} at step {step} (iteration {iteration})": "{side}第{step}步（iteration {iteration}）的{what}",
    "{count} steps, {first} to {last}": "共{count}步（第{first}步至第{last}步）",
    "{count} steps": "共{count}步",
    "nothing was compared: the runs have no recorded step in common": "没有可比较的内容：两次运行没有共同采集的步",
    # the two sides
    "reference": "标杆",
    "candidate": "待测",
    "reference and the candidate": "标杆和待测",
    "runs": "两次运行",
    # names of the stages, and what some of them compare
    "match": "匹配",
    "self-check": "自检",
    "hyper-parameters": "超参",
    "batches": "batch数据",
    "initial weights": "初始权重",
    "initial optimizer state": "初始优化器状态",
    "token losses": "逐token loss",
    "step-0 loss": "第0步loss",
    "first loss (step {step})": "首步loss（第{step}步）",
    "local norms": "local norm",
    "gradients": "梯度",
    "weights": "权重",
    "clipping": "梯度裁剪",
    "weights after an update": "更新后的权重",
    "first updates": "最初的更新",
    "later losses": "后续loss",
    "curve": "loss曲线",
    "free-running steps": "自由运行步",
    "model settings": "模型设置",
    # blame.py: places that are no stage
    "configuration": "配置",
    "data": "数据",
    "forward": "前向计算",
    "state": "状态",
    "loss normalisation": "loss归一化",
    "reduced gradients": "规约后的梯度",
    "optimizer": "优化器",
    "next loss": "下一步loss",
    "not ruled out: initial weights, which were not compared: record both runs with ALIGN_HOOKS_WEIGHTS=0": (
        "尚未排除：初始权重，本次未比较：请在ALIGN_HOOKS_WEIGHTS=0下重新采集两侧"
    ),
    "not ruled out: inputs of the model that are not recorded, {names}": "尚未排除：未采集的模型输入{names}",
    "acts later, and does not explain this: {names}": "生效在后，不能解释此处的差异：{names}",
    # report/text.py
    "every stage that was recorded agrees": "所有已采集的阶段均一致",
    "reference and candidate are one and the same run, which says nothing of another": "标杆与待测是同一次运行，结论不涉及其他任何运行",
    # pair.py, ladder.py: notes
    "limits are the defaults for {type} (eps {eps}); they were not measured on this pair": (
        "限值为{type}的默认值（eps {eps}），未经本次对比实测"
    ),
    "limits are the defaults for {type} and {layers} layers (eps {eps}); they were not measured on this pair": (
        "限值为{type}、{layers}层模型的默认值（eps {eps}），未经本次对比实测"
    ),
    "limits are {times} times the noise measured on {path}, tensor by tensor (eps {eps})": (
        "限值为在{path}上实测噪声的{times}倍，逐张量取值（eps {eps}）"
    ),
    "limits are {times} and {other} times the noise measured on {path}, tensor by tensor (eps {eps})": (
        "限值为在{path}上实测噪声的{times}倍或{other}倍，逐张量取值（eps {eps}）"
    ),
    (
        "the reference computes in {reference}, the candidate in {candidate}: what agrees does within the rounding of {coarser}, and a "
        "fault that is smaller cannot be seen; record both in one type"
    ): "标杆的计算精度为{reference}，待测为{candidate}：所谓一致只在{coarser}的舍入误差之内，更小的缺陷看不出来；请用同一精度采集两侧",
    "the model of the {side} is given {names} beside the batch, which is neither recorded nor replayed": (
        "{side}的模型除batch外还有输入{names}，既未采集也不回放"
    ),
    "{count} steps were recorded without digests, by an earlier version: what was changed in them since is not noticed": (
        "{count}个step由早期版本采集，没有摘要：此后的改动无法察觉"
    ),
    "{side}: {count} steps were recorded without digests, by an earlier version: what was changed in them since is not noticed": (
        "{side}：{count}个step由早期版本采集，没有摘要：此后的改动无法察觉"
    ),
    "rank {rank}: {path} of step {step} was recorded and is not as it was, or not there; copy it again": (
        "rank {rank}：{path}（step {step}）已采集，但与采集时不同或已缺失；请重新拷贝"
    ),
    "rank {rank}: {path} of {count} steps, first {step}, was recorded and is not as it was, or not there; copy it again": (
        "rank {rank}：{path}（{count}个step，从step {step}起）已采集，但与采集时不同或已缺失；请重新拷贝"
    ),
    "the model is given {names} beside the batch, which is neither recorded nor replayed": "模型除batch外还有输入{names}，既未采集也不回放",
    # random_states.py
    "random states differ from {where} on: {names} of rank {rank}": "自{where}起随机状态不同：rank {rank}的{names}",
    "micro-batch {number} of step {step} (iteration {iteration})": "第{step}步（iteration {iteration}）的micro-batch {number}",
    "of the {side} a log was read: its losses are good to {resolution}, and limits are wider by that": (
        "{side}读取自日志：其loss精确到{resolution}，阈值相应放宽"
    ),
    "the reference made {reference} steps, the candidate {candidate}: only common ones were compared": (
        "标杆训练了{reference}步，待测{candidate}步：只比较了共有的步"
    ),
    # reader.py: why a run is not whole
    "{count} of {all} ranks left no manifest, first rank {rank}": "{all}个rank中有{count}个没有留下manifest，首个为rank {rank}",
    "run.json is missing: what ran, and with which settings, is not known": "缺少run.json：运行内容及其配置未知",
    "step {step} has no row although later ones do": "第{step}步没有记录，而其后的步有",
    "rank {rank} never ended: it is running or was killed": "rank {rank}没有正常结束：仍在运行或被杀掉",
    "rank {rank} ended early: {made} of {planned} planned steps were made": "rank {rank}提前结束：计划{planned}步，完成{made}步",
    "rank {rank} ended early: {made} of its planned steps were made": "rank {rank}提前结束：在计划的步数中完成了{made}步",
    "rank {rank} failed: the script ended with an error; its last whole step is {step}": (
        "rank {rank}失败：脚本报错退出；最后一个完整的步为第{step}步"
    ),
    "rank {rank} failed: the script ended with an error; no step is whole": "rank {rank}失败：脚本报错退出；没有完整的步",
    "rank {rank} failed: the script ended with exit code {code}; its last whole step is {step}": (
        "rank {rank}失败：脚本以退出码{code}结束；最后一个完整的步为第{step}步"
    ),
    "rank {rank} failed: the script ended with exit code {code}; no step is whole": "rank {rank}失败：脚本以退出码{code}结束；没有完整的步",
    "rank {rank} failed: the script ended with {error}; its last whole step is {step}": (
        "rank {rank}失败：脚本因{error}结束；最后一个完整的步为第{step}步"
    ),
    "rank {rank} failed: the script ended with {error}; no step is whole": "rank {rank}失败：脚本因{error}结束；没有完整的步",
    "rank {rank} interrupted at step {step} (SIGINT)": "rank {rank}在第{step}步被中断（SIGINT）",
    "rank {rank} was ended by {signal} in {place}; its last whole step is {step}": (
        "rank {rank}被信号{signal}终止于{place}；最后一个完整的步为第{step}步"
    ),
    "rank {rank} was ended by {signal}": "rank {rank}被信号{signal}终止",
    "rank {rank} was ended by {signal} in {place}; no step is whole": "rank {rank}被信号{signal}终止于{place}；没有完整的步",
    "rank {rank} refused: {error}; its last whole step is {step}": "rank {rank}拒绝运行：{error}；最后一个完整的步为第{step}步",
    "rank {rank} refused: {error}; no step is whole": "rank {rank}拒绝运行：{error}；没有完整的步",
    "rank {rank} stopped recording at step {step} while writing {what}: {error}; its last whole step is {last}": (
        "rank {rank}在第{step}步写入{what}时停止采集：{error}；最后一个完整的步为第{last}步"
    ),
    "rank {rank} stopped recording at step {step} while writing {what}: {error}; no step is whole": (
        "rank {rank}在第{step}步写入{what}时停止采集：{error}；没有完整的步"
    ),
    "its last whole step is {step}": "最后一个完整的步为第{step}步",
    "no step is whole": "没有完整的步",
    "rank {rank} recorded {said} steps and {there} are here: its rows were cut; copy them again": (
        "rank {rank}采集了{said}步，此处只有{there}步：记录被截断；请重新拷贝"
    ),
    # pair.py: what was asked for and what is there
    "the {side} lacks {count} of {all} steps, first {step}": "{side}在应有的{all}步中缺{count}步，首个为第{step}步",
    "the {side} lacks sketches of {count} of {all} steps, first {step}": (
        "{side}在应有的{all}步中缺{count}步的草图摘要（sketch），首个为第{step}步"
    ),
    "the steps that both recorded were skipped for an overflow": "两侧均已采集的步因溢出而跳过",
    "the two runs recorded different steps": "两次运行采集的步不同",
    "neither run recorded them": "两次运行均未采集",
    "only the {side} recorded them": "只有{side}采集了",
    # findings.py
    "the reference holds NaN or infinity": "标杆含有NaN或无穷大",
    "record a healthy reference": "请采集正常的标杆",
    # before_training.py: match
    "the {side} recorded no whole step; see its log, and record it again": "{side}没有采集到完整的步；请查看其日志并重新采集",
    "of the {side} every weight was moved by ALIGN_HOOKS_PERTURB: it is for --noise; record the run without": (
        "{side}的每个权重都被ALIGN_HOOKS_PERTURB扰动过：这类运行只用于--noise；请不加扰动重新采集"
    ),
    "of the {side} {count} of {all} ranks left no manifest, first rank {rank}; copy or record every rank": (
        "{side}的{all}个rank中有{count}个没有留下manifest，首个为rank {rank}；请拷贝或采集所有rank"
    ),
    "steps {steps} of {expected}; a log names no parameters": "步数{steps}/{expected}；日志中没有参数名",
    "steps {steps} of {expected}, names {names} of {all}, elements {elements} of {total}": (
        "步{steps}/{expected}，参数名{names}/{all}，元素{elements}/{total}"
    ),
    "vocabulary padding differs ({names})": "词表padding不一致（{names}）",
    "the models differ in parameters": "两个模型的参数不同",
    "no step was completed by both": "没有两侧都完成的步",
    "shape of {name}": "{name}的shape",
    "{name} is missing": "缺少{name}",
    "there": "有",
    # before_training.py: self-check
    "norms of steps {checked} of {steps} of the {side} are the frameworks' own (their rounding {rounding}), {copies}": (
        "{side}{steps}步中{checked}步的norm与框架自算值一致（框架舍入{rounding}），{copies}"
    ),
    (
        "norms of steps {checked} of {steps} of the reference and {others} of {all} of the candidate are the frameworks' own "
        "(their rounding {rounding}), {copies}"
    ): "标杆{steps}步中{checked}步、待测{all}步中{others}步的norm与框架自算值一致（框架舍入{rounding}），{copies}",
    "a record contradicts itself in {count} ways: its layout loses, repeats or does not reduce something": (
        "记录有{count}处自相矛盾：其并行切分存在丢失、重复或未规约的内容"
    ),
    "of the {side} gradients were injected, of which the framework took its norms": "{side}注入了梯度，框架的范数取自注入的梯度",
    "of the {side} no step's norms were recorded beside the framework's own (ALIGN_HOOKS_LOCAL_NORMS)": (
        "{side}没有任何一步同时采集了norm和框架自算值（ALIGN_HOOKS_LOCAL_NORMS）"
    ),
    "{copies} copies alike": "{copies}份副本一致",
    "no copies to compare": "没有可比对的副本",
    # self_check.py: contradictions
    "ranks that make the global norm": "参与全局norm的rank数",
    "global norm": "全局norm",
    "global norm on {count} ranks": "{count}个rank上的全局norm",
    "{name} of rank {rank} is left out by the framework": "框架漏掉了rank {rank}的{name}",
    "{name} of rank {rank} is counted only by the framework": "rank {rank}的{name}只有框架计入",
    "gradient of {name}, replicated": "{name}的梯度（多副本）",
    "weight of {name}, replicated": "{name}的权重（多副本）",
    "{name} of data-parallel rank {rank}": "数据并行rank {rank}的{name}",
    "weight of tokens in the loss": "各token在loss中的权重",
    "loss": "loss",
    "{value} by the run": "运行所得为{value}",
    "{value} as their mean under the mask": "按掩码对逐token loss求平均为{value}",
    "loss and token losses": "loss与逐token loss",
    "compute type": "计算类型",
    "skipped": "跳过更新",
    "{value} by the framework": "框架为{value}",
    "{value} recorded": "记录为{value}",
    "{value} taken again in the same way of the same gradients": "用相同梯度按相同方式重算为{value}",
    "{value} on the first": "首个rank为{value}",
    "{value} of the gradients that the framework counts": "框架计入的梯度为{value}",
    "{value} by the recorded norms, each element once": "由已采集的norm得{value}，每个元素计一次",
    "norm {norm} on rank {rank}": "rank {rank}上norm为{norm}",
    "{value} on rank {rank}": "rank {rank}上为{value}",
    "one array on rank {rank}": "rank {rank}上为一组数",
    "another on rank {rank}": "rank {rank}上为另一组数",
    "alike (per-token loss) by its settings": "按配置应逐token等权（per-token loss）",
    "by micro-batch (no per-token loss) by its settings": "按配置应逐micro-batch平均（无per-token loss）",
    "alike in what was differentiated": "实际求导时逐token等权",
    "by micro-batch in what was differentiated": "实际求导时逐micro-batch平均",
    "neither alike nor by micro-batch in what was differentiated": "实际求导时既非逐token等权，也非逐micro-batch平均",
    # before_training.py, settings.py: hyper-parameters
    "a record does not hold them": "有一侧的记录不含这些信息",
    "of {count} parameters, learning rate of {steps} steps": "{count}个参数的超参，{steps}步的学习率",
    "learning rate of {count} steps, which is all that is known": "{count}步的学习率，其余超参未知",
    "learning rate at step {step} (iteration {iteration}) (and at {count} later steps)": (
        "第{step}步（iteration {iteration}）的学习率（其后另有{count}步）"
    ),
    "{name} and {count} more": "{name}及另外{count}个",
    "{names} in one optimizer only": "{names}（仅一侧优化器含有）",
    "learning_rate of {names}": "{names}的learning_rate",
    "betas of {names}": "{names}的betas",
    "betas of {name} and {count} more": "{name}及另外{count}个的betas",
    "eps of {names}": "{names}的eps",
    "eps of {name} and {count} more": "{name}及另外{count}个的eps",
    "weight_decay of {names}": "{names}的weight_decay",
    "bias_correction of {names}": "{names}的bias_correction",
    # before_training.py, batches.py: batches
    "{count} steps, every element": "共{count}步，逐元素比较",
    "numbers of valid tokens compared": "只比较了有效token数",
    "valid tokens": "有效token数",
    "{what} of step {step} (iteration {iteration})": "第{step}步（iteration {iteration}）的{what}",
    "{what} of step {step} (iteration {iteration}) in one run only": "第{step}步（iteration {iteration}）的{what}仅一侧有",
    "{what} of step {step}: shape": "第{step}步的{what}：shape",
    "{what} of step {step} (iteration {iteration}): shape": "第{step}步（iteration {iteration}）的{what}：shape",
    "{what} of step {step}: {count} of {all} differ": "第{step}步的{what}：{all}个中{count}个不同",
    "{what} of step {step} (iteration {iteration}): {count} of {all} differ": (
        "第{step}步（iteration {iteration}）的{what}：{all}个中{count}个不同"
    ),
    "{what} of step {step}: {count} of {all} differ, first at {place}": "第{step}步的{what}：{all}个中{count}个不同，首个位于{place}",
    "{what} of step {step} (iteration {iteration}): {count} of {all} differ, first at {place}": (
        "第{step}步（iteration {iteration}）的{what}：{all}个中{count}个不同，首个位于{place}"
    ),
    "attention mask": "注意力掩码",
    "attention mask of step {step}": "第{step}步的注意力掩码",
    "causal": "因果掩码",
    "its own": "自带掩码",
    (
        "loss normalisation differs: tokens of micro-batches with unequal masks weigh differently on the two sides; "
        "train both with the same micro-batches, or with a per-token loss on both"
    ): "loss归一化不一致：各micro-batch掩码不等时，token在两侧的权重不同；请两侧使用相同的micro-batch，或都使用per-token loss",
    # same_weights.py: initial weights, tensors of exact steps
    "the candidate loaded none: set ALIGN_HOOKS_LOAD_WEIGHTS": "待测没有加载权重：请设置ALIGN_HOOKS_LOAD_WEIGHTS",
    "{count} tensors, to the bit": "{count}个张量，逐位比较",
    "{count} tensors, at step {step} (iteration {iteration})": "{count}个张量，第{step}步（iteration {iteration}）",
    "{count} tensors, at {steps} steps, {first} to {last}": "{count}个张量，共{steps}步（第{first}步至第{last}步）",
    "{count} tensors, by their sketches, at step {step} (iteration {iteration})": (
        "{count}个张量，按草图摘要（sketch）比较，第{step}步（iteration {iteration}）"
    ),
    "{count} tensors, by their sketches, at {steps} steps, {first} to {last}": (
        "{count}个张量，按草图摘要（sketch）比较，共{steps}步（第{first}步至第{last}步）"
    ),
    "the two runs have no tensor in common": "两次运行没有共同的张量",
    "no recorded step stands on equal weights in both runs": "已采集的步中，没有两侧权重相同的步",
    # conversion.py
    "{name}: its sign is turned": "{name}：符号相反",
    "{name}: it is transposed": "{name}：被转置",
    "{name}: every element is {value}: it was not loaded": "{name}：所有元素均为{value}，未加载",
    "{name}: it was rounded to {type}": "{name}：被舍入为{type}",
    "{name}: it is the reference's {other}": "{name}：实为标杆的{other}",
    "{name} and {other} are exchanged": "{name}与{other}互换了",
    "{name}: the same numbers by its norm, at other places or under other signs": "{name}：norm相同，即数值相同而位置或符号不同",
    "{name}: its rows stand in another order, {order}": "{name}：行序不同，{order}",
    "{name}: its columns stand in another order, {order}": "{name}：列序不同，{order}",
    "{name}: its places along axis {axis} stand in another order, {order}": "{name}：第{axis}轴上的次序不同，{order}",
    "{count} off": "错开{count}位",
    "the halves of every {block} interleaved, as rotary embeddings of neighbours want them": (
        "每{block}个的前后两半被交错排列，即相邻配对式RoPE的排法"
    ),
    "every {block} cut from neighbours into halves, as rotary embeddings of halves want them": (
        "每{block}个由相邻配对拆成前后两半，即前后半式RoPE的排法"
    ),
    "{count} of {all}, first {place}, which was {other}": "{all}个中{count}个移位，首个为{place}，原为{other}",
    # token_losses.py
    "a run shows none: its script or loss keeps them to itself": "有一侧没有给出：其脚本或loss不对外提供",
    "{count} tokens at step {step} (iteration {iteration}), and their mean": "第{step}步（iteration {iteration}）的{count}个token及其均值",
    "{count} tokens at {steps} steps, {first} to {last}, and their means": "{steps}步（第{first}步至第{last}步）各{count}个token及其均值",
    "{fewest} to {most} tokens at {steps} steps, {first} to {last}, and their means": (
        "{steps}步（第{first}步至第{last}步）各{fewest}至{most}个token及其均值"
    ),
    "every token's loss is {shift} off": "每个token的loss都相差{shift}",
    (
        "every token's loss is {shift} off, the logarithm of {count}: the {side} has {ranks} tensor-parallel ranks, and its softmax counts "
        "every id that often"
    ): "每个token的loss都相差{shift}，即{count}的自然对数：{side}有{ranks}个张量并行rank，其softmax对每个id重复计入了这么多次",
    "earlier steps on equal weights agree: something beside the recorded weights carries over from step to step": (
        "此前权重相同的步均一致：除已采集的权重外，还有状态在步与步之间延续"
    ),
    # rows.py
    "only rows of the {side}'s data-parallel rank {ranks} differ": "只有{side}数据并行rank {ranks}的行不一致",
    "micro-batch 0 of the {side} agrees, those after do not: something carries over from one micro-batch to the next": (
        "{side}的micro-batch 0一致，其后的不一致：有状态在micro-batch之间延续"
    ),
    "micro-batches 0 to {last} of the {side} agree, those after do not: something carries over from one micro-batch to the next": (
        "{side}的micro-batch 0至{last}一致，其后的不一致：有状态在micro-batch之间延续"
    ),
    "only micro-batch {number} of the {side} differs": "只有{side}的micro-batch {number}不一致",
    "only rows {rows} of {count} differ": "{count}行中只有第{rows}行不一致",
    # same_weights.py: the optimizer's state
    "neither run had made an update": "两侧此前均未更新",
    "count of updates and {count} moments, to the bit": "更新次数与{count}个动量，逐位比较",
    "count of updates and {count} moments, within their rounding": "更新次数与{count}个动量，在其舍入误差内比较",
    "count of updates at the start": "开始时的更新次数",
    "the moments of the optimizer are not restored: the {side}'s are zero": "优化器的动量没有恢复：{side}的动量全为零",
    "a log does not say which weights and data it is of, so this may be a fault or other weights or data": (
        "日志不说明所用的权重与数据，因此可能是缺陷，也可能是权重或数据不同"
    ),
    "the loss of the {side} is not the mean of its token losses: {value} by the run, {mean} as their mean under the mask": (
        "{side}的loss不是其逐token loss的均值：运行所得为{value}，按掩码求平均为{mean}"
    ),
    # unused.py
    "{name}: rows {rows} have no gradient in the {side}": "{name}：{side}的第{rows}行没有梯度",
    "{name}: columns {columns} have no gradient in the {side}": "{name}：{side}的第{columns}列没有梯度",
    "and so on in {count} more": "另有{count}处类似",
    "{first} to {last}": "{first}至{last}",
    "{first} to {last} and {other} to {end}": "{first}至{last}、{other}至{end}",
    "{first} to {last} and {other} to {end} …": "{first}至{last}、{other}至{end}等",
    # frontier.py
    "gradients differ from the output on, first {names}": "梯度自输出端起即不一致，首先是{names}",
    "gradients agree from the output back to {above} and differ from {below} on": "梯度自输出端反向至{above}均一致，自{below}起不一致",
    "token losses of step {step} (iteration {iteration}), {where}": "第{step}步（iteration {iteration}）的逐token loss，{where}",
    "mean of the token losses of step {step} (iteration {iteration})": "第{step}步（iteration {iteration}）逐token loss的均值",
    "mean {value}": "均值{value}",
    "at every position: what a token goes through by itself": "所有位置均不一致：问题在每个token独自经过的计算",
    "at every position but the first, which attends to itself alone: scores of the attention": (
        "除首个位置外均不一致，而首个位置只关注自身：问题在注意力得分"
    ),
    "from position {position} on: what early tokens do not need, as a window of the attention or far positions": (
        "从位置{position}起不一致：问题在靠前的token用不到的部分，如注意力窗口或远距离位置"
    ),
    "at some positions": "部分位置不一致",
    # same_weights.py: first loss
    "a run has no loss at its first step": "有一侧首步没有loss",
    "loss and objective": "loss与求导目标",
    # sharding.py: what findings have in common
    "every norm is {factor} times the reference's": "所有norm均为标杆的{factor}倍",
    "every norm is {factor} times the reference's: {origin}": "所有norm均为标杆的{factor}倍：{origin}",
    "every tensor is {factor} times the reference's": "所有张量均为标杆的{factor}倍",
    "every tensor is {factor} times the reference's: {origin}": "所有张量均为标杆的{factor}倍：{origin}",
    "the loss agrees, the objective is {factor} times the reference's": "loss一致，求导目标为标杆的{factor}倍",
    "the loss agrees, the objective is {factor} times the reference's: {origin}": "loss一致，求导目标为标杆的{factor}倍：{origin}",
    "the {side} has {what}, over which it sums where the other averages": "{side}为{what}，对其求和，而另一侧求平均",
    "the {side} has {what}, by which it divides once more than the other": "{side}为{what}，比另一侧多除了一次",
    "the {side} has {what} and divides by one less": "{side}为{what}，除数却少1",
    "{count} data-parallel ranks": "{count}个数据并行rank",
    "{count} context-parallel ranks": "{count}个序列并行（CP）rank",
    "{count} tensor-parallel ranks": "{count}个张量并行rank",
    "{count} data- and context-parallel ranks": "{count}个数据并行与序列并行（CP）rank",
    "{count} micro-batches a rank": "每rank {count}个micro-batch",
    "{count} micro-batches": "{count}个micro-batch",
    "a loss scale of {value}": "loss scale {value}",
    "{count} tokens a step": "每步{count}个token",
    "{number} tokens a micro-batch": "每micro-batch {number}个token",
    "{name}: the {side}'s rank {rank} ({place}) holds all of its error, in {region}": (
        "{name}：误差全部位于{side}的rank {rank}（{place}），{region}"
    ),
    "{name}: the {side}'s rank {rank} ({place}) holds all of its error, in {region}, which is zero there": (
        "{name}：误差全部位于{side}的rank {rank}（{place}），{region}，且此处全为零"
    ),
    "alone": "单rank",
    "the whole tensor": "整个张量",
    "rows {first} to {last}": "第{first}至{last}行",
    "columns {first} to {last}": "第{first}至{last}列",
    "rows {first} to {last}, columns {left} to {right}": "第{first}至{last}行，第{left}至{right}列",
    "elements {from} to {to}": "第{from}至{to}个元素",
    "rows {first} to {last}, elements {from} to {to} of these": "第{first}至{last}行，其中第{from}至{to}个元素",
    "columns {first} to {last}, elements {from} to {to} of these": "第{first}至{last}列，其中第{from}至{to}个元素",
    "rows {first} to {last}, columns {left} to {right}, elements {from} to {to} of these": (
        "第{first}至{last}行，第{left}至{right}列，其中第{from}至{to}个元素"
    ),
    # every_step.py
    "global norm, coefficient and skipped updates of {count} steps": "{count}步的全局norm、裁剪系数与跳过的更新",
    "an overflow skipped an update on one side only": "仅一侧因溢出跳过了更新",
    "a run has no gradient norm": "有一侧没有梯度norm",
    "the runs have no later loss in common": "两次运行没有共同的后续loss",
    "first beyond its limit: {what}": "首个超出限值：{what}",
    "{count} without a loss": "其中{count}步没有loss",
    "the loss after the first update parts already": "首次更新后的loss即已分叉",
    "{count} steps have a loss on both sides, a curve needs {needed}": "两侧都有loss的共{count}步，loss曲线至少需要{needed}步",
    "a loss is not finite": "有loss不是有限值",
    "mean relative difference of the losses": "loss相对误差的均值",
    "{count} steps, the candidate's loss is the higher one in {above}": "共{count}步，其中{above}步待测loss偏高",
    "no tensors or norms of later steps in both runs": "两侧没有共同的后续步的张量或norm",
    "local norms of {norms} steps": "{norms}步的local norm",
    "gradients of {gradients} steps": "{gradients}步的梯度",
    "weights of {weights} steps": "{weights}步的权重",
    "local norms of {norms} steps, gradients of {gradients} steps": "{norms}步的local norm，{gradients}步的梯度",
    "local norms of {norms} steps, weights of {weights} steps": "{norms}步的local norm，{weights}步的权重",
    "gradients of {gradients} steps, weights of {weights} steps": "{gradients}步的梯度，{weights}步的权重",
    "local norms of {norms} steps, gradients of {gradients} steps, weights of {weights} steps": (
        "{norms}步的local norm，{gradients}步的梯度，{weights}步的权重"
    ),
    "as the built models hold them": "取自构建完成的模型",
    # first_updates.py
    "what {optimizer} makes of rounding has no default limit: measure it by --noise": (
        "{optimizer}对舍入误差的放大没有默认限值：请用--noise实测"
    ),
    "{one} or {other}": "{one}或{other}",
    "their gradients were handed over": "其梯度是注入的",
    "both sides' weights before and after one are not on record": "两侧没有同时采集某次更新前后的权重",
    "change of {count} tensors in {updates} updates": "{updates}次更新中{count}个张量的变化量",
    "all tensors": "所有张量",
    "every update is {factor} times the reference's": "每次更新均为标杆的{factor}倍",
    # after_update.py
    "{count} injected updates": "{count}次注入梯度的更新",
    "{count} of the {side}'s updates follow AdamW ({rest} roundings)": "{side}有{count}次更新符合AdamW（{rest}个舍入单位）",
    "{count} of the {side}'s updates follow AdamW ({rest} roundings, too small to show: {names})": (
        "{side}有{count}次更新符合AdamW（{rest}个舍入单位，影响过小而无法检验：{names}）"
    ),
    "{count} of the {side}'s updates do not follow AdamW as recorded ({rest}, limit {limit})": (
        "{side}有{count}次更新不符合所记录配置的AdamW（{rest}，限值{limit}）"
    ),
    "each does as its own settings say, so it is these that differ": "两侧都符合各自的配置，因此不同的是配置本身",
    "neither run's updates follow AdamW, so its formula judges neither": "两侧的更新都不符合AdamW，因此无法用其公式判定",
    "exp_avg of {name}": "{name}的exp_avg",
    "exp_avg_sq of {name}": "{name}的exp_avg_sq",
    "{names} of the reference": "标杆的{names}",
    "{names} of the candidate": "待测的{names}",
    "updated": "有更新",
    "never updated": "从未更新",
    "{what} of the {side}'s updates": "{side}更新中的{what}",
    "{what} of the {side}'s updates (or alone: {others})": "{side}更新中的{what}（或单独为：{others}）",
    "it does not explain all of {names}": "但不能完全解释{names}",
    "{value} on record": "记录为{value}",
    "{value} expected": "应为{value}",
    "{value} found": "反推为{value}",
    "the {side}'s updates are no AdamW with some of its terms changed": "改变AdamW的若干项也无法解释{side}的更新",
    "the {side}'s updates of {names} are no AdamW with some of its terms changed": "改变AdamW的若干项也无法解释{side}对{names}的更新",
    "{rest} roundings": "{rest}个舍入单位",
    "over a million roundings": "超过一百万个舍入单位",
    "apart from the gradient": "与梯度分开",
    "added to the gradient": "加入梯度",
    "made": "有",
    "not made": "无",
    "{rest} at best": "最好为{rest}",
    "learning rate": "学习率",
    "betas": "betas",
    "beta1": "beta1",
    "beta2": "beta2",
    "eps": "eps",
    "weight decay": "权重衰减",
    "decay grouping ({names})": "衰减分组（{names}）",
    "decayed": "衰减",
    "not decayed": "不衰减",
    "bias correction": "偏差修正",
    "decoupled weight decay": "解耦权重衰减",
    "on": "开",
    "off": "关",
    "clip coefficient": "裁剪系数",
    "that of clipping to {norm} on record": "记录为裁剪到{norm}的系数",
    "that of clipping to {norm} expected": "应为裁剪到{norm}的系数",
    "that of clipping to {norm} found": "反推为裁剪到{norm}的系数",
    "gradient scale": "梯度缩放",
    "count": "更新计数",
    # evidence.py: why updates cannot be checked
    "the {side}'s updates were not checked: {why}": "{side}的更新未检验：{why}",
    "its hyper-parameters are not known": "其超参未知",
    "its optimizer is {type}, only Adam's formula is known": "其优化器为{type}，而只有Adam的公式可用",
    "that takes weights before and after a step and its gradients, from the first step or with the optimizer's state": (
        "需要某步前后的权重及其梯度，且从首步开始或带有优化器状态"
    ),
    (
        "that takes weights before and after a step and its gradients, from the first step or with the optimizer's state "
        "(its gradients were injected from a run that is not here)"
    ): "需要某步前后的权重及其梯度，且从首步开始或带有优化器状态（其梯度由不在此处的另一次运行注入）",
    "its optimizer's record names none of its weights": "其优化器的记录中没有它的任何权重",
    "its betas, eps or weight decay are not on record": "其betas、eps或权重衰减没有记录",
    "its parameter groups differ in betas, eps or bias correction, the formula is checked for one of each": (
        "其各参数组的betas、eps或偏差修正不同，而公式只按一组取值检验"
    ),
    "learning rate or clip coefficient of step {step} cannot be told by parameter": "第{step}步的学习率或裁剪系数无法对应到参数",
    "its moments are kept in {type}": "其动量以{type}保存",
    "its moments are kept in {type} and {other}": "其动量以{type}和{other}保存",
    "the update of step {step} is not of finite numbers": "第{step}步的更新含有非有限值",
    # noise.py
    "--noise {path} is no repeat of {reference}: {why}; repeat the run that is the reference": (
        "--noise {path}不是{reference}的重复运行：{why}；请重复运行标杆本身"
    ),
    "it is one of the two runs that are compared": "它就是被比较的两次运行之一",
    "it begins with another step": "其起始步不同",
    "it computes in {type}, the reference in {other}": "其计算精度为{type}，标杆为{other}",
    "{what} is {value} there and {other} here": "{what}在标杆中为{value}，在此为{other}",
    "its learning rate at step {step} is {value} and not {other}": "其第{step}步的学习率为{value}，而非{other}",
    "it consumed another batch, {what} of step {step}: shape": "其消耗的batch数据不同，第{step}步的{what}：shape",
    "it consumed another batch, {what} of step {step}: {count} of {all} differ": (
        "其消耗的batch数据不同，第{step}步的{what}：{all}个中{count}个不同"
    ),
    "it consumed another batch, {what} of step {step}: {count} of {all} differ, first at {place}": (
        "其消耗的batch数据不同，第{step}步的{what}：{all}个中{count}个不同，首个位于{place}"
    ),
    "it consumed another batch, attention mask of step {step}": "其消耗的batch数据不同，第{step}步的注意力掩码",
    "it starts from other weights, {name}": "其初始权重不同，{name}",
    # acceptance.py
    "first loss within 0.005 or 0.5 %": "首步loss误差小于0.005或0.5%",
    "mean loss within 0.01 or 1 %": "loss平均误差小于0.01或1%",
    "mean global norm within 10 %": "全局norm平均误差不超过10%",
    "no loss": "没有loss",
    "no global norm": "没有全局norm",
    "{absolute} absolute, {relative} relative": "绝对误差{absolute}，相对误差{relative}",
    # signatures.py: causes, and what to look at
    "random numbers that are drawn otherwise": "抽取的随机数不同",
    "seeds; random states that a resumption, a recomputation or another rank restores; what draws beside dropout": (
        "随机种子；续训、重计算或其他rank恢复的随机状态；除dropout外还有什么抽取随机数"
    ),
    "what the optimizer goes on from": "优化器续接的状态",
    "which moments and which count of updates a checkpoint holds, and whether they were loaded": (
        "checkpoint中含有哪些动量与更新次数，是否已加载"
    ),
    "one rank computes with other weights than are recorded": "某个rank计算所用的权重并非所采集的权重",
    "a gather of parameters that comes late, a copy of a weight that is updated otherwise": "参数聚合滞后、某份权重副本的更新不同",
    "what one micro-batch leaves to the next": "一个micro-batch留给下一个的状态",
    "a random state that recomputation moves, a buffer or a cache that is not set back": "被重计算推进的随机状态、未复位的缓冲区或缓存",
    "what one step leaves to the next": "一步留给下一步的状态",
    "a buffer, a cache, weights that are computed with and are not those on record": "缓冲区、缓存、计算所用却与采集不符的权重",
    "the sum of the softmax, or a constant in the loss": "softmax的求和，或loss中的常数项",
    "logits that were gathered and go into a vocabulary-parallel loss, padded rows of the vocabulary": (
        "已聚合的logits又送入词表并行的loss、词表的padding行"
    ),
    "one rank's own computation": "某个rank自身的计算",
    "its shard of a weight, its inputs, a setting that it alone has": "其权重切片、输入、仅它持有的设置",
    "a backward pass at this boundary": "此分界处的反向计算",
    "the backward pass of what stands between the two: a norm, an activation, the core of the attention, a residual": (
        "两者之间部分的反向计算：归一化层、激活函数、注意力核心、残差"
    ),
    "what is differentiated, or the backward pass of the loss": "求导的对象，或loss的反向计算",
    "micro-batches that are left out, the scale of the loss, its own backward pass": "被漏掉的micro-batch、loss的缩放、loss自身的反向计算",
    "some tensors' own gradients": "若干张量自身的梯度",
    "other data, or another order of it": "数据不同，或次序不同",
    "the seed, path and split of the data, and where a resumption goes on: align-hooks check REF CAND lists them": (
        "数据的种子、路径与划分，以及续训从何处接续：align-hooks check REF CAND会逐一列出"
    ),
    "what these have in common: their kind, their layer, the ranks that hold them, the type that they are reduced in": (
        "它们的共同点：种类、层、所在的rank、规约所用的数据类型"
    ),
    "rotary positions": "旋转位置编码",
    "rope_theta, halves or neighbours, positions, rotary_dtype": "rope_theta、前后半式或相邻配对式、位置编号、rotary_dtype",
    "the epsilon of the norms": "归一化层的epsilon",
    "rms_norm_eps, --norm-epsilon": "rms_norm_eps、--norm-epsilon",
    "scores of the attention": "注意力得分",
    "rotary positions (base, halves or neighbours, type), the softmax's scale and type": (
        "旋转位置编码（base、前后半式或相邻配对式、数据类型），softmax的缩放与数据类型"
    ),
    "an attention that forgets what is far, or rotary angles that are rounded": "注意力看不到远处，或旋转角度被舍入",
    "sliding window, rotary_dtype": "滑动窗口、rotary_dtype",
    "the embedding": "Embedding",
    "its compute type, a scale, the ids that it looks up": "其计算精度、缩放、查表所用的id",
    "logits or the loss": "logits或loss计算",
    "scale, cap or type of the logits, z-loss, label smoothing, shifted labels": (
        "logits的缩放、截断或数据类型，z-loss，label smoothing，标签错位"
    ),
    "the MLP, or the norm before it": "MLP，或其前的归一化层",
    "activation, order of gate and up; the norm's epsilon and compute type": "激活函数、gate与up的次序；归一化层的epsilon与计算类型",
    "a norm": "某个归一化层",
    "its epsilon, its compute type, weights centred at 0 or 1, a mean that is taken off": (
        "其epsilon、计算精度、权重以0还是1为中心、是否减均值"
    ),
    "the MLP": "MLP",
    "activation, order of gate and up, residual, compute type": "激活函数、gate与up的次序、残差、计算精度",
    "the attention": "注意力",
    "mask, grouping of heads, order of queries, keys and values, softmax": "掩码、head分组、Q/K/V的次序、softmax",
    "copies of the norms' gradients are added up once too often, or not at all": "归一化层梯度的副本多累加了一次，或没有累加",
    "sequence parallelism, the reduction of norms over tensor-parallel ranks": "序列并行、归一化层梯度在张量并行rank间的规约",
    "one tensor's own gradient": "某个张量自身的梯度",
    "its backward pass, the type that it is accumulated or reduced in, a shard that is lost": (
        "其反向计算、梯度累加或规约所用的数据类型、丢失的切片"
    ),
    "other parameters decay": "权重衰减的参数不同",
    "parameter groups: whether biases and norms are decayed": "参数分组：bias与归一化层是否衰减",
    "the learning rate's schedule": "学习率调度",
    "warm-up, decay style, minimum, total steps, rates of their own for the embedding and output": (
        "预热、衰减方式、最小值、总步数、词嵌入与输出层各自的学习率"
    ),
    "every update by one factor": "每次更新差同一倍数",
    "bias correction, which makes the first one (1 - beta1) / sqrt(1 - beta2) times as large, or the learning rate": (
        "偏差修正（有无之差使首次更新变为(1 - beta1) / sqrt(1 - beta2)倍），或学习率"
    ),
    "some tensors' own updates": "个别张量自身的更新",
    "their parameter group: learning rate, decay, frozen or not": "其参数分组：学习率、衰减、是否冻结",
    # next_step.py
    "set {setting} alike on both sides and record the candidate again": "将两侧的{setting}设为一致，再重新采集待测",
    "set {setting} and {other} alike on both sides and record the candidate again": "将两侧的{setting}与{other}设为一致，再重新采集待测",
    "record the candidate without the overlap of parameter gathers, then on one rank: {command} <the candidate's command>": (
        "先关闭参数聚合的重叠再采集待测，然后用单rank采集：{command} <待测的启动命令>"
    ),
    (
        "see what the checkpoint holds of this and what loading it restores, then go on from it again on the reference's batches: "
        "{command} <the candidate's command>"
    ): "查明checkpoint中保存了其中哪些、加载时恢复了哪些，再用标杆的batch数据重新续训：{command} <待测的启动命令>",
    "record both runs with dropout 0, or the candidate without recomputation: {command} <the candidate's command>": (
        "两侧dropout均置0，或待测关闭重计算，再采集：{command} <待测的启动命令>"
    ),
    (
        "set {setting} alike on both sides; then record both runs, the candidate on the reference's weights and batches: a log cannot "
        "tell a fault from other weights or data; record the reference with what a replay needs, {command} <the reference's command>, and "
        "the candidate from it"
    ): (
        "先将两侧的{setting}设为一致；再采集两侧，待测使用标杆的权重与batch数据：日志无法区分缺陷与权重或数据不同；"
        "采集标杆，并包含回放所需的内容：{command} <标杆的启动命令>，再由此采集待测"
    ),
    (
        "record both runs, the candidate on the reference's weights and batches: a log cannot tell a fault from other weights or data; "
        "record the reference with what a replay needs, {command} <the reference's command>, and the candidate from it"
    ): (
        "采集两侧，待测使用标杆的权重与batch数据：日志无法区分缺陷与权重或数据不同；"
        "采集标杆，并包含回放所需的内容：{command} <标杆的启动命令>，再由此采集待测"
    ),
    "record the candidate on the reference's batches: {command} <the candidate's command>": (
        "用标杆的batch数据采集待测：{command} <待测的启动命令>"
    ),
    "record the candidate from the reference's weights: {command} <the candidate's command>": (
        "从标杆的权重开始采集待测：{command} <待测的启动命令>"
    ),
    "mend the conversion of {suspect}, or let align_hooks convert: {command} <the candidate's command>": (
        "修正{suspect}的权重转换，或交由align_hooks转换：{command} <待测的启动命令>"
    ),
    "narrow it down by measured limits: {command} <the reference's command>, then align-hooks {path}": (
        "用实测限值缩小范围：{command} <标杆的启动命令>，然后执行align-hooks {path}"
    ),
    (
        "ask a third opinion which side is right: transformers' from_pretrained('{path}') on the tokens beside it; "
        "then read the code around {suspect}"
    ): "请第三方判断哪侧正确：用transformers的from_pretrained('{path}')计算其旁的tokens；再检查{suspect}附近的代码",
    "store the first step: {command} on both sides": "保存首步：两侧均设置{command}",
    "look at what each side divides its loss by: the factor above says how they differ": (
        "检查两侧loss各除以什么：上面的比例说明了二者的差别"
    ),
    "train both with one micro-batch a rank, or with a per-token loss on both": "两侧均以每rank一个micro-batch训练，或都使用per-token loss",
    "record the candidate on one rank: {command} <the candidate's command>": "用单rank采集待测：{command} <待测的启动命令>",
    "let the candidate make its first updates from the reference's gradients: {command} <the candidate's command>": (
        "让待测用标杆的梯度完成最初的更新：{command} <待测的启动命令>"
    ),
    (
        "store the first updates of the reference, whose gradients the candidate can then be handed: {command} <the reference's command>"
    ): "保存标杆最初的更新，其梯度随后可注入待测：{command} <标杆的启动命令>",
    "hold the record against the framework's own norm: read the self-check's lines above": "将记录与框架自算的norm对照：见上文的自检内容",
    "mend {suspect} and record the candidate again: {command} <the candidate's command>": (
        "修正{suspect}，再重新采集待测：{command} <待测的启动命令>"
    ),
    "what differs": "不一致之处",
    "record the reference with what a replay needs, {command} <the reference's command>, and the candidate from it": (
        "采集标杆，并包含回放所需的内容：{command} <标杆的启动命令>，再由此采集待测"
    ),
    "rehearse in fp32, where bugs and rounding are a factor of a hundred apart": "先用fp32预演：此时缺陷与舍入误差相差百倍",
    "measure the noise: {command} <the reference's command>, then align-hooks {path}": (
        "实测噪声：{command} <标杆的启动命令>，然后执行align-hooks {path}"
    ),
    "measure more noise: one repeat more, with ALIGN_HOOKS_PERTURB=2, and --noise for each": (
        "再实测噪声：用ALIGN_HOOKS_PERTURB=2多做一次重复运行，每次重复各用一个--noise"
    ),
    "see why it ended, in its own log and in {command}, and record it again": "查明其结束的原因（见其自身的日志和{command}），并重新采集",
    "give the candidate the reference's {rows} rows of the embedding, vocab_size: {value}, and record it again": (
        "让待测的Embedding与标杆同为{rows}行，设置vocab_size: {value}，并重新采集"
    ),
    "give the candidate the reference's {rows} rows of the embedding, by --padded-vocab-size {value} or --make-vocab-size-divisible-by, "
    "and record it again": (
        "让待测的Embedding与标杆同为{rows}行，设置--padded-vocab-size {value}或--make-vocab-size-divisible-by，并重新采集"
    ),
    "give both models the same sizes; which settings differ says {command}": "让两个模型的规格一致；哪些参数不同，见{command}",
    "record the candidate from the reference: {command} <the candidate's command>": "由标杆采集待测：{command} <待测的启动命令>",
    "name two runs: {command}": "请给出两次不同的运行：{command}",
    "record more than losses: {command} on both sides": "除loss外采集更多内容：两侧均设置{command}",
    "the same in the precision that you train in": "用实际训练的精度再做一次",
    "the same on the layout, and for the number of steps, that you train with": "用实际训练的并行切分与步数再做一次",
    # page.py: a curve in a sentence
    "largest difference {value} at step {step} (iteration {iteration})": "最大差{value}，在第{step}步（iteration {iteration}）",
    "beyond the limit at {count} steps, first at {where}": "{count}步超限，首次在{where}",
    "{count} values are missing or not finite": "{count}个值缺失或非有限值",
    "from {first} to {last}, between {lowest} and {highest}": "从{first}到{last}，介于{lowest}与{highest}之间",
    "{count} tensors": "共{count}个张量",
    "all equal to the bit": "全部逐位相等",
    "{value} on both sides at every step": "两侧每步均为{value}",
    "furthest beyond its limit: {name}, {one} against {other}": "超限最多的是{name}：{one}对{other}",
    "closest to its limit: {name}, {one} against {other}": "最接近限值的是{name}：{one}对{other}",
    # health.py: a run by itself
    "a directory made by hand says nothing of itself": "手工生成的目录没有自身信息",
    "no step's norms were recorded beside the framework's own (ALIGN_HOOKS_LOCAL_NORMS), {copies}": (
        "没有与框架自身的范数一并采集的步（ALIGN_HOOKS_LOCAL_NORMS），{copies}"
    ),
    "norms of {count} of {all} steps are the framework's own (its rounding {error}), {copies}": (
        "{all}步中{count}步的范数与框架自身一致（框架舍入误差{error}），{copies}"
    ),
    "{what} of {count} steps were asked for and are not there, first {step}": "要求采集的{what}缺{count}步，首个为第{step}步",
    "{what} is not finite at {count} steps, first {where}": "{what}在{count}步为非有限值，首个为{where}",
    "loss from {first} to {last} over {count} steps": "loss在{count}步内由{first}到{last}",
    "{count} updates were skipped for an overflow, first {where}": "{count}次更新因溢出被跳过，首次在{where}",
    "{seconds} seconds a step (median)": "每步{seconds}秒（中位数）",
    "{count} settings of the framework were changed, as asked: run.json lists them under overrides": (
        "按要求改动了框架的{count}项设置，列于run.json的overrides"
    ),
    # a check
    **CHECK,
}
"""English to Chinese; slots are of the same names on both sides, with something literal between any two."""

SLOT = re.compile(r"{(\w+)}")


def chinese(text: str) -> str:
    """A finished English sentence in Chinese; a text that no entry of the table fits stays as it is."""
    return _translated(text, DEEPEST)


@lru_cache(maxsize=1 << 14)
def _translated(text: str, depth: int) -> str:
    """Exactly, after a label, by the template with the most literal characters that fits, or part by part; ``depth`` is how much deeper
    it may go."""
    if text in CHINESE:
        return CHINESE[text]
    if not depth or len(text) > LONGEST:
        return text
    label, colon, rest = text.partition(": ")
    if colon and label in CHINESE:
        return f"{CHINESE[label]}：{_translated(rest, depth - 1)}"
    for literals, names, translation in _templates():
        values = _values(text, literals)
        if values is not None and all(map(_fits, names, values)):
            pairs = zip(names, values, strict=True)
            return translation.format_map({name: one if name in VERBATIM else _translated(one, depth - 1) for name, one in pairs})
    return _in_parts(text, depth)


def _in_parts(text: str, depth: int) -> str:
    """Of what no template fits: sentences in a row, or terms."""
    if "; " in text:
        parts = text.split("; ")
        found = [_translated(one, depth - 1) for one in parts]
        return "；".join(found) if found != parts else text
    terms = text.split(", ")
    return "、".join(CHINESE[one] for one in terms) if all(one in CHINESE for one in terms) else text


def _fits(name: str, value: str) -> bool:
    """Whether a slot can hold a value: digits, whatever was written, or no more than one sentence."""
    return value.isdecimal() if name in COUNTS else name in VERBATIM or "; " not in value


@lru_cache(maxsize=1)
def _templates() -> list[tuple[tuple[str, ...], tuple[str, ...], str]]:
    """What stands around the slots of each template, the slots, and the translation; the template with the most literal text first."""
    cut = [(SLOT.split(key), translation) for key, translation in CHINESE.items()]
    found = [(tuple(one[::2]), tuple(one[1::2]), translation) for one, translation in cut if len(one) > 1]
    return sorted(found, key=lambda one: -sum(map(len, one[0])))


def _values(text: str, literals: tuple[str, ...]) -> list[str] | None:
    """What a text has in the slots between literals, each as short as it can be; None where it does not fit.

    The same as a regular expression of ``.+?`` finds, in time that grows with the text alone: what was found at the first place where it
    can stand never has to be looked for again.
    """
    start, end = len(literals[0]), len(text) - len(literals[-1])
    if start >= end or "\n" in text or not text.startswith(literals[0]) or not text.endswith(literals[-1]):
        return None
    values = []
    for literal in literals[1:-1]:
        at = text.find(literal, start + 1, end - 1)
        if at < 0:
            return None
        values.append(text[start:at])
        start = at + len(literal)
    return [*values, text[start:end]]
