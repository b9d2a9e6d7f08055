"""The causes that differences are known to come from, as a table in which :mod:`.blame` looks a comparison up. A new cause is a row of
``signatures.txt``, a member of :class:`Cause`, and its words in the catalogues."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from align_hooks.comparison.token_losses import Rows, Where
from align_hooks.comparison.verdict import Place
from align_hooks.data_file import columns, sections
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
    UPDATE_COUNT = "update_count"
    CLIPPED_EARLIER = "clipped_earlier"
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
OF_DATA = (Cause.LABELS_MADE, Cause.PADDING_HIDDEN, Cause.MASK_MADE, Cause.DOCUMENTS_APART, Cause.POSITIONS_MADE)
"""Causes that a replay of batches hides: it feeds what one side made to the other, which then makes nothing itself."""


def _signature(row: str) -> Signature:
    """Return a row of the file."""
    place, _, rest = row.partition(": ")
    conditions, _, source = rest.partition(" by ")
    cause, *words = conditions.split()
    given = columns(words, ("where", "unless", "first", "ids", "only", "rows", "later", "sign", "points"))
    return Signature(
        Place[place],
        Cause[cause],
        where=next((Where[name] for name in given["where"]), None),
        unless=next((Where[name] for name in given["unless"]), None),
        first=ROUTERS if given["first"] == ["ROUTERS"] else tuple(given["first"]),
        ids=tuple(given["ids"]),
        only="only" in words,
        rows=next((Rows[name] for name in given["rows"]), None),
        later=True if "later" in words else None,
        sign=next((Sign[name] for name in given["sign"]), None),
        points=tuple(given["points"]),
        source=source or "zoo",
    )


SIGNATURES = tuple(map(_signature, sections(Path(__file__).parent / "signatures.txt")["signatures"]))
