"""The types of a record's rows: scalars, norms and sketches, one line a step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

from align_hooks.record.format.schema import Count, Json, Rate, Step
from align_hooks.record.format.sketch import BYTES, as_sums

RankNumber: TypeAlias = Annotated[int, Meta(ge=0, lt=2**31)]


class ScalarRow(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One step's scalars of a job; None is unknown."""

    step: Step
    loss: float | None
    objective_loss: float | None
    valid_tokens: Count | float | None
    consumed_samples: Json = None
    grad_norm: float | None
    clip_coefficient: float | None
    learning_rate: Rate | None
    loss_scale: float | None = None
    skipped: bool | None
    seconds: float | None = None
    terms: dict[str, float] | None = None
    """The other terms of the loss (:mod:`.terms`) times their coefficients; part of a job's ``objective_loss``."""

    def __post_init__(self) -> None:
        if self.learning_rate == []:
            raise ValueError("learning_rate is of no group")


class RankRow(ScalarRow, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """One line of a rank's scalars, without its digest."""

    whole: bool = False
    """Whether the loss is that of all ranks."""
    squared: float | None = None
    """The rank's part of the global norm's square."""
    micro_batches: tuple[tuple[float | None, float | None, float | None], ...] = ()
    """Loss, tokens (None where the loss is a mean) and part of the objective of each; a rank's share of the tokens with
    ``mean_over_sequence``."""
    random: tuple[dict[str, str], ...] = ()
    """Digests of random generators, see :mod:`.random_states`."""
    state: dict[str, float | str] = {}
    """Name to number or digest, see :mod:`.state`."""
    token_digest: str = ""
    """The digest of the rank's tokens, see :mod:`.token_digest`."""
    unrecorded_inputs: tuple[str, ...] = ()
    """Names of the model's inputs besides the batch."""
    unseen: tuple[str, ...] = ()
    """Words of :mod:`.missing_batch`."""
    files: Json = None
    """Step and name of each file or row that this row lists, to its digest; checked by :mod:`.read.committed`."""
    rank: Json = None
    """The rank, checked by :mod:`.read.rows`."""
    segment: str
    """The id of the start of the job that wrote the row."""

    def of_job(self) -> ScalarRow:
        """Return the row without the rank's own fields."""
        return ScalarRow(**{name: getattr(self, name) for name in ScalarRow.__struct_fields__})


class Norm(Struct, frozen=True):
    """A global norm by the framework."""

    norm: float
    same: float | None = None
    """This rank's part of the square, summed as the framework does."""
    exact: float | None = None
    """This rank's part of the square, summed by the definition of :mod:`.norms`."""
    first: RankNumber = 0
    """The lowest rank of the norm."""
    ranks: RankNumber = 1
    """The number of ranks of the norm."""

    def __post_init__(self) -> None:
        _refuse_negative({"norm": self.norm, "same": self.same or 0.0, "exact": self.exact or 0.0})


class NormRow(Struct, frozen=True):
    """A row of local norms, with the framework's own norms."""

    squared: dict[str, float]
    """Canonical name to squared sum."""
    taken: tuple[Norm, ...] = ()
    weights: dict[str, float] = {}
    """Canonical name to squared sum of the weights that the step computed with; empty where no other rank has copies."""

    def __post_init__(self) -> None:
        _refuse_negative(self.squared)
        _refuse_negative(self.weights)


class SketchRow(Struct, frozen=True):
    """A row of sketches: canonical name to squared sum and signed sums, as they are stored, of a definition of :mod:`.sketch`."""

    sums: dict[str, Annotated[bytes, Meta(min_length=BYTES, max_length=BYTES)]]
    definition: Annotated[int, Meta(ge=1)]

    def __post_init__(self) -> None:
        _refuse_negative({name: float(as_sums(stored)[0]) for name, stored in self.sums.items()})


LARGEST = 1e300
"""Finite squared sums are smaller, so that a sum of them is finite."""


def _refuse_negative(squares: Mapping[str, float]) -> None:
    """Raise ValueError for a negative square, and for a finite one of :data:`LARGEST` or more."""
    for name, square in squares.items():
        if square < 0 or LARGEST <= square < math.inf:
            raise ValueError(f"{name} is {square:g}, which is no squared sum")
