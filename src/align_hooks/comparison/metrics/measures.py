"""Distances of two arrays, or of two recorded tensors, in fp64, in one pass over blocks that stay in a processor's cache.

Tensors are compared block by block as they are read, so that memory stays at a few megabytes: where the ranks of both sides hold a tensor
in one order, as with row-wise and data-parallel cuts, nothing is put together. Tensors with equal digests are equal to the bit, and are
read only where a norm is missing. Cosine similarity is not used: it hides error (at equal norms 0.9999 is 1.4 %)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TypeAlias

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from align_hooks.record.format.layout import Array
from align_hooks.record.format.stored_tensor import BLOCK
from align_hooks.record.read.tensors import Whole

Rounded: TypeAlias = NDArray[np.float32] | NDArray[np.float64]
ROW = 1 << 13
"""Elements squared and summed by one BLAS call; more would start threads, whose synchronisation costs more than the sum, a hundred times
more on shared cores."""


def distances(reference: Array, candidate: Array) -> tuple[float, float, float]:
    """Return ``|candidate - reference|``, ``|reference|`` and ``|candidate|``, Frobenius, of arrays of one shape; NaN for infinity."""
    ours, theirs = reference.reshape(-1), candidate.reshape(-1)
    return of_blocks((ours[at : at + BLOCK], theirs[at : at + BLOCK]) for at in range(0, reference.size, BLOCK))


def of_blocks(pairs: Iterable[tuple[Array, Array]]) -> tuple[float, float, float]:
    """Return the same norms of arrays in pairs of blocks, each of one length of at most :data:`BLOCK`."""
    sums, buffer = np.zeros(3), np.empty((2, 0))
    with np.errstate(invalid="ignore", over="ignore"):
        for ours, theirs in pairs:
            size = len(ours)
            row = min(ROW, size)
            padded = -(-size // max(row, 1)) * row
            buffer = buffer if padded <= buffer.shape[1] else np.empty((2, padded))
            buffer[0, :size], buffer[1, :size] = ours, theirs
            buffer[:, size:padded] = 0.0
            one, other = (half[:padded].reshape(-1, row) for half in buffer)
            sums[1:] += _squares(one), _squares(other)
            sums[0] += _squares(np.subtract(other, one, out=other))
    distance, ours_norm, theirs_norm = map(math.sqrt, sums.tolist())
    return distance, ours_norm, theirs_norm


def _squares(rows: Array) -> float:
    return float(np.matmul(rows[:, None, :], rows[:, :, None]).sum())


def aligned(ours: Iterator[Array], theirs: Iterator[Array]) -> Iterator[tuple[Array, Array]]:
    """Yield two arrays of one size, in blocks of any sizes, as pairs of equally long blocks."""
    empty = np.empty(0, np.float32)
    one = other = empty
    while True:
        one, other = (left if len(left) else next(blocks, empty) for left, blocks in ((one, ours), (other, theirs)))
        if not (size := min(len(one), len(other))):
            return
        yield one[:size], other[:size]
        one, other = one[size:], other[size:]


def root_mean_square(values: Array) -> float:
    """Return the root mean square, fp64."""
    return math.sqrt(float(np.square(values).mean()))


def rounded_to(array: Rounded, lacking: int | None) -> Rounded:
    """Round fp32 numbers to a mantissa that lacks bits, to nearest; None leaves an array as it is."""
    if not lacking:
        return array if lacking is None else array.astype(np.float32)
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    half = np.uint32((1 << (lacking - 1)) - 1) + ((bits >> np.uint32(lacking)) & np.uint32(1))
    return ((bits + half) & ~np.uint32((1 << lacking) - 1)).view(np.float32)


def relative_difference(reference: float, candidate: float) -> float:
    """Return ``|candidate - reference| / |reference|`` of two numbers."""
    return ratio(abs(candidate - reference), abs(reference))


def ratio(distance: float, size: float) -> float:
    """Return distance over size: NaN where either is not finite, 0 for 0 over 0, infinity for anything else over 0."""
    if not (math.isfinite(distance) and math.isfinite(size)):
        return math.nan
    if size == 0.0:
        return 0.0 if distance == 0.0 else math.inf
    return distance / size


# ---- recorded tensors


class Moved(Struct, frozen=True):
    """The difference of two states of a tensor."""

    before: Whole
    after: Whole

    @property
    def bytes(self) -> int:
        """Return the size of both states."""
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
        """Return the difference in blocks."""
        if self.before.order != self.after.order:
            return iter([self.read().reshape(-1)])
        return (after - before for before, after in aligned(self.before.blocks(), self.after.blocks()))

    def read(self) -> Array:
        """Return the difference."""
        return np.subtract(self.after.read(), self.before.read())

    def refuse_gaps(self) -> None:
        """Raise RecordError unless every element of both is recorded once."""
        self.before.refuse_gaps()
        self.after.refuse_gaps()


Tensor: TypeAlias = Whole | Moved


class Task(Struct, frozen=True):
    """Two tensors of one shape to measure."""

    reference: Tensor
    candidate: Tensor
    norm: float | None = None
    """The reference's recorded norm; None where not on record."""

    @property
    def bytes(self) -> int:
        """Return the size of both tensors."""
        return self.reference.bytes + self.candidate.bytes

    @property
    def equal_by_digest(self) -> bool:
        """Return whether the records' digests are equal."""
        return self.reference.digests is not None and self.reference.digests == self.candidate.digests


class Measured(Struct, frozen=True):
    """Frobenius norms of the difference, of the reference and of the candidate."""

    difference: float
    reference: float
    candidate: float
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
