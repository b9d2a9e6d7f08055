"""Distances of two arrays, in fp64, in one pass over blocks that stay in a processor's cache.

Cosine similarity is not used: it hides error (at equal norms 0.9999 is 1.4 %)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import numpy as np

from align_hooks.record.format.layout import Array
from align_hooks.record.format.stored_tensor import BLOCK

ROW = 1 << 13
"""Elements squared and summed by one BLAS call; more would start threads, whose synchronisation costs more than the sum, a hundred times
more on shared cores."""


def distances(reference: Array, candidate: Array) -> tuple[float, float, float]:
    """Return ``|candidate - reference|``, ``|reference|`` and ``|candidate|``, Frobenius, of arrays of one shape; NaN where NaN or infinity
    is."""
    ours, theirs = reference.reshape(-1), candidate.reshape(-1)
    return of_blocks((ours[at : at + BLOCK], theirs[at : at + BLOCK]) for at in range(0, reference.size, BLOCK))


def of_blocks(pairs: Iterable[tuple[Array, Array]]) -> tuple[float, float, float]:
    """Return the same of two arrays in blocks, each pair of one length of at most :data:`BLOCK`."""
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
