"""What differences are known to come from: a table of facts. :mod:`.blame` looks a comparison up in it; a new cause is a new row."""

from __future__ import annotations

from dataclasses import dataclass

from align_hooks.compare.token_losses import Where


@dataclass(frozen=True, slots=True)
class Signature:
    """What a cause looks like. Every condition that is set must hold.

    ``place`` is where the fault is blamed; ``where`` the positions at which token losses part; ``first`` are patterns of which one must
    match the tensor or setting that is named first, or with ``only`` everything that differs; ``unless`` are positions that speak against
    it; ``look`` is what to look at.
    """

    place: str
    cause: str
    look: str
    where: Where | None = None
    unless: Where | None = None
    first: tuple[str, ...] = ()
    only: bool = False
    source: str = "zoo"


SIGNATURES = (
    Signature(
        "forward",
        "rotary positions",
        "rope_theta, halves or neighbours, positions, rotary_dtype",
        first=("rope*", "partial_rotary*"),
    ),
    Signature("forward", "the epsilon of the norms", "rms_norm_eps, --norm-epsilon", first=("rms_norm_eps*",)),
    Signature(
        "forward",
        "scores of the attention",
        "rotary positions (base, halves or neighbours, type), the softmax's scale and type",
        where=Where.AFTER_THE_FIRST,
    ),
    Signature(
        "forward",
        "an attention that forgets what is far, or rotary angles that are rounded",
        "sliding window, rotary_dtype",
        where=Where.FROM_ONE_ON,
    ),
    Signature(
        "forward",
        "the embedding",
        "its compute type, a scale, the ids that it looks up",
        first=("*embed_tokens*",),
        source="the guide's case study; zoo",
    ),
    Signature(
        "forward",
        "logits or the loss",
        "scale, cap or type of the logits, z-loss, label smoothing, shifted labels",
        first=("lm_head*", "model.norm*"),
    ),
    Signature(
        "forward",
        "the MLP, or the norm before it",
        "activation, order of gate and up; the norm's epsilon and compute type",
        first=("*post_attention_layernorm*",),
    ),
    Signature(
        "forward", "a norm", "its epsilon, its compute type, weights centred at 0 or 1, a mean that is taken off", first=("*norm.weight*",)
    ),
    Signature("forward", "the MLP", "activation, order of gate and up, residual, compute type", first=("*.mlp.*",)),
    Signature(
        "forward",
        "the attention",
        "mask, grouping of heads, order of queries, keys and values, softmax",
        unless=Where.AFTER_THE_FIRST,  # a token that sees itself alone is wrong by these too
        first=("*.self_attn.*",),
    ),
    Signature(
        "reduced gradients",
        "copies of the norms' gradients are added up once too often, or not at all",
        "sequence parallelism, the reduction of norms over tensor-parallel ranks",
        first=("*norm.weight*",),
        only=True,
    ),
    Signature(
        "reduced gradients",
        "one tensor's own gradient",
        "its backward pass, the type that it is accumulated or reduced in, a shard that is lost",
    ),
    Signature(
        "configuration",
        "other parameters decay",
        "parameter groups: whether biases and norms are decayed",
        first=("weight_decay of *",),
        source="the guide's case study",
    ),
    Signature(
        "configuration",
        "the learning rate's schedule",
        "warm-up, decay style, minimum, total steps, rates of their own for the embedding and output",
        first=("learning rate at *",),
    ),
    Signature(
        "optimizer",
        "every update by one factor",
        "bias correction, which makes the first one (1 - beta1) / sqrt(1 - beta2) times as large, or the learning rate",
        first=("every update is *", "bias correction of *"),
    ),
    Signature(
        "optimizer",
        "some tensors' own updates",
        "their parameter group: learning rate, decay, frozen or not",
        first=("model.*", "lm_head*", "the candidate's updates of *"),
    ),
)
