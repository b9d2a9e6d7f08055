"""Two recorded tensors, compared block by block as they are read: memory stays at a few megabytes, whatever their size.

Where both sides' ranks hold a tensor in an order that is the same, as all row-wise and data-parallel cuts do, nothing is put together.
Where the digests that both records keep are equal, so are the tensors, to the bit, and nothing is read that is known without.
"""

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
    """What stands between two states of one tensor."""

    before: Whole
    after: Whole

    @property
    def bytes(self) -> int:
        """How much there is to read."""
        return self.before.bytes + self.after.bytes

    @property
    def order(self) -> object:
        """The order of both states; one of its own where they have two."""
        return self.before.order if self.before.order == self.after.order else self

    @property
    def digests(self) -> object | None:
        """Those of both states."""
        both = self.before.digests, self.after.digests
        return None if None in both else both

    def blocks(self) -> Iterator[Array]:
        """The differences of both, in blocks."""
        if self.before.order != self.after.order:
            yield self.read().reshape(-1)
            return
        for before, after in aligned(self.before.blocks(), self.after.blocks()):
            yield after - before

    def read(self) -> Array:
        """The difference of both."""
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
    """Two tensors of one shape to measure; ``norm`` is the reference's, where it is on record."""

    reference: Tensor
    candidate: Tensor
    norm: float | None = None

    @property
    def bytes(self) -> int:
        """How much there is to read."""
        return self.reference.bytes + self.candidate.bytes

    @property
    def equal_by_digest(self) -> bool:
        """Whether the two are equal to the bit, as both records' digests say."""
        return self.reference.digests is not None and self.reference.digests == self.candidate.digests


@dataclass(frozen=True, slots=True)
class Measured:
    """``|candidate - reference|``, ``|reference|`` and ``|candidate|``, Frobenius. ``by_digest``: they are equal by their digests."""

    apart: float
    reference: float
    candidate: float
    by_digest: bool = False


def measure(task: Task) -> Measured:
    """Measure two tensors; raises RecordError where what is read is not as it was recorded."""
    ours, theirs = task.reference, task.candidate
    if task.equal_by_digest:
        ours.refuse_gaps()
        norm = norm_of(ours) if task.norm is None or not math.isfinite(task.norm) else task.norm
        return Measured(0.0 if math.isfinite(norm) else math.nan, norm, norm, by_digest=True)
    if ours.order == theirs.order:
        return Measured(*of_blocks(aligned(ours.blocks(), theirs.blocks())))
    return Measured(*distances(ours.read(), theirs.read()))


def norm_of(tensor: Tensor) -> float:
    """Its norm, in fp64."""
    return of_blocks((block, np.broadcast_to(np.float32(0), block.shape)) for block in tensor.blocks())[1]
