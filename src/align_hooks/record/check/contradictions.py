"""Facts that a record states twice and differently."""

from __future__ import annotations

import math
from enum import Enum

from msgspec import Struct

from align_hooks.messages import Message, message


class ContradictionKind(Enum):
    """A fact that a record states twice; the value is a message's id."""

    RANKS_OF_NORM = "self_check.ranks_of_norm"
    NORM_TAKEN_AGAIN = "self_check.norm_taken_again"
    NORM_OF_RANKS = "self_check.norm_of_ranks"
    ELEMENTS = "self_check.elements"
    LEFT_OUT = "self_check.left_out"
    COUNTED_ALONE = "self_check.counted_alone"
    RANK_LEFT_OUT = "self_check.rank_left_out"
    COPIES_COUNTED = "self_check.copies_counted"
    HELD_TWICE = "self_check.held_twice"
    GRADIENT_COPIES = "self_check.gradient_copies"
    WEIGHT_COPIES = "self_check.weight_copies"
    COMPUTED_COPIES = "self_check.computed_copies"
    BATCH = "self_check.batch"
    GRAD_NORM = "self_check.grad_norm"
    LOSS_SCALE = "self_check.loss_scale"
    SKIPPED = "self_check.skipped"
    LOSS = "self_check.loss"
    COUNT = "self_check.count"
    WEIGHTS_OF_TOKENS = "self_check.weights_of_tokens"


OF_LOSS = (ContradictionKind.COUNT, ContradictionKind.WEIGHTS_OF_TOKENS, ContradictionKind.LOSS)
"""Effects of a script's own loss function, causes before their consequences."""


class Witness(Enum):
    """The source of a claim; the value is a message's id. The weight of tokens has no number: its id ends with the value."""

    FRAMEWORK = "self_check.by_framework"
    RECORD = "self_check.recorded"
    SAME_GRADIENTS = "self_check.by_same_gradients"
    COUNTED_GRADIENTS = "self_check.by_counted_gradients"
    RECORDED_NORMS = "self_check.by_recorded_norms"
    FIRST_RANK = "self_check.on_first_rank"
    LATER_RANK = "self_check.on_later_rank"
    COPY = "self_check.copy_on_rank"
    OWN = "self_check.own_on_rank"
    ARRAY = "self_check.array_on_rank"
    OTHER_ARRAY = "self_check.other_array_on_rank"
    RANK = "self_check.on_rank"
    RUN = "self_check.by_run"
    TOKEN_LOSSES = "self_check.by_token_losses"
    LOSS_FUNCTION = "self_check.by_loss_function"
    MASK = "self_check.by_mask"
    SETTINGS = "by_settings"
    DERIVATIVE = "in_derivative"


class Weighing(Enum):
    """The weight of tokens in a loss: equal for all tokens, equal for all micro-batches, or neither."""

    ALIKE = "alike"
    BY_MICRO_BATCH = "by_micro_batch"
    NEITHER = "neither"


class Statement(Struct, frozen=True):
    """One of the two claims of a contradiction."""

    witness: Witness
    value: float | Weighing | None = None
    """The claimed value; None where there is no number to show."""
    rank: int | None = None
    """The rank that makes the claim; None for a claim of no rank."""

    @property
    def words(self) -> Message:
        """The claim as a message."""
        if isinstance(self.value, Weighing):
            return message(f"self_check.{self.value.value}_{self.witness.value}")
        return message(self.witness.value, **_without_none(value=self.value, rank=self.rank))


class Contradiction(Struct, frozen=True):
    """A step's fact that a record states twice and differently."""

    step: int
    kind: ContradictionKind
    first: Statement
    second: Statement
    name: str = ""
    """The tensor or the array; empty for neither."""
    rank: int | None = None
    """The rank that differs from the others; None where none is singled out."""
    place: int | None = None
    """The data-parallel rank with another batch; None for other kinds."""
    count: int | None = None
    """The number of ranks that differ, where their ranks are unknown; else None."""

    @property
    def is_of_loss(self) -> bool:
        """Whether a loss function of the script's own causes the contradiction."""
        # no loss function counts NaN or infinitely many tokens
        finite = all(math.isfinite(claim.value) for claim in (self.first, self.second) if isinstance(claim.value, float))
        return self.kind is ContradictionKind.LOSS or (self.kind in OF_LOSS and finite)

    @property
    def subject(self) -> Message:
        """The fact as a message."""
        return message(self.kind.value, **_without_none(name=self.name or None, rank=self.rank, place=self.place, count=self.count))


def _without_none(**arguments: str | float | None) -> dict[str, str | float]:
    return {name: value for name, value in arguments.items() if value is not None}
