"""How far two arrays are apart, in fp64, in one pass over blocks that stay in a processor's cache.

Cosine similarity is not used: it hides error (at equal norms 0.9999 is 1.4 %).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import numpy as np

from align_hooks.record.format.layout import Array
from align_hooks.record.read.stored_tensor import BLOCK

ROW = 1 << 13
"""Elements whose squares are summed by one call of a linear algebra library. Of more it would use threads, whose meeting costs more than
the sum, and a hundred times more where processes share a machine's cores."""


def distances(reference: Array, candidate: Array) -> tuple[float, float, float]:
    """``|candidate - reference|``, ``|reference|`` and ``|candidate|``, Frobenius, of arrays of one shape; NaN where NaN or infinity is."""
    ours, theirs = reference.reshape(-1), candidate.reshape(-1)
    return of_blocks((ours[at : at + BLOCK], theirs[at : at + BLOCK]) for at in range(0, reference.size, BLOCK))


def of_blocks(pairs: Iterable[tuple[Array, Array]]) -> tuple[float, float, float]:
    """The same of two arrays that come in blocks, each pair of one length of at most :data:`BLOCK`."""
    sums, room = np.zeros(3), np.empty((2, 0))
    with np.errstate(invalid="ignore", over="ignore"):
        for ours, theirs in pairs:
            size = len(ours)
            row = min(ROW, size)
            whole = -(-size // max(row, 1)) * row
            room = room if whole <= room.shape[1] else np.empty((2, whole))
            room[0, :size], room[1, :size] = ours, theirs
            room[:, size:whole] = 0.0
            one, other = (half[:whole].reshape(-1, row) for half in room)
            sums[1:] += _squares(one), _squares(other)
            sums[0] += _squares(np.subtract(other, one, out=other))
    apart, ours_norm, theirs_norm = (math.sqrt(total) for total in sums.tolist())
    return apart, ours_norm, theirs_norm


def _squares(rows: Array) -> float:
    return float(np.matmul(rows[:, None, :], rows[:, :, None]).sum())


def aligned(ours: Iterator[Array], theirs: Iterator[Array]) -> Iterator[tuple[Array, Array]]:
    """Two arrays of one size that come in blocks of any sizes, as pairs of blocks of one size."""
    empty = np.empty(0, np.float32)
    one = other = empty
    while True:
        one, other = (left if len(left) else next(blocks, empty) for left, blocks in ((one, ours), (other, theirs)))
        if not (size := min(len(one), len(other))):
            return
        yield one[:size], other[:size]
        one, other = one[size:], other[size:]


def root_mean_square(values: Array) -> float:
    """The root mean square of some numbers, fp64."""
    return math.sqrt(float(np.square(values).mean()))


def relative_difference(reference: float, candidate: float) -> float:
    """``|candidate - reference| / |reference|`` of two numbers."""
    return ratio(abs(candidate - reference), abs(reference))


def ratio(distance: float, size: float) -> float:
    """Distance over size: NaN where either is not finite, 0 for nothing over nothing, infinity for something over nothing."""
    if not (math.isfinite(distance) and math.isfinite(size)):
        return math.nan
    if size == 0.0:
        return 0.0 if distance == 0.0 else math.inf
    return distance / size
