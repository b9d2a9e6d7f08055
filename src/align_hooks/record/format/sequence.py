"""Positions of the sequence on a context-parallel rank.

Megatron cuts the sequence into twice as many chunks as there are ranks, and gives each rank one chunk from the
front and its mirror image from the back: causal attention then costs all ranks the same
(``get_batch_on_this_cp_rank``). Other frameworks give each rank contiguous positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from align_hooks.errors import RecordError
from align_hooks.record.format.layout import Array

Slices = list[list[int]]


def zigzag(rank: int, ranks: int, length: int) -> Slices:
    """Return the positions [start, stop) that Megatron gives to a context-parallel rank, in that rank's order."""
    chunk = length // (2 * ranks)
    return [[index * chunk, (index + 1) * chunk] for index in (rank, 2 * ranks - 1 - rank)]


def slices_of(positions: Array, length: int) -> Slices | None:
    """Return the slices in position ids ``[rows, local]``; None where rows differ or leave a sequence of ``length``."""
    if not len(positions) or (positions != positions[0]).any():
        return None
    row = positions[0]
    breaks = (np.flatnonzero(np.diff(row) != 1) + 1).tolist()
    slices = [[int(part[0]), int(part[-1]) + 1] for part in np.split(row, breaks) if len(part)]
    ordered = sorted(slices)
    disjoint = all(left[1] <= right[0] for left, right in pairwise(ordered))
    return slices if slices and disjoint and ordered[0][0] >= 0 and ordered[-1][1] <= length else None


def in_order(parts: Sequence[Array], slices: Sequence[Slices], where: str) -> Array:
    """Join the parts of all context-parallel ranks to ``[rows, sequence]`` or a mask ``[rows, 1, sequence, keys]``.

    Raises RecordError, which begins with ``where``, unless the slices cover each position once.
    """
    axis = 2 if parts[0].ndim == 4 else 1
    length = sum(part.shape[axis] for part in parts)
    lengths = [sum(stop - start for start, stop in of_rank) for of_rank in slices]
    fits = lengths == [part.shape[axis] for part in parts]  # checked before memory is taken for the positions
    order = np.concatenate([np.arange(*bounds) for of_rank in slices for bounds in of_rank]) if fits else np.zeros(0, int)
    if not fits or not np.array_equal(np.sort(order), np.arange(length)):
        raise RecordError(f"{where}: the slices of the context-parallel ranks do not cover {length} positions once each; record every rank")
    return np.concatenate(list(parts), axis=axis).take(np.argsort(order), axis=axis)


def part_of(slices: Slices, index: int, parts: int) -> Slices:
    """Return the ``index``-th of equal ``parts`` of the positions, as slices: the cut of sequence parallelism."""
    length = sum(stop - start for start, stop in slices) // parts
    first, last, part, before = index * length, (index + 1) * length, [], 0
    for start, stop in slices:
        begin, end = max(start, start + first - before), min(stop, start + last - before)
        part += [[begin, end]] if begin < end else []
        before += stop - start
    return part


def positions_of(slices: Slices) -> Array:
    """Return the positions in ``slices``, in their order, int64."""
    return np.concatenate([np.arange(*bounds) for bounds in slices])
