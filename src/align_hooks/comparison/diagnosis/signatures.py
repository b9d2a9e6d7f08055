"""The causes that differences are known to come from, as a table in which :mod:`.blame` looks a comparison up. A new cause is a new row, a
member of :class:`Cause`, and its words in the catalogues."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from align_hooks.comparison.made_otherwise import Made
from align_hooks.comparison.token_losses import Rows, Where
from align_hooks.comparison.verdict import Place
from align_hooks.families.registry import routers
from align_hooks.messages import Message, message


class Cause(Enum):
    """A cause of differences; the catalogues have its words, and what to look at."""

    RANDOM_NUMBERS = "random_numbers"
    OPTIMIZER_START = "optimizer_start"
    NOT_RESTORED = "not_restored"
    MICRO_BATCH_LEAVES = "micro_batch_leaves"
    STEP_LEAVES = "step_leaves"
    SOFTMAX_SUM = "softmax_sum"
    ACROSS_DOCUMENTS = "across_documents"
    STALE_WEIGHTS = "stale_weights"
    RANK_ALONE = "rank_alone"
    ROTARY_POSITIONS = "rotary_positions"
    NORM_EPSILON = "norm_epsilon"
    LATENT_SCALE = "latent_scale"
    ROUTING_SETTINGS = "routing_settings"
    ATTENTION_SCORES = "attention_scores"
    ATTENTION_FORGETS = "attention_forgets"
    ROUTER = "router"
    SHARED_EXPERTS = "shared_experts"
    EXPERTS = "experts"
    QUERY_AND_KEY_NORMS = "query_and_key_norms"
    LATENT_NORMS = "latent_norms"
    ATTENTION_BIASES = "attention_biases"
    EMBEDDING = "embedding"
    LOGITS_OR_LOSS = "logits_or_loss"
    LOSS_FUNCTION = "loss_function"
    MLP_OR_ITS_NORM = "mlp_or_its_norm"
    NORM = "norm"
    MLP = "mlp"
    ATTENTION = "attention"
    ATTENTION_CORE = "attention_core"
    PROJECTION = "projection"
    RESIDUAL = "residual"
    ROUTER_DETACHED = "router_detached"
    AUXILIARY_LOSS = "auxiliary_loss"
    PREDICTION_LOSS = "prediction_loss"
    NORM_COPIES = "norm_copies"
    BACKWARD_AT_BOUNDARY = "backward_at_boundary"
    BACKWARD_OF_LOSS = "backward_of_loss"
    BACKWARD_OF_POINT = "backward_of_point"
    GRADIENT_ALONE = "gradient_alone"
    SOME_GRADIENTS = "some_gradients"
    OTHER_DATA = "other_data"
    OTHER_ORDER = "other_order"
    OTHER_ROWS = "other_rows"
    OTHER_CUT = "other_cut"
    LABELS_MADE = "labels_made"
    PADDING_HIDDEN = "padding_hidden"
    MASK_MADE = "mask_made"
    DOCUMENTS_APART = "documents_apart"
    POSITIONS_MADE = "positions_made"
    OTHER_DECAY = "other_decay"
    RATE_SCHEDULE = "rate_schedule"
    BIAS_OF_EXPERTS = "bias_of_experts"
    UPDATES_BY_A_FACTOR = "updates_by_a_factor"
    UPDATES_OF_SOME = "updates_of_some"
    OWN_OPTIMIZER = "own_optimizer"
    MOMENTS_EMPTIED = "moments_emptied"
    TIED_WEIGHT = "tied_weight"
    UPDATE_FORMULA = "update_formula"
    DROPOUT = "dropout"
    MAIN_PARAMETERS = "main_parameters"
    RANKS_NOT_REDUCED = "ranks_not_reduced"
    RANKS_UPDATED_APART = "ranks_updated_apart"

    @property
    def look(self) -> Message:
        """What to look at."""
        return message(f"look.{self.value}")


class Sign(Enum):
    """A sign that a comparison shows beside places and names; :class:`.seen.Seen` says when."""

    SHIFT = "every token is off by one number"
    DRAWN = "other random numbers were drawn"
    SEVERAL_EXPERTS = "several experts of one layer differ most"
    ROUTER = "gradients agree from the output back to experts, and differ from their router on"
    ROUTER_LOST = "the same, and next to nothing is left of the router's gradient"
    PREDICTED = "gradients differ from the output on, and those of a predicting layer most"
    BOUNDARY = "gradients agree from the output back to a tensor"
    FROM_THE_OUTPUT = "gradients differ from the output on"
    ALONE = "one tensor differs"
    DRAWS = "a model draws random numbers"
    TIED_ALONE = "the weight that the embedding shares with the output layer differs alone"
    SCATTERED = "several tensors differ, and no boundary"
    LOGITS_AGREE = "all points agree up to the logits, and the first loss differs"
    OPTIMIZER_STATE = "the optimizers start from other moments"
    NOT_RESTORED = "a step starts from other counts or buffers"


@dataclass(frozen=True, slots=True)
class Signature:
    """What a cause looks like. Every condition that is set must hold.

    ``place`` is where the fault is blamed. ``where`` are the positions at which token losses part, ``unless`` those that speak against the
    cause. ``first`` are patterns, one of which must match the name of the first suspect, or with ``only`` of all suspects; ``ids`` are
    those of messages, one of which must word it. ``rows`` are the rows that are wrong. ``later`` says whether an earlier step on equal
    weights agrees. ``sign`` must be seen as well. ``points`` are kinds, one of which the point must have at which the error comes about.
    ``source`` is where the cause is known from."""

    place: Place
    cause: Cause
    where: Where | None = None
    unless: Where | None = None
    first: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    only: bool = False
    rows: Rows | None = None
    later: bool | None = None
    sign: Sign | None = None
    points: tuple[str, ...] = ()
    source: str = "zoo"


ROUTERS = tuple(f"*.{kind}.weight" for kind in routers())
ROUTING = ("norm_topk_prob", "routed_scaling_factor", "num_experts_per_tok", "n_group", "topk_group")
"""Settings by which a router chooses experts and weighs what they compute."""
BALANCING = ("moe_aux_loss_coeff", "moe_router_load_balancing_type", "micro_batch_size", "moe_z_loss_coeff")
"""Settings of the losses of a router."""

NORMS = ("input_layernorm", "post_attention_layernorm", "model.norm", "enorm", "hnorm", "shared_head.norm")
PROJECTIONS = tuple(f"self_attn.{name}" for name in ("q_proj", "k_proj", "v_proj", "o_proj", "q_a_proj", "q_b_proj", "kv_a*", "kv_b_proj"))
BEHIND_DROPOUT = ("input_layernorm", "post_attention_layernorm", "model.norm", "residual", ".", "input")
"""Points that are made from what dropout leaves of a sublayer's output, with no point between."""
AT_POINTS = (
    (Cause.EMBEDDING, ("model.embed_tokens",)),
    (Cause.QUERY_AND_KEY_NORMS, ("self_attn.q_norm", "self_attn.k_norm")),
    (Cause.LATENT_NORMS, ("self_attn.q_a_layernorm", "self_attn.kv_a_layernorm")),
    (Cause.NORM, NORMS),
    (Cause.PROJECTION, (*PROJECTIONS, "eh_proj")),
    (Cause.ROTARY_POSITIONS, ("self_attn.query", "self_attn.key")),
    (Cause.ATTENTION_CORE, ("self_attn.core", "self_attn.value")),
    (Cause.RESIDUAL, ("residual", ".", "input")),
    (Cause.ROUTER, ("mlp.gate", "mlp.gate.weights")),
    (Cause.SHARED_EXPERTS, ("mlp.shared_experts*",)),
    (Cause.EXPERTS, ("mlp.experts.*", "mlp")),
    (Cause.MLP, ("mlp.*",)),
    (Cause.LOGITS_OR_LOSS, ("lm_head", "token_losses", "shared_head.head")),
)
"""What to suspect where the error of a forward pass comes about at a point of these kinds."""

MADE = (
    (Cause.OTHER_CUT, (Made.BEGINS_LATER,)),
    (
        Cause.LABELS_MADE,
        (
            *(Made.LABELS_NOT_SHIFTED, Made.LABELS_SHIFTED_TWICE, Made.LABELS_IGNORED),
            *(Made.LABELS_AFTER_ID, Made.LABELS_AT_END, Made.LABELS),
        ),
    ),
    (
        Cause.MASK_MADE,
        (
            *(Made.MASK_SCALED, Made.MASK_LATER, Made.MASK_HIDES_ID, Made.MASK_HIDES_LABEL),
            *(Made.MASK_HIDES_BEGINNING, Made.MASK_HIDES_END, Made.MASK_COUNTS_ALL, Made.MASK),
        ),
    ),
    (Cause.DOCUMENTS_APART, (Made.POSITIONS_ANEW_AFTER, Made.POSITIONS_ANEW, Made.ATTENTION_OF_ITS_OWN)),
    (Cause.POSITIONS_MADE, (Made.POSITIONS_FROM, Made.POSITIONS, Made.ATTENTION)),
)
"""What to suspect where one side makes its batches otherwise from the same tokens, or cuts them otherwise."""
OF_DATA = (Cause.LABELS_MADE, Cause.PADDING_HIDDEN, Cause.MASK_MADE, Cause.DOCUMENTS_APART, Cause.POSITIONS_MADE)
"""Causes that a replay of batches hides: it feeds what one side made to the other, which then makes nothing itself."""

SIGNATURES = (
    Signature(
        Place.WEIGHTS,
        Cause.MAIN_PARAMETERS,
        ids=("initial_weights.stale_main_parameters",),
        source="Megatron's load_checkpoint: reload_model_params; field",
    ),
    Signature(Place.GRADIENTS, Cause.RANKS_NOT_REDUCED, ids=("rank_copies.not_reduced",), source="field; zoo"),
    *(
        Signature(place, Cause.RANKS_UPDATED_APART, ids=("rank_copies.updated_apart", "rank_copies.start_apart"))
        for place in (Place.OPTIMIZER, Place.WEIGHTS)
    ),
    Signature(Place.STATE, Cause.RANDOM_NUMBERS, sign=Sign.DRAWN),
    Signature(Place.STATE, Cause.OPTIMIZER_START, sign=Sign.OPTIMIZER_STATE, source="Megatron-LM issue 761; zoo"),
    Signature(Place.STATE, Cause.NOT_RESTORED, sign=Sign.NOT_RESTORED, source="the guide, stage 3"),
    Signature(Place.STATE, Cause.MICRO_BATCH_LEAVES, rows=Rows.LATER),
    Signature(Place.STATE, Cause.STEP_LEAVES, later=True),
    Signature(Place.FORWARD, Cause.LOSS_FUNCTION, sign=Sign.LOGITS_AGREE),
    Signature(Place.FORWARD, Cause.ACROSS_DOCUMENTS, rows=Rows.DOCUMENTS, source="Megatron-LM: --reset-attention-mask; field"),
    Signature(Place.FORWARD, Cause.SOFTMAX_SUM, sign=Sign.SHIFT, source="Megatron-LM issue 7452; zoo"),
    Signature(Place.FORWARD, Cause.STALE_WEIGHTS, rows=Rows.RANK, later=True, source="Megatron-LM issues 663 and 950; zoo"),
    Signature(Place.FORWARD, Cause.RANK_ALONE, rows=Rows.RANK),
    Signature(Place.FORWARD, Cause.ROTARY_POSITIONS, first=("rope*", "partial_rotary*")),
    Signature(Place.FORWARD, Cause.NORM_EPSILON, first=("rms_norm_eps*",)),
    Signature(Place.FORWARD, Cause.LATENT_SCALE, first=("rotary_scaling_factor*",), source="MindFormers 1.9 and 2.1; zoo"),
    Signature(Place.FORWARD, Cause.ROUTING_SETTINGS, first=ROUTING),
    Signature(Place.FORWARD, Cause.DROPOUT, points=BEHIND_DROPOUT, sign=Sign.DRAWS, source="field"),
    *(Signature(Place.FORWARD, cause, points=kinds) for cause, kinds in AT_POINTS),
    Signature(Place.FORWARD, Cause.ATTENTION_SCORES, where=Where.AFTER_THE_FIRST),
    Signature(Place.FORWARD, Cause.ATTENTION_FORGETS, where=Where.FROM_ONE_ON),
    Signature(Place.FORWARD, Cause.ROUTER, first=ROUTERS),
    Signature(Place.FORWARD, Cause.SHARED_EXPERTS, first=("*.shared_experts.*",)),
    Signature(Place.FORWARD, Cause.EXPERTS, first=("*.experts.*",)),
    Signature(Place.FORWARD, Cause.ROUTER, sign=Sign.SEVERAL_EXPERTS),
    Signature(Place.FORWARD, Cause.QUERY_AND_KEY_NORMS, first=("*.q_norm.weight", "*.k_norm.weight")),
    Signature(Place.FORWARD, Cause.LATENT_NORMS, first=("*.q_a_layernorm.weight", "*.kv_a_layernorm.weight")),
    Signature(Place.FORWARD, Cause.ATTENTION_BIASES, first=("*.self_attn.*.bias",)),
    Signature(Place.FORWARD, Cause.EMBEDDING, first=("*embed_tokens*",), source="the guide's case study; zoo"),
    Signature(Place.FORWARD, Cause.LOGITS_OR_LOSS, first=("lm_head*", "model.norm*")),
    Signature(Place.FORWARD, Cause.MLP_OR_ITS_NORM, first=("*post_attention_layernorm*",)),
    Signature(Place.FORWARD, Cause.NORM, first=("*norm.weight*",)),
    Signature(Place.FORWARD, Cause.MLP, first=("*.mlp.*",)),
    Signature(Place.FORWARD, Cause.ATTENTION, unless=Where.AFTER_THE_FIRST, first=("*.self_attn.*",)),
    Signature(Place.GRADIENTS, Cause.AUXILIARY_LOSS, first=(*BALANCING, "auxiliary")),
    Signature(Place.GRADIENTS, Cause.ROUTER_DETACHED, sign=Sign.ROUTER_LOST),
    Signature(Place.GRADIENTS, Cause.AUXILIARY_LOSS, sign=Sign.ROUTER),
    Signature(Place.GRADIENTS, Cause.PREDICTION_LOSS, first=("mtp_loss_scaling_factor", "multi_token_prediction")),
    Signature(Place.GRADIENTS, Cause.PREDICTION_LOSS, sign=Sign.PREDICTED),
    Signature(Place.GRADIENTS, Cause.NORM_COPIES, first=("*norm.weight*",), only=True),
    Signature(Place.GRADIENTS, Cause.BACKWARD_OF_POINT, points=("*",)),
    Signature(Place.GRADIENTS, Cause.BACKWARD_AT_BOUNDARY, sign=Sign.BOUNDARY),
    Signature(Place.GRADIENTS, Cause.BACKWARD_OF_LOSS, sign=Sign.FROM_THE_OUTPUT),
    Signature(Place.GRADIENTS, Cause.TIED_WEIGHT, first=("model.embed_tokens.weight",), sign=Sign.TIED_ALONE),
    Signature(Place.GRADIENTS, Cause.GRADIENT_ALONE, sign=Sign.ALONE),
    Signature(Place.GRADIENTS, Cause.SOME_GRADIENTS, sign=Sign.SCATTERED),
    Signature(Place.DATA, Cause.OTHER_ORDER, ids=("two_runs.other_order",)),
    Signature(Place.DATA, Cause.OTHER_ROWS, ids=("two_runs.other_times",)),
    Signature(Place.DATA, Cause.PADDING_HIDDEN, ids=("made.mask_hides_padding",), source="MindFormers 1.9: pad_token_id"),
    Signature(Place.DATA, Cause.MASK_MADE, ids=("made.mask_hides_documents_end",), source="Megatron-LM 0.19: --eod-mask-loss"),
    *(Signature(Place.DATA, cause, ids=tuple(made.value for made in ways)) for cause, ways in MADE),
    Signature(Place.DATA, Cause.OTHER_DATA, ids=("two_runs.other_tokens", "batches.differ_by_digest", "batches.shape", "step.of")),
    Signature(
        Place.CONFIGURATION, Cause.OTHER_DECAY, first=("weight_decay",), ids=("hyper_parameters.of",), source="the guide's case study"
    ),
    Signature(Place.CONFIGURATION, Cause.RATE_SCHEDULE, first=("learning rate",)),
    *(Signature(place, Cause.OWN_OPTIMIZER, ids=("blame.own_optimizer",)) for place in (Place.OPTIMIZER, Place.NEXT_LOSS, Place.CURVE)),
    Signature(Place.OPTIMIZER, Cause.MOMENTS_EMPTIED, ids=("after_update.moments_emptied",)),
    Signature(Place.OPTIMIZER, Cause.BIAS_OF_EXPERTS, first=("moe_router_bias_update_rate", "*e_score_correction_bias")),
    Signature(Place.OPTIMIZER, Cause.UPDATES_BY_A_FACTOR, ids=("first_updates.every_update_scaled",)),
    Signature(Place.OPTIMIZER, Cause.UPDATE_FORMULA, first=("formula", "count")),
    Signature(Place.OPTIMIZER, Cause.UPDATES_BY_A_FACTOR, first=("bias_correction",)),
    Signature(Place.OPTIMIZER, Cause.UPDATES_OF_SOME, first=("model.*", "lm_head*")),
    Signature(Place.OPTIMIZER, Cause.UPDATES_OF_SOME, ids=("after_update.no_adamw_of",)),
)
