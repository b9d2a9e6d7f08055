"""The chunks of gradients whose squares are summed together, and the piece of each chunk, known before the graph is compiled.

A gradient is viewed as a matrix whose rows are chunks, of a size that divides its rows and the offsets of its pieces. So a chunk belongs to
one piece, and no piece is cut out. Imports no framework.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from align_hooks.names.blocks import Array, Blocks, Stack
from align_hooks.names.fused import Fused
from align_hooks.record.format.norms import CHUNK

LARGE = 1 << 20
"""Elements from which a gradient is not joined with others, which would copy it."""


def chunks_of(blocks: Blocks | Stack, shape: Sequence[int]) -> tuple[int, Array]:
    """Return the size of a gradient's chunks, and the piece of each chunk, in the gradient's order."""
    view, ranges = blocks.filled.view(shape)
    common = math.gcd(view[2], *(bound for *_, columns in ranges for bound in columns))
    width = largest_part(common, CHUNK)
    owners = np.empty((view[0], view[1], view[2] // width), np.int32)
    for index, (first, second, (start, stop)) in enumerate(ranges):
        owners[slice(*first), slice(*second), start // width : stop // width] = index
    whole = owners.reshape(-1)
    if view[2] > 1:
        return width, whole
    edges = np.flatnonzero(np.diff(whole)) + 1  # of a vector, whose pieces may begin at any element
    width = largest_part(math.gcd(len(whole), *edges.tolist()), CHUNK)
    return width, whole[::width]


def largest_part(size: int, limit: int) -> int:
    """Return the largest divisor of ``size`` up to ``limit``."""
    return max(part for part in range(1, min(size, limit) + 1) if size % part == 0)


@dataclass(frozen=True, slots=True)
class NormPlan:
    """The grouping of gradients by call, and the piece of each chunk."""

    groups: tuple[tuple[tuple[int, ...], int], ...]
    """The indices of each call's gradients, and the size of their chunks."""
    owners: Array
    """The index in ``names`` of each chunk's piece, group after group."""
    names: tuple[str, ...]

    @classmethod
    def of(cls, fused: Sequence[Fused], shapes: Sequence[tuple[int, ...]]) -> NormPlan:
        """Plan for gradients of these pieces and shapes."""
        groups: dict[tuple[int, int | None], list[int]] = {}
        owned: list[Array] = []
        names: list[str] = []
        for index, (each, shape) in enumerate(zip(fused, shapes, strict=True)):
            width, owners = chunks_of(each.blocks, shape)
            owned.append(owners + len(names))
            names += each.pieces
            groups.setdefault((width, index if math.prod(shape) >= LARGE else None), []).append(index)
        whole = np.concatenate([owned[index] for members in groups.values() for index in members])
        return cls(tuple((tuple(members), width) for (width, _), members in groups.items()), whole, tuple(names))

    def named(self, sums: Array) -> dict[str, float]:
        """Map canonical names to squared sums, fp64, from the sums of chunks."""
        squared = np.bincount(self.owners, sums.astype(np.float64), len(self.names))
        return dict(zip(self.names, squared.tolist(), strict=True))
