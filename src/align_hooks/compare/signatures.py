"""What differences are known to come from: a table of facts. :mod:`.blame` looks a comparison up in it; a new cause is a new row."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from align_hooks.compare.rows import Rows
from align_hooks.compare.token_losses import Where


class Sign(Enum):
    """What a comparison shows beside places and names; :func:`.blame.fits` says when."""

    SHIFT = "every token is off by one number"
    DRAWN = "other random numbers were drawn"
    BOUNDARY = "gradients agree from the output back to a tensor"
    FROM_THE_OUTPUT = "gradients differ from the output on"
    ALONE = "one tensor differs"
    SCATTERED = "several tensors differ, and no boundary"
    OPTIMIZER_STATE = "the optimizers start from other moments"


@dataclass(frozen=True, slots=True)
class Signature:
    """What a cause looks like. Every condition that is set must hold.

    ``place`` is where the fault is blamed; ``where`` the positions at which token losses part; ``first`` are patterns of which one must
    match the tensor or setting that is named first, or with ``only`` everything that differs; ``unless`` are positions that speak against
    it; ``rows`` are the rows that are wrong, ``later`` says whether an earlier step on equal weights agrees, and ``sign`` is something else
    that must be seen; ``look`` is what to look at.
    """

    place: str
    cause: str
    look: str
    where: Where | None = None
    unless: Where | None = None
    first: tuple[str, ...] = ()
    only: bool = False
    rows: Rows | None = None
    later: bool | None = None
    sign: Sign | None = None
    source: str = "zoo"


SIGNATURES = (
    Signature(
        "state",
        "random numbers that are drawn otherwise",
        "seeds; random states that a resumption, a recomputation or another rank restores; what draws beside dropout",
        sign=Sign.DRAWN,
    ),
    Signature(
        "state",
        "what the optimizer goes on from",
        "which moments and which count of updates a checkpoint holds, and whether they were loaded",
        sign=Sign.OPTIMIZER_STATE,
        source="Megatron-LM issue 761; zoo",
    ),
    Signature(
        "state",
        "what one micro-batch leaves to the next",
        "a random state that recomputation moves, a buffer or a cache that is not set back",
        rows=Rows.LATER,
    ),
    Signature(
        "state",
        "what one step leaves to the next",
        "a buffer, a cache, weights that are computed with and are not those on record",
        later=True,
    ),
    Signature(
        "forward",
        "the sum of the softmax, or a constant in the loss",
        "logits that were gathered and go into a vocabulary-parallel loss, padded rows of the vocabulary",
        sign=Sign.SHIFT,
        source="Megatron-LM issue 7452; zoo",
    ),
    Signature(
        "forward",
        "one rank computes with other weights than are recorded",
        "a gather of parameters that comes late, a copy of a weight that is updated otherwise",
        rows=Rows.RANK,
        later=True,
        source="Megatron-LM issues 663 and 950; zoo",
    ),
    Signature(
        "forward",
        "one rank's own computation",
        "its shard of a weight, its inputs, a setting that it alone has",
        rows=Rows.RANK,
    ),
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
        "a backward pass at this boundary",
        "the backward pass of what stands between the two: a norm, an activation, the core of the attention, a residual",
        sign=Sign.BOUNDARY,
    ),
    Signature(
        "reduced gradients",
        "what is differentiated, or the backward pass of the loss",
        "micro-batches that are left out, the scale of the loss, its own backward pass",
        sign=Sign.FROM_THE_OUTPUT,
    ),
    Signature(
        "reduced gradients",
        "one tensor's own gradient",
        "its backward pass, the type that it is accumulated or reduced in, a shard that is lost",
        sign=Sign.ALONE,
    ),
    Signature(
        "reduced gradients",
        "some tensors' own gradients",
        "what these have in common: their kind, their layer, the ranks that hold them, the type that they are reduced in",
        sign=Sign.SCATTERED,
    ),
    Signature(
        "data",
        "other data, or another order of it",
        "the seed, path and split of the data, and where a resumption goes on: align-hooks check REF CAND lists them",
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
