"""Compare two recorded tensors block by block as they are read, so that memory stays at a few megabytes.

Where the ranks of both sides hold a tensor in one order, as with row-wise and data-parallel cuts, nothing is put together. Tensors with
equal digests are equal to the bit, and are read only where a norm is missing."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from align_hooks.comparison.metrics.measures import aligned, distances, of_blocks
from align_hooks.record.format.layout import Array
from align_hooks.record.read.tensors import Whole


@dataclass(frozen=True)
class Moved:
    """The difference of two states of a tensor."""

    before: Whole
    after: Whole

    @property
    def bytes(self) -> int:
        """Return how much there is to read."""
        return self.before.bytes + self.after.bytes

    @property
    def order(self) -> object:
        """Return the order of both states; this object where they have two orders."""
        return self.before.order if self.before.order == self.after.order else self

    @property
    def digests(self) -> object | None:
        """Return the digests of both states; None where one has none."""
        both = self.before.digests, self.after.digests
        return None if None in both else both

    def blocks(self) -> Iterator[Array]:
        """Yield the difference in blocks."""
        if self.before.order != self.after.order:
            yield self.read().reshape(-1)
            return
        for before, after in aligned(self.before.blocks(), self.after.blocks()):
            yield after - before

    def read(self) -> Array:
        """Return the difference."""
        moved: Array = self.after.read() - self.before.read()
        return moved

    def refuse_gaps(self) -> None:
        """Raise RecordError unless every element of both is recorded once."""
        self.before.refuse_gaps()
        self.after.refuse_gaps()


Tensor: TypeAlias = Whole | Moved
"""What is compared."""


@dataclass(frozen=True, slots=True)
class Task:
    """Two tensors of one shape to measure."""

    reference: Tensor
    candidate: Tensor
    norm: float | None = None
    """The reference's recorded norm; None where there is none."""

    @property
    def bytes(self) -> int:
        """Return how much there is to read."""
        return self.reference.bytes + self.candidate.bytes

    @property
    def equal_by_digest(self) -> bool:
        """Return whether the records' digests are equal."""
        return self.reference.digests is not None and self.reference.digests == self.candidate.digests


@dataclass(frozen=True, slots=True)
class Measured:
    """Frobenius norms."""

    apart: float
    """``|candidate - reference|``"""
    reference: float
    """``|reference|``"""
    candidate: float
    """``|candidate|``"""
    by_digest: bool = False
    """Whether both are equal by their digests."""


def measure(task: Task) -> Measured:
    """Measure two tensors; raise RecordError where one is not as it was recorded."""
    ours, theirs = task.reference, task.candidate
    if task.equal_by_digest:
        ours.refuse_gaps()
        norm = norm_of(ours) if task.norm is None or not math.isfinite(task.norm) else task.norm
        return Measured(0.0 if math.isfinite(norm) else math.nan, norm, norm, by_digest=True)
    if ours.order == theirs.order:
        return Measured(*of_blocks(aligned(ours.blocks(), theirs.blocks())))
    return Measured(*distances(ours.read(), theirs.read()))


def norm_of(tensor: Tensor) -> float:
    """Return the Frobenius norm, fp64."""
    return of_blocks((block, np.broadcast_to(np.float32(0), block.shape)) for block in tensor.blocks())[1]
