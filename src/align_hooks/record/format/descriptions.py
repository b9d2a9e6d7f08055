"""The types of the descriptions of a step's files: of its batch, its experts, its activations and its optimizer's state."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

from align_hooks.record.format import layout
from align_hooks.record.format.files import QUOTED
from align_hooks.record.format.schema import Count

Size: TypeAlias = Annotated[int, Meta(ge=0)]
Bounds: TypeAlias = Annotated[list[int], Meta(min_length=2, max_length=2)]
Slices: TypeAlias = Annotated[list[Bounds], Meta(min_length=1)]
"""Positions [start, stop) of a sequence that a rank has."""


def _refuse_no_positions(slices: Slices | None) -> None:
    """Raise ValueError for slices outside any sequence."""
    if not all(0 <= start < stop < 1 << 31 for start, stop in slices or ()):
        raise ValueError("slices: they are no positions")


class StoredArray(Struct, frozen=True):
    """One array of a batch, with the digests of its numbers (``sha256``) and of its ``file``."""

    dtype: str
    shape: tuple[Size, ...]
    sha256: str
    file: str


class JoinedFirst(Struct, frozen=True):
    """The cut of a batch that the rows of all data-parallel ranks form together."""

    micro_batches: Annotated[int, Meta(ge=1)]
    whole: bool
    """Whether each rank received the full batch."""


class Description(Struct, frozen=True, kw_only=True):
    """``batch.json``, of one rank's batch."""

    rows: tuple[Size, ...]
    """Rows of each micro-batch."""
    arrays: dict[str, StoredArray]
    attention_mask: str | None
    ids: tuple[int, int] | None
    """Lowest and highest id that counts."""
    slices: Slices | None = None
    """Positions of a context-parallel rank; None for all."""
    joined_first: JoinedFirst | None = None
    experts: dict[str, tuple[Count, ...]] = {}
    """Name of a layer's router to the number of this rank's tokens on each expert."""

    def __post_init__(self) -> None:
        if strange := self.arrays.keys() - set(layout.BATCH_ARRAYS):
            raise ValueError(f"arrays: {min(strange)[:QUOTED]} is no array of a batch")
        for name, array in self.arrays.items():
            if len(array.shape) != (4 if name == "attention_mask" else 2):
                raise ValueError(f"arrays.{name}: {array.shape} is no shape of it")
        _refuse_no_positions(self.slices)


class Routed(Struct, frozen=True, kw_only=True):
    """The header of ``routing.safetensors``: the rank's rows of each micro-batch, and its positions."""

    rows: tuple[Size, ...] = ()
    slices: Slices | None = None

    def __post_init__(self) -> None:
        _refuse_no_positions(self.slices)


class Extent(Struct, frozen=True):
    """A rank's part of a point's value."""

    width: Size
    columns: Bounds
    """Columns [start, stop) of the width."""
    slices: Slices | None = None
    """Positions of the sequence; None for all."""
    counted: bool = True
    """False for a copy of another rank's part."""

    def __post_init__(self) -> None:
        _refuse_no_positions(self.slices)
        if not 0 <= self.columns[0] <= self.columns[1] <= self.width < 1 << 40:
            raise ValueError("columns: they are no part of the width")


class ActivationHeader(Struct, frozen=True, kw_only=True):
    """The header of ``activations/sums.safetensors``."""

    rows: tuple[Size, ...] = ()
    """This rank's rows of each micro-batch."""
    length: Annotated[int, Meta(ge=0, lt=1 << 31)] = 0
    """Positions of a full sequence."""
    extents: tuple[Extent, ...] = ()
    extent_of: dict[str, int] = {}
    """Point to an index in ``extents``."""
    scale: Annotated[float, Meta(gt=0)] = 1.0
    """The factor of gradients."""
    by_tokens: bool = False
    """Whether gradients are also divided by the step's valid tokens of all ranks."""
    unseen: tuple[str, ...] = ()
    """Requested points of this rank that no hook observed."""


class OptimizerStateFacts(Struct, frozen=True):
    """``state.json``: the optimizer's count of updates, and moment to dtype where known."""

    updates: Annotated[int, Meta(ge=0, lt=2**53)]
    dtypes: dict[str, str] = {}
