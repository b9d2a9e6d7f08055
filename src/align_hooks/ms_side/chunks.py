"""Which numbers of a gradient are summed together, and the piece that each sum belongs to: known before the graph is compiled.

A gradient is looked at as a matrix whose rows are chunks: as many elements as divide its rows and the places where its pieces begin. So no
piece is cut out of it, and a chunk belongs to one piece. Imports no framework.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from align_hooks.names.blocks import Array, Blocks, Stack
from align_hooks.names.fused import Fused
from align_hooks.record.norms import CHUNK

PART = 64
"""Elements of a chunk that are summed first: MindSpore's CPU adds one by one, and 1,024 equal numbers would be 5e-7 off."""
LARGE = 1 << 20
"""Elements of a gradient that is not joined with others, which would be a copy of it."""


def chunks_of(blocks: Blocks | Stack, shape: Sequence[int]) -> tuple[int, Array]:
    """The elements of a chunk of a gradient of ``shape``, and the piece of each chunk, in the gradient's order."""
    view, ranges = blocks.filled.view(shape)
    if view[2] == 1:  # a vector, whose pieces may begin at any element
        view = (1, 1, view[0] * view[1])
        starts = np.cumsum([0, *(blocks.filled.rows * getattr(blocks, "repeats", 1))]).tolist()
        ranges = [((0, 1), (0, 1), bounds) for bounds in pairwise(starts)]
        pieces = len(blocks.filled.rows)
    else:
        pieces = len(ranges)
    common = math.gcd(view[2], *(bound for *_, columns in ranges for bound in columns))
    width = largest_part(common, CHUNK)
    owners = np.empty((view[0], view[1], view[2] // width), np.int32)
    for index, (first, second, (start, stop)) in enumerate(ranges):
        owners[first[0] : first[1], second[0] : second[1], start // width : stop // width] = index % pieces
    return width, owners.reshape(-1)


def largest_part(size: int, limit: int) -> int:
    """The largest number up to ``limit`` that divides ``size``."""
    return max(part for part in range(1, min(size, limit) + 1) if size % part == 0)


@dataclass(frozen=True, slots=True)
class NormPlan:
    """``groups`` are the gradients that are taken in one call, by their indices, and the elements of their chunks. ``owners`` are the index
    in ``names`` of the piece of each chunk, group after group."""

    groups: tuple[tuple[tuple[int, ...], int], ...]
    owners: Array
    names: tuple[str, ...]

    @classmethod
    def of(cls, fused: Sequence[Fused], shapes: Sequence[tuple[int, ...]]) -> NormPlan:
        """The plan for gradients of these pieces and shapes."""
        groups: list[tuple[list[int], int]] = []
        small: dict[int, list[int]] = {}
        owned: dict[int, Array] = {}
        names: list[str] = []
        for index, (each, shape) in enumerate(zip(fused, shapes, strict=True)):
            width, owners = chunks_of(each.blocks, shape)
            owned[index] = owners + len(names)
            names += each.pieces
            if width not in small and math.prod(shape) < LARGE:
                small[width] = []
                groups.append((small[width], width))
            if math.prod(shape) < LARGE:
                small[width].append(index)
            else:
                groups.append(([index], width))
        order = [index for members, _ in groups for index in members]
        whole = np.concatenate([owned[index] for index in order])
        return cls(tuple((tuple(members), width) for members, width in groups), whole, tuple(names))

    def named(self, sums: Array) -> dict[str, float]:
        """Canonical name to squared sum, fp64, from the sums of chunks."""
        squared = np.bincount(self.owners, sums.astype(np.float64), len(self.names))
        return dict(zip(self.names, squared.tolist(), strict=True))
