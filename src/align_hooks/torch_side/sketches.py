"""The sketches of :mod:`align_hooks.record.format.sketch` of all pieces, in a number of calls that grows only with their elements.

Pieces of one width are stacked, small pieces by a copy and large pieces in place, in blocks of full row tiles, padded with zeros. All rows
of a block then have the same columns: one set of signs multiplies the block, and one call sums its columns. The blocks and their signs are
planned once for tensors of the same types and pieces.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
import torch
from msgspec import Struct, field

from align_hooks.names.blocks import Array
from align_hooks.names.fused import ElementRange, Fused
from align_hooks.record.format.shard import Shard, shards_of
from align_hooks.record.format.sketch import BLOCK, PROJECTIONS, TURNS, Slab, column_signs, named, row_signs, slab_of
from align_hooks.torch_side.arrays import has_fp64

ON_DEVICE = 1 << 24
"""Elements of a block on an accelerator, where calls cost more than memory."""
Source: TypeAlias = tuple[int | None, int, int]
"""Elements [start, stop) of a tensor, by its index; with None as many zeros."""


class Block(Struct):
    """Consecutive elements for one call, while the block is being filled."""

    sources: list[Source] = field(default_factory=list)
    owners: list[int] = field(default_factory=list)
    row_tiles: list[int] = field(default_factory=list)
    """The number of row tiles of each owner."""
    rows: list[Array] = field(default_factory=list)
    """The signs of each owner's rows."""


class ProjectionColumns(Struct, frozen=True):
    """The signs of a block's columns, and the projection of each column."""

    signs: torch.Tensor
    """fp32 ``[TURNS, columns]``."""
    projections: torch.Tensor | None
    """The projection of each column; None where columns follow each other so (:attr:`Slab.is_in_lanes`)."""

    @classmethod
    def of(cls, slab: Slab, device: torch.device) -> ProjectionColumns:
        """Make the columns of a slab on a device."""
        projections = None if slab.is_in_lanes else torch.from_numpy(slab.columns % PROJECTIONS).to(device)
        return cls(torch.from_numpy(column_signs(slab.columns)).to(device, torch.float32), projections)

    def sums(self, block: torch.Tensor, wide: torch.dtype) -> torch.Tensor:
        """Return the sums of each row, ``[row tiles, TURNS, PROJECTIONS]``, of a block ``[row tiles, TURNS, columns]``."""
        signed = block * self.signs
        if self.projections is None:
            return signed.view(len(block), TURNS, -1, PROJECTIONS).sum(dim=2, dtype=wide)
        sums = torch.zeros(len(block), TURNS, PROJECTIONS, dtype=wide, device=block.device)
        return sums.index_add_(2, self.projections, signed.to(wide))


class ReadyBlock(Struct, frozen=True):
    """A filled block, with its signs on the device."""

    sources: Sequence[Source]
    columns: ProjectionColumns
    rows: torch.Tensor
    """The signs of rows, fp32 ``[row tiles, TURNS, 1]``."""
    row_tiles: torch.Tensor
    """The number of row tiles of each owner."""

    def sums(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return the sums of each owner, ``[owners, TURNS · PROJECTIONS]``; of each row tile where the device has no fp64."""
        parts = [self._part(tensors, *source) for source in self.sources]
        joined = parts[0] if len(parts) == 1 else torch.cat(parts)
        wide = torch.float64 if has_fp64(joined.device) else torch.float32
        by_row = self.columns.sums(joined.view(len(self.rows), TURNS, -1), wide)
        by_row *= self.rows
        by_tile = by_row.view(len(self.rows), TURNS * PROJECTIONS)
        if not has_fp64(joined.device):
            return by_tile
        if len(self.row_tiles) == 1:
            return by_tile.sum(dim=0, keepdim=True)
        # without "unsafe" the host waits for the device to check that the lengths add up to the rows, which they do by construction
        return torch.segment_reduce(by_tile, "sum", lengths=self.row_tiles, axis=0, unsafe=True)

    def _part(self, tensors: Sequence[torch.Tensor], index: int | None, start: int, stop: int) -> torch.Tensor:
        if index is None:
            like = tensors[next(source for source, _, _ in self.sources if source is not None)]
            return like.new_zeros(stop - start)
        return tensors[index][start:stop]


class Sketches(Struct, frozen=True):
    """The signed sums of a step, on the device."""

    numbers: torch.Tensor
    """``[owners of all blocks · TURNS · PROJECTIONS]``."""
    owners: Array
    """The piece of each block's owner."""
    names: Sequence[str]
    """The names of the pieces."""

    def named(self, numbers: Array, squared: dict[str, float]) -> dict[str, list[float]]:
        """Map canonical names to sketches, from ``numbers`` on the host and the squared sum of each name."""
        return named(numbers, self.owners, self.names, squared)


class SketchPlan:
    """The blocks of the elements of given parameters."""

    def __init__(self) -> None:
        self._of: tuple[object, ...] = ()
        self._work: list[ReadyBlock] = []
        self._owners: Array = np.empty(0, np.int64)
        self._names: list[str] = []

    def sketches(self, pairs: Iterable[tuple[Fused, torch.Tensor]]) -> Sketches:
        """Compute the signed sums of tensors, each with its pieces, on the device."""
        known = [(fused, tensor.detach().reshape(-1)) for fused, tensor in pairs]
        fused, flat = tuple(fused for fused, _ in known), [tensor for _, tensor in known]
        of = fused, tuple((tensor.dtype, tensor.device) for tensor in flat)
        if self._of != of:
            self._make(fused, flat)
            self._of = of
        sums = [work.sums(flat).reshape(-1) for work in self._work]
        return Sketches(torch.cat(sums) if sums else torch.zeros(0, dtype=torch.float64), self._owners, self._names)

    def _make(self, fused: Sequence[Fused], tensors: Sequence[torch.Tensor]) -> None:
        """Fill blocks with the pieces, grouped by columns, type and device."""
        shards = [(index, shard, runs) for index, each in enumerate(fused) for shard, runs in with_runs(each)]
        self._names = [shard.name for _, shard, _ in shards]
        filling: dict[object, tuple[Slab, torch.device, list[Block]]] = {}
        for owner, (index, shard, runs) in enumerate(shards):
            slab, tensor = slab_of(shard), tensors[index]
            key = (slab.columns.tobytes(), tensor.dtype, tensor.device)
            _, _, blocks = filling.setdefault(key, (slab, tensor.device, []))
            fill(blocks, owner, slab, [(index, run.start, run.stop) for run in runs], BLOCK if tensor.device.type == "cpu" else ON_DEVICE)
        self._work = []
        owners: list[int] = []
        for slab, device, blocks in filling.values():
            columns = ProjectionColumns.of(slab, device)
            for block in blocks:
                rows = torch.from_numpy(np.concatenate(block.rows)).to(device, torch.float32)
                row_tiles = torch.tensor(block.row_tiles, device=device)
                self._work.append(ReadyBlock(block.sources, columns, rows.view(-1, TURNS, 1), row_tiles))
                owners += block.owners if has_fp64(device) else np.repeat(block.owners, block.row_tiles).tolist()
        self._owners = np.array(owners, np.int64)


def with_runs(fused: Fused) -> Iterator[tuple[Shard, list[ElementRange]]]:
    """Yield the pieces of which this rank holds an element, each with its runs."""
    runs: dict[int, list[ElementRange]] = {}
    for run in fused.runs():
        runs.setdefault(run.piece, []).append(run)
    yield from zip(shards_of(fused, dtype="", counted=True), runs.values(), strict=True)


def fill(blocks: list[Block], owner: int, slab: Slab, sources: list[tuple[int, int, int]], size: int) -> None:
    """Put a slab's elements, consecutive in ``sources``, into the last of ``blocks`` and into new blocks of about ``size`` elements."""
    tile = slab.turn
    first, last = slab.start // tile, -(-slab.stop // tile)
    padded: list[Source] = [(None, 0, slab.start - first * tile), *sources, (None, 0, last * tile - slab.stop)]
    rest = [source for source in padded if source[1] < source[2]]
    most = max(size // tile, 1)
    while first < last:
        count = min(last - first, most)
        if not blocks or sum(blocks[-1].row_tiles) + count > most:  # a piece is torn only where it is larger: its blocks are then views
            blocks.append(Block())
        head, rest = split(rest, count * tile)
        block = blocks[-1]
        block.sources += head
        block.owners.append(owner)
        block.row_tiles.append(count)
        block.rows.append(row_signs(np.arange(first * TURNS, (first + count) * TURNS)))
        first += count


def split(sources: list[Source], size: int) -> tuple[list[Source], list[Source]]:
    """Return the first ``size`` elements of sources, and the others."""
    head: list[Source] = []
    for number, (index, start, stop) in enumerate(sources):
        if stop - start > size:
            middle = start + size
            return [*head, (index, start, middle)] if size else head, [(index, middle, stop), *sources[number + 1 :]]
        head.append((index, start, stop))
        size -= stop - start
    return head, []
