"""Tensors of a step, joined from the shards of all ranks."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

import numpy as np
from msgspec import Struct

from align_hooks.errors import RecordError
from align_hooks.names.nearest import nearest
from align_hooks.record.format.files import TensorFile
from align_hooks.record.format.layout import Array
from align_hooks.record.format.shard import Shard
from align_hooks.record.format.stored_tensor import StoredTensor

Box: TypeAlias = tuple[tuple[int, int], ...]
"""[start, stop) per axis."""
Order: TypeAlias = tuple[tuple[Box, int, int], ...]
"""An order of a tensor's elements: box after box, the elements [start, stop) of each."""


class TensorSlice(Struct, frozen=True):
    """A rank's part of a tensor: elements [start, stop), in row-major order, of a box, and their place in a file."""

    rank: int
    box: Box
    start: int
    stop: int
    part: StoredTensor

    @property
    def places(self) -> tuple[slice, ...]:
        """The box as an index."""
        return tuple(slice(*bounds) for bounds in self.box)

    def rows(self, shape: Sequence[int]) -> tuple[int, int] | None:
        """Return the slice as elements [start, stop) of the tensor of ``shape``; None where not contiguous there."""
        if any(bounds != (0, size) for bounds, size in zip(self.box[1:], shape[1:], strict=True)):
            return None
        before = self.box[0][0] * math.prod(shape[1:]) if shape else 0
        return before + self.start, before + self.stop


class Whole(Struct, frozen=True, dict=True):
    """One tensor as the parts of all ranks, in the order of the ranks; readable in another process."""

    name: str
    shape: tuple[int, ...]
    held: tuple[TensorSlice, ...]

    @property
    def bytes(self) -> int:
        """The number of bytes to read."""
        return sum(held.part.stop - held.part.start for held in self.held)

    @cached_property
    def order(self) -> Order:
        """The order of the elements of :meth:`blocks`: row-major wherever the ranks' parts allow that."""
        if self._by_rows:
            return ((tuple((0, size) for size in self.shape), 0, math.prod(self.shape)),)
        return tuple((held.box, held.start, held.stop) for held in self._in_order)

    @property
    def digests(self) -> tuple[tuple[object, ...], ...] | None:
        """The position, type and digest of all parts; None where one lacks a digest. Equal digests mean equal bits."""
        if any(held.part.digest is None for held in self.held):
            return None
        return tuple((held.box, held.start, held.stop, held.part.kind, held.part.digest) for held in self._by_boxes)

    def blocks(self) -> Iterator[Array]:
        """Yield all elements in :attr:`order`, fp32, in blocks that are valid until the next.

        Raises RecordError unless each element is there once and unchanged.
        """
        self.refuse_gaps()
        for held in self._in_order:
            yield from held.part.blocks()

    def read(self) -> Array:
        """Return the tensor, fp32; raises RecordError as :meth:`blocks` does."""
        self.refuse_gaps()
        whole = np.empty(self.shape, np.float32)
        for held in self.held:
            rows = held.rows(self.shape)
            place, at = (whole.reshape(-1), rows[0]) if rows is not None else (whole[held.places], held.start)
            for block in held.part.blocks():
                _put(place, at, block)
                at += len(block)
        return whole

    @cached_property
    def _by_rows(self) -> list[tuple[TensorSlice, tuple[int, int]]]:
        """The parts in row-major order with their elements there; empty where a part is not contiguous there."""
        rows = [(held, bounds) for held in self._not_empty if (bounds := held.rows(self.shape)) is not None]
        return sorted(rows, key=lambda each: each[1]) if len(rows) == len(self._not_empty) else []

    @property
    def _in_order(self) -> list[TensorSlice]:
        return [held for held, _ in self._by_rows] or self._by_boxes

    @property
    def _by_boxes(self) -> list[TensorSlice]:
        return sorted(self._not_empty, key=lambda held: (held.box, held.start, held.stop))

    @property
    def _not_empty(self) -> list[TensorSlice]:
        return [held for held in self.held if held.start < held.stop]

    def refuse_gaps(self) -> None:
        """Raise RecordError unless every element is held once."""
        if math.prod(self.shape) > sum(held.stop - held.start for held in self.held):
            raise self.not_whole("some of its elements are on no rank")
        if (twice := self._held_twice()) is not None:
            raise self.not_whole(
                f"elements of rank {twice} are on an earlier rank too, and the framework marks neither as a copy",
                "it counts them twice, in its norm of gradients too: see which of its layers shares this tensor",
            )

    def _held_twice(self) -> int | None:
        """Return the first rank that holds an element of an earlier rank; None where every element is held once."""
        if self._by_rows or _are_disjoint({held.box for held in self.held}):
            rows = self._by_rows or [(held, (held.start, held.stop)) for held in self._by_boxes]
            clashes = [
                max(one.rank, other.rank)
                for (one, (_, stop)), (other, (start, _)) in pairwise(rows)
                if start < stop and (self._by_rows or one.box == other.box)
            ]
            return min(clashes, default=None)
        filled = np.zeros(self.shape, bool)
        for held in self.held:
            place, mine = filled[held.places].flat, slice(held.start, held.stop)
            if place[mine].any():
                return held.rank
            place[mine] = True
        return None

    def not_whole(self, why: str, way: str = "record with every rank") -> RecordError:
        """Return the error for a tensor with missing or repeated elements."""
        return RecordError(f"{self.held[0].part.path}: {self.name} is not whole: {why}; {way}")


def _are_disjoint(boxes: Collection[Box]) -> bool:
    """Whether no two boxes share an element."""
    bounds = np.array(list(boxes))  # [boxes, axes, 2]
    starts, stops = bounds[..., 0], bounds[..., 1]
    shared = (starts[:, None] < stops[None]) & (starts[None] < stops[:, None])
    return int(shared.all(axis=2).sum()) == len(bounds)


def _put(place: Array, at: int, block: Array) -> None:
    """Write a block into an array from element ``at`` on, in row-major order."""
    if place.ndim != 2:
        (place if place.ndim == 1 else place.flat)[at : at + len(block)] = block
        return
    row, column = divmod(at, place.shape[1])
    if column:  # the rest of a row that was begun
        first = block[: place.shape[1] - column]
        place[row, column : column + len(first)] = first
        row, block = row + 1, block[len(first) :]
    whole, left = divmod(len(block), place.shape[1])
    place[row : row + whole] = block[: len(block) - left].reshape(whole, place.shape[1])
    if left:
        place[row + whole, :left] = block[len(block) - left :]


class Tensors(Mapping[str, Array]):
    """Canonical name to full fp32 array, read on access and not kept."""

    def __init__(self, files: Mapping[int, Sequence[tuple[Path, str | None]]], tables: Mapping[int, Sequence[Shard]]) -> None:
        """Open each rank's safetensors ``files``, with the digests of their headers; raises RecordError where a shard of
        ``tables`` is missing."""
        self._files = {rank: [TensorFile(path, digest) for path, digest in paths] for rank, paths in files.items()}
        self._parts: dict[str, list[tuple[int, Shard]]] = {}
        for rank, shards in tables.items():
            for shard in shards:
                if not any(shard.name in file for file in self._files[rank]):
                    raise RecordError(f"{files[rank][0][0]} lacks {shard.name}, which the manifest lists; record the step again")
                self._parts.setdefault(shard.name, []).append((rank, shard))

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    def __contains__(self, name: object) -> bool:
        return name in self._parts

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor, without reading it."""
        return self._parts[name][0][1].shape

    def __repr__(self) -> str:
        return f"Tensors({len(self)} names, first {next(iter(self), 'none')})"

    def __getitem__(self, name: str) -> Array:
        return self.whole(name).read()

    def whole(self, name: str) -> Whole:
        """Return a tensor that is not read yet; raises RecordError where a rank's part contradicts its manifest."""
        if name not in self._parts:
            near = nearest(name, self._parts)
            raise KeyError(f"no tensor {name}" + (f"; did you mean {near[0]}?" if near else ""))
        held: dict[object, TensorSlice] = {}
        for rank, shard in self._parts[name]:
            part = self._held(rank, shard)
            # of parts that several ranks hold as their own with the same bits, the first is taken; self-checks name the others
            held.setdefault((part.box, part.start, part.stop, part.part.kind, part.part.digest or rank), part)
        whole = Whole(name, self.shape(name), tuple(held.values()))
        first = self._parts[name][0][0]
        for rank, shard in self._parts[name]:
            if shard.shape != whole.shape:
                raise whole.not_whole(f"rank {rank} says that it is {list(shard.shape)}, rank {first} {list(whole.shape)}")
        return whole

    def _held(self, rank: int, shard: Shard) -> TensorSlice:
        file = next(file for file in self._files[rank] if shard.name in file)
        part = file.part(shard.name)
        if part.shape != shard.local_shape:
            raise RecordError(
                f"{file.path}: {shard.name} is {list(part.shape)}, the manifest says {list(shard.local_shape)}; record the run again"
            )
        return TensorSlice(rank, shard.box, *(shard.flat or (0, shard.elements)), part)
