"""A framework's parameter on a rank, split into canonical pieces and joined from them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from align_hooks.names.blocks import Array, Blocks, Stack, Tensor


class Piece(Struct, frozen=True):
    """A canonical tensor in a rank's native parameter."""

    name: str
    shape: tuple[int, ...]
    """The global shape."""
    box: tuple[tuple[int, int], ...]
    """[start, stop) on each axis of the part on this rank."""
    own: bool = False
    """Whether the name is the framework's, as no family has one."""


class ElementRange(Struct, frozen=True):
    """Elements [start, stop) of one piece in a rank's share of a native tensor, in row-major order."""

    start: int
    stop: int
    piece: int
    """The index in :attr:`Fused.parts`."""


class Fused(Struct, frozen=True):
    """A native parameter on this rank, with its canonical pieces."""

    native: str
    parts: tuple[Piece, ...]
    """In the order of their rows."""
    blocks: Blocks | Stack
    """The layout of the tensor on this rank."""
    flat: tuple[int, int] | None = None
    """The elements [start, stop) of that tensor, in row-major order, that a distributed optimizer keeps here; None for all."""

    @property
    def pieces(self) -> tuple[str, ...]:
        """Canonical names of the pieces of which this rank holds any element."""
        return tuple(piece.name for piece, _ in self.ranges())

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the native tensor on this rank, ``flat`` or not."""
        return self.blocks.fused([stop - start for start, stop in self.parts[0].box])

    def _not_empty(self) -> list[Piece]:
        return [piece for piece, rows in zip(self.parts, self.blocks.rows, strict=True) if rows]

    @property
    def _width(self) -> int:
        return math.prod(self.shape[1:])

    def ranges(self) -> list[tuple[Piece, tuple[int, int] | None]]:
        """Return the pieces on this rank, each with the range of its elements that ``flat`` leaves; None for all."""
        if self.flat is None:
            return [(piece, None) for piece in self._not_empty()]
        ranges = ((index, tuple(self.blocks.before(index, end, self._width) for end in self.flat)) for index in range(len(self.parts)))
        return [(self.parts[index], (start, stop)) for index, (start, stop) in ranges if start < stop]

    @property
    def cut(self) -> frozenset[str]:
        """Names of the pieces of which this rank holds a part only."""
        return frozenset(
            piece.name
            for piece, part in self.ranges()
            if piece.box != tuple((0, size) for size in piece.shape) or part not in (None, (0, math.prod(piece.shape)))
        )

    def narrowed(self, start: int, stop: int) -> Fused:
        """Return the parameter with ``flat`` set."""
        return replace(self, flat=(start, stop))

    def split(self, tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
        """Yield canonical name and piece of this rank's tensor, which with ``flat`` is one-dimensional; a piece may then come in runs."""
        if self.flat is None:
            for piece, part in zip(self.parts, self.blocks.split(tensor), strict=True):
                if part.shape[0]:
                    yield piece.name, part
            return
        for run in self.runs():
            yield self.parts[run.piece].name, tensor[run.start : run.stop]

    def runs(self) -> Iterator[ElementRange]:
        """Yield the consecutive elements of each piece on this rank, piece after piece; raises RefusedRun for stacked experts."""
        start, stop = self.flat or (0, math.prod(self.shape))
        for piece in range(len(self.parts)):
            yield from (ElementRange(run.start, run.stop, piece) for run in self.blocks.runs(piece, start, stop, self._width))

    def join(self, tensors: Mapping[str, Array]) -> Array:
        """Return the tensor on this rank, from the global canonical tensors of :attr:`pieces`, which are read one after the other."""
        here = self.pieces
        boxes = [
            tensors[piece.name][tuple(slice(*bounds) for bounds in piece.box)]
            if piece.name in here  # ``flat`` may leave nothing of a piece
            else np.zeros([stop - start for start, stop in piece.box], np.float32)
            for piece in self._not_empty()
        ]
        native = self.blocks.filled.join(boxes)
        return native if self.flat is None else np.ascontiguousarray(native).reshape(-1)[slice(*self.flat)]


def gathered(runs: Iterable[tuple[str, Array]]) -> dict[str, Array]:
    """Return canonical name to piece, with the runs of :meth:`Fused.split` joined."""
    named: dict[str, list[Array]] = {}
    for name, run in runs:
        named.setdefault(name, []).append(run)
    return {name: parts[0] if len(parts) == 1 else np.concatenate(parts) for name, parts in named.items()}
