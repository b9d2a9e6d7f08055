"""The positions of the sequence that a context-parallel rank was given.

Megatron cuts the sequence into twice as many chunks as there are ranks. It gives each rank one chunk from the front and its mirror
image from the back, so that causal attention costs all ranks alike (``get_batch_on_this_cp_rank``). Other frameworks cut the sequence in a
row. Position ids show the cut where they are those of the whole sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from align_hooks.errors import RecordError
from align_hooks.record.format.layout import Array

Slices = list[list[int]]


def zigzag(rank: int, ranks: int, length: int) -> Slices:
    """Positions [start, stop) that Megatron gives to a context-parallel rank, in their order on that rank."""
    chunk = length // (2 * ranks)
    return [[index * chunk, (index + 1) * chunk] for index in (rank, 2 * ranks - 1 - rank)]


def slices_of(positions: Array, length: int) -> Slices | None:
    """The slices that position ids ``[rows, local]`` show; None where rows differ or show no part of a sequence of ``length``."""
    if not len(positions) or (positions != positions[0]).any():
        return None
    row = positions[0]
    breaks = (np.flatnonzero(np.diff(row) != 1) + 1).tolist()
    slices = [[int(part[0]), int(part[-1]) + 1] for part in np.split(row, breaks) if len(part)]
    ordered = sorted(slices)
    apart = all(left[1] <= right[0] for left, right in pairwise(ordered))
    return slices if slices and apart and ordered[0][0] >= 0 and ordered[-1][1] <= length else None


def in_order(parts: Sequence[Array], slices: Sequence[Slices], where: str) -> Array:
    """``[rows, sequence]``, or a mask ``[rows, 1, sequence, keys]``, from the parts of all context-parallel ranks. Raises RecordError,
    which begins with ``where``, unless the slices cover each position of the sequence once."""
    axis = 2 if parts[0].ndim == 4 else 1
    length = sum(part.shape[axis] for part in parts)
    lengths = [sum(stop - start for start, stop in of_rank) for of_rank in slices]
    fits = lengths == [part.shape[axis] for part in parts]  # checked before memory is taken for the positions
    order = np.concatenate([np.arange(*bounds) for of_rank in slices for bounds in of_rank]) if fits else np.zeros(0, int)
    if not fits or not np.array_equal(np.sort(order), np.arange(length)):
        raise RecordError(f"{where}: the slices of the context-parallel ranks do not cover {length} positions once each; record every rank")
    return np.concatenate(list(parts), axis=axis).take(np.argsort(order), axis=axis)


def part_of(slices: Slices, index: int, parts: int) -> Slices:
    """The ``index``-th of so many equal parts of the positions in ``slices``, as slices; sequence parallelism cuts what a rank has so."""
    length = sum(stop - start for start, stop in slices) // parts
    first, last, part, before = index * length, (index + 1) * length, [], 0
    for start, stop in slices:
        begin, end = max(start, start + first - before), min(stop, start + last - before)
        part += [[begin, end]] if begin < end else []
        before += stop - start
    return part


def positions_of(slices: Slices) -> Array:
    """The positions in ``slices``, in their order, int64."""
    return np.concatenate([np.arange(*bounds) for bounds in slices])
