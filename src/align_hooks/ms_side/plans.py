"""How gradients are summed in the compiled graph, known before it is compiled: chunks for their squares, matrices for signed sums.

For squares a gradient is viewed as a matrix whose rows are chunks, of a size that divides its rows and the offsets of its pieces. So a
chunk belongs to one piece, and no piece is cut out. For signed sums each piece is a box in a view of the gradient, and a matrix, whose
elements :mod:`align_hooks.record.format.sketch` signs and sums. Zeros pad its rows to full row tiles and its columns to full projection
columns, so that every sum is along an axis. Imports no framework.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct

from align_hooks.names.blocks import Array, Blocks, Stack, View
from align_hooks.names.fused import Fused
from align_hooks.record.format.norms import CHUNK
from align_hooks.record.format.sketch import PROJECTIONS, TURNS, column_signs, named, row_signs

LARGE = 1 << 20
"""Elements from which a gradient is not joined with others, which would copy it."""
TILES_AT_ONCE = 64
"""Row tiles whose sums are added where the graph does it, in fp32."""


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


class ChunkPlan(Struct, frozen=True):
    """The grouping of gradients by call, and the piece of each chunk."""

    groups: tuple[tuple[tuple[int, ...], int], ...]
    """The indices of each call's gradients, and the size of their chunks."""
    owners: Array
    """The index in ``names`` of each chunk's piece, group after group."""
    names: tuple[str, ...]

    @classmethod
    def of(cls, fused: Sequence[Fused], shapes: Sequence[tuple[int, ...]]) -> ChunkPlan:
        """Plan for gradients of these pieces and shapes."""
        groups: dict[tuple[int, int | None], list[int]] = {}
        owned: list[Array] = []
        names: list[str] = []
        for index, (each, shape) in enumerate(zip(fused, shapes, strict=True)):
            width, owners = chunks_of(each.blocks, shape)
            if each.flat is not None:
                size = math.gcd(width, *each.flat)
                first, after = (bound // size for bound in each.flat)
                width, here = size, np.repeat(owners, width // size)[first:after]
                owners = np.unique(here, return_inverse=True)[1]
            owned.append(owners + len(names))
            names += each.pieces
            groups.setdefault((width, index if math.prod(shape) >= LARGE else None), []).append(index)
        whole = np.concatenate([owned[index] for members in groups.values() for index in members])
        return cls(tuple((tuple(members), width) for (width, _), members in groups.items()), whole, tuple(names))

    def named(self, sums: Array) -> dict[str, float]:
        """Map canonical names to squared sums, fp64, from the sums of chunks."""
        squared = np.bincount(self.owners, sums.astype(np.float64), len(self.names))
        return dict(zip(self.names, squared.tolist(), strict=True))


class Matrix(Struct, frozen=True):
    """A piece of a gradient as a matrix."""

    gradient: int
    """The index of the gradient."""
    view: View
    """A shape of the gradient in which the piece is a box."""
    begin: View
    size: View
    rows: int
    columns: int
    transposed: bool
    """Whether the box is the transposed matrix."""

    @property
    def is_whole(self) -> bool:
        """Whether the piece is all of the gradient."""
        return self.size == self.view

    @property
    def row_tiles(self) -> int:
        """The number of row tiles, the last of which may be partial."""
        return -(-self.rows // TURNS)

    @property
    def padding(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Padding before and behind the rows, and before and behind the columns."""
        return (0, self.row_tiles * TURNS - self.rows), (0, -self.columns % PROJECTIONS)

    @property
    def row_signs(self) -> Array:
        """The signs of the rows, padding included, fp32 ``[row tiles, TURNS, 1]``."""
        return row_signs(np.arange(self.row_tiles * TURNS)).astype(np.float32).reshape(-1, TURNS, 1)


class PieceGroup(Struct, frozen=True):
    """Stacked pieces with equal numbers of columns."""

    members: tuple[Matrix, ...]
    at_once: int
    """Row tiles of one piece whose sums the graph adds."""

    @property
    def column_signs(self) -> Array:
        """The signs of the columns, padding included, fp32 ``[TURNS, columns]``."""
        first = self.members[0]
        return column_signs(np.arange(first.columns + first.padding[1][1])).astype(np.float32)

    @property
    def row_signs(self) -> Array:
        """The signs of the rows of all members, fp32 ``[row tiles, TURNS, 1]``."""
        return np.concatenate([member.row_signs for member in self.members])


class SignedSumPlan(Struct, frozen=True):
    """The grouping of pieces by call, and the piece of each sum."""

    groups: tuple[PieceGroup, ...]
    owners: Array
    """The index in ``names`` of the piece of each ``[TURNS, PROJECTIONS]`` sums, group after group."""
    names: tuple[str, ...]

    @classmethod
    def of(cls, fused: Sequence[Fused], shapes: Sequence[tuple[int, ...]]) -> SignedSumPlan:
        """Plan for gradients of these pieces and shapes, none of them cut."""
        grouped: dict[tuple[int, int | None], list[tuple[int, Matrix]]] = {}
        names: list[str] = []
        for index, (each, shape) in enumerate(zip(fused, shapes, strict=True)):
            for name, matrix in zip(each.pieces, matrices(index, each, shape), strict=True):
                large = len(names) if math.prod(matrix.size) >= LARGE else None
                grouped.setdefault((matrix.columns, large), []).append((len(names), matrix))
                names.append(name)
        groups: list[PieceGroup] = []
        owners: list[Array] = []
        for members in grouped.values():
            row_tiles = [matrix.row_tiles for _, matrix in members]
            groups.append(PieceGroup(tuple(matrix for _, matrix in members), largest_part(math.gcd(*row_tiles), TILES_AT_ONCE)))
            owners.append(np.repeat([owner for owner, _ in members], [count // groups[-1].at_once for count in row_tiles]))
        return cls(tuple(groups), np.concatenate(owners), tuple(names))

    @property
    def numbers(self) -> int:
        """The number of sums of all pieces."""
        return len(self.owners) * TURNS * PROJECTIONS

    def named(self, sums: Array, squared: Mapping[str, float]) -> dict[str, list[float]]:
        """Map canonical names to sketches, from the sums of all groups and each piece's squared sum."""
        return named(sums, self.owners, self.names, squared)


def matrices(gradient: int, fused: Fused, shape: Sequence[int]) -> Iterator[Matrix]:
    """Yield the pieces of a gradient in their order; raises ValueError where it is a part of a tensor, whose rows have other numbers."""
    if fused.cut:
        raise ValueError(f"{fused.native} is cut, and a sketch in the graph is one of whole tensors")
    blocks, is_vector = fused.blocks.filled, len(shape) == 1
    view, ranges = blocks.view(shape)
    for bounds in ranges:
        begin, size = tuple(start for start, _ in bounds), tuple(stop - start for start, stop in bounds)
        rows, columns = size[0] * size[1], size[2]
        if isinstance(blocks, Stack):
            rows, columns = columns, rows
        elif is_vector:
            rows, columns = 1, rows
        yield Matrix(gradient, view, (begin[0], begin[1], begin[2]), (size[0], size[1], size[2]), rows, columns, isinstance(blocks, Stack))
