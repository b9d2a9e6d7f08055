"""The signed sums of gradients' elements, and their signs, known before the graph is compiled. Imports no framework.

A piece of a gradient is a box in a view of the gradient, and a matrix, whose elements :mod:`align_hooks.record.format.sketch` signs and
sums. Zeros pad its rows to full row tiles and its columns to full lanes, so that every sum is along an axis.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from align_hooks.ms_side.chunks import LARGE, largest_part
from align_hooks.names.blocks import Array, Stack, View
from align_hooks.names.fused import Fused
from align_hooks.record.format.sketch import PROJECTIONS, TURNS, column_signs, named, row_signs

TURNS_AT_ONCE = 64
"""Turns whose sums are added where the graph does it, in fp32."""


@dataclass(frozen=True, slots=True)
class Matrix:
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
    def turns(self) -> int:
        """The number of row tiles, the last of which may be partial."""
        return -(-self.rows // TURNS)

    @property
    def padding(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Padding before and behind the rows, and before and behind the columns."""
        return (0, self.turns * TURNS - self.rows), (0, -self.columns % PROJECTIONS)

    @property
    def row_signs(self) -> Array:
        """The signs of the rows, padding included, fp32 ``[turns, TURNS, 1]``."""
        return row_signs(np.arange(self.turns * TURNS)).astype(np.float32).reshape(-1, TURNS, 1)


@dataclass(frozen=True, slots=True)
class PieceGroup:
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
        """The signs of the rows of all members, fp32 ``[turns, TURNS, 1]``."""
        return np.concatenate([member.row_signs for member in self.members])


@dataclass(frozen=True, slots=True)
class SketchPlan:
    """The grouping of pieces by call, and the piece of each sum."""

    groups: tuple[PieceGroup, ...]
    owners: Array
    """The index in ``names`` of the piece of each ``[TURNS, PROJECTIONS]`` sums, group after group."""
    names: tuple[str, ...]

    @classmethod
    def of(cls, fused: Sequence[Fused], shapes: Sequence[tuple[int, ...]]) -> SketchPlan:
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
            turns = [matrix.turns for _, matrix in members]
            groups.append(PieceGroup(tuple(matrix for _, matrix in members), largest_part(math.gcd(*turns), TURNS_AT_ONCE)))
            owners.append(np.repeat([owner for owner, _ in members], [count // groups[-1].at_once for count in turns]))
        return cls(tuple(groups), np.concatenate(owners), tuple(names))

    @property
    def numbers(self) -> int:
        """The number of sums of all pieces."""
        return len(self.owners) * TURNS * PROJECTIONS

    def named(self, sums: Array, squared: Mapping[str, float]) -> dict[str, list[float]]:
        """Canonical name to sketch, from the sums of all groups and each piece's squared sum."""
        return named(sums, self.owners, self.names, squared)


def matrices(gradient: int, fused: Fused, shape: Sequence[int]) -> Iterator[Matrix]:
    """The pieces of a gradient in their order; raises ValueError where it is a part of a tensor, whose rows have other numbers."""
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
