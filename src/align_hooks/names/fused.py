"""A framework's parameter as a rank holds it, seen as canonical pieces: taken apart, and put together again."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from align_hooks.names.blocks import Array, Blocks


@dataclass(frozen=True, slots=True)
class Piece:
    """A canonical tensor as one native parameter of a rank holds it: its whole shape, and the box [start, stop) an axis held here."""

    name: str
    shape: tuple[int, ...]
    box: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Fused:
    """One native parameter of this rank with its canonical pieces, in the order of their rows.

    ``blocks`` are those of the tensor on this rank. With ``flat`` only the elements [start, stop) of that tensor, in row-major
    order, are held: the share of a distributed optimizer.
    """

    native: str
    parts: tuple[Piece, ...]
    blocks: Blocks
    flat: tuple[int, int] | None = None

    @property
    def pieces(self) -> tuple[str, ...]:
        """Canonical names of the pieces of which any element is held."""
        return tuple(piece.name for piece, _ in self.ranges())

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the native tensor on this rank, whatever share of it an optimizer holds."""
        return (self.blocks.total, *(stop - start for start, stop in self.parts[0].box[1:]))

    def _not_empty(self) -> list[Piece]:
        return [piece for piece, rows in zip(self.parts, self.blocks.rows, strict=True) if rows]

    @property
    def _width(self) -> int:
        return math.prod(self.shape[1:])

    def ranges(self) -> list[tuple[Piece, tuple[int, int] | None]]:
        """The pieces held, each with the range of its box that ``flat`` leaves, None for all of it."""
        if self.flat is None:
            return [(piece, None) for piece in self._not_empty()]
        ranges = ((index, tuple(self.blocks.before(index, end, self._width) for end in self.flat)) for index in range(len(self.parts)))
        return [(self.parts[index], (start, stop)) for index, (start, stop) in ranges if start < stop]

    @property
    def cut(self) -> frozenset[str]:
        """Pieces of which a part only is held."""
        return frozenset(
            piece.name
            for piece, part in self.ranges()
            if piece.box != tuple((0, size) for size in piece.shape) or part not in (None, (0, math.prod(piece.shape)))
        )

    def narrowed(self, start: int, stop: int) -> Fused:
        """The same parameter with only the elements [start, stop) held."""
        return replace(self, flat=(start, stop))

    def split(self, tensor: Any) -> Iterator[tuple[str, Any]]:
        """Canonical name and piece, for the tensor that is held, of numpy or torch.

        With ``flat`` the tensor is one-dimensional, and a piece comes in one or several runs one after the other.
        """
        if self.flat is None:
            for piece, part in zip(self.parts, self.blocks.split(tensor), strict=True):
                if part.shape[0]:
                    yield piece.name, part
            return
        for index, piece in enumerate(self.parts):
            for run in self.blocks.runs(index, *self.flat, self._width):
                yield piece.name, tensor[run]

    def join(self, tensors: Mapping[str, Array]) -> Array:
        """The tensor that is held, from whole canonical pieces that are read one after the other."""
        boxes = [tensors[piece.name][tuple(slice(*bounds) for bounds in piece.box)] for piece in self._not_empty()]
        native = Blocks(self.blocks.repeats, tuple(rows for rows in self.blocks.rows if rows)).join(boxes)
        return native if self.flat is None else np.ascontiguousarray(native).reshape(-1)[slice(*self.flat)]


def gathered(runs: Iterable[tuple[str, Array]]) -> dict[str, Array]:
    """Canonical name to piece, from what :meth:`Fused.split` yields, its runs joined."""
    parts: dict[str, list[Array]] = {}
    for name, run in runs:
        parts.setdefault(name, []).append(run)
    return {name: of_it[0] if len(of_it) == 1 else np.concatenate(of_it) for name, of_it in parts.items()}
