"""The sketches of :mod:`align_hooks.record.format.sketch` of all pieces of all tensors, in a number of calls that grows with their
elements alone.

Pieces of one width are put below each other, small ones by a copy and large ones as they lie, in blocks of whole turns of rows with zeros
where a piece has none. All rows of a block then have the same columns, so that a block is multiplied by one set of signs, and its sums over
columns are one call. Which block takes which elements, and the signs, are made once, when tensors come that lie otherwise than the last.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import torch

from align_hooks.names.blocks import Array
from align_hooks.names.fused import ElementRange, Fused
from align_hooks.record.format.shard import Shard, shards_of
from align_hooks.record.format.sketch import BLOCK, PROJECTIONS, TURNS, Slab, column_signs, named, row_signs, slab_of
from align_hooks.torch_side.arrays import has_fp64

ON_DEVICE = 1 << 24
"""Elements of a block on an accelerator, where a call costs more than memory does."""


Source: TypeAlias = tuple[int | None, int, int]
"""Elements [start, stop) of a tensor, by its index; with None as many zeros."""


@dataclass(slots=True)
class Block:
    """Elements that are taken in one call, while it is being filled: ``sources`` one after the other. ``turns`` are the rows by sixteen of
    each of its ``owners``, ``rows`` the signs of these rows."""

    sources: list[Source] = field(default_factory=list)
    owners: list[int] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)
    rows: list[Array] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ProjectionColumns:
    """The signs of a block's columns, fp32 ``[TURNS, columns]``. ``lanes`` are the sums that they go into, where these do not follow each
    other as :attr:`Slab.is_in_lanes` has it."""

    signs: torch.Tensor
    lanes: torch.Tensor | None

    @classmethod
    def of(cls, slab: Slab, device: torch.device) -> ProjectionColumns:
        """Those of a slab."""
        lanes = None if slab.is_in_lanes else torch.from_numpy(slab.columns % PROJECTIONS).to(device)
        return cls(torch.from_numpy(column_signs(slab.columns)).to(device, torch.float32), lanes)

    def sums(self, block: torch.Tensor, wide: torch.dtype) -> torch.Tensor:
        """The sums of each row, ``[turns, TURNS, PROJECTIONS]``, of a block ``[turns, TURNS, columns]``."""
        signed = block * self.signs
        if self.lanes is None:
            return signed.view(len(block), TURNS, -1, PROJECTIONS).sum(dim=2, dtype=wide)
        sums = torch.zeros(len(block), TURNS, PROJECTIONS, dtype=wide, device=block.device)
        return sums.index_add_(2, self.lanes, signed.to(wide))


@dataclass(frozen=True, slots=True)
class ReadyBlock:
    """A block that is ready: signs of its rows, fp32 ``[turns, TURNS, 1]``, and the turns of each owner, both on the device."""

    sources: Sequence[Source]
    columns: ProjectionColumns
    rows: torch.Tensor
    turns: torch.Tensor

    def sums(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """The sums of each of its owners, ``[owners, TURNS · PROJECTIONS]``; of a device that has no fp64, of each of its turns."""
        parts = [self._part(tensors, *source) for source in self.sources]
        joined = parts[0] if len(parts) == 1 else torch.cat(parts)
        wide = torch.float64 if has_fp64(joined.device) else torch.float32
        by_row = self.columns.sums(joined.view(len(self.rows), TURNS, -1), wide)
        by_row *= self.rows
        by_turn = by_row.view(len(self.rows), TURNS * PROJECTIONS)
        if not has_fp64(joined.device):
            return by_turn
        if len(self.turns) == 1:
            return by_turn.sum(dim=0, keepdim=True)
        # Unless it is unsafe, the host waits for the device to hold the lengths against the rows, which they add up to as they were made.
        return torch.segment_reduce(by_turn, "sum", lengths=self.turns, axis=0, unsafe=True)

    def _part(self, tensors: Sequence[torch.Tensor], index: int | None, start: int, stop: int) -> torch.Tensor:
        if index is None:
            like = tensors[next(source for source, _, _ in self.sources if source is not None)]
            return like.new_zeros(stop - start)
        return tensors[index][start:stop]


@dataclass(frozen=True, slots=True)
class Sketches:
    """The signed sums of a step, left on the device: ``numbers`` ``[blocks' owners · TURNS · PROJECTIONS]``, ``owners`` the piece of each,
    ``names`` of the pieces."""

    numbers: torch.Tensor
    owners: Array
    names: Sequence[str]

    def named(self, numbers: Array, squared: dict[str, float]) -> dict[str, list[float]]:
        """Canonical name to sketch, from ``numbers`` on the host and the squared sum of each name."""
        return named(numbers, self.owners, self.names, squared)


class SketchPlan:
    """Which elements go into which block, for tensors of given parameters."""

    def __init__(self) -> None:
        self._of: tuple[object, ...] = ()
        self._work: list[ReadyBlock] = []
        self._owners: Array = np.empty(0, np.int64)
        self._names: list[str] = []

    def sketches(self, fused: Sequence[Fused], tensors: Sequence[torch.Tensor]) -> Sketches:
        """Take the signed sums of tensors, each with its pieces; nothing comes to the host."""
        flat = [tensor.detach().reshape(-1) for tensor in tensors]
        known = (tuple(fused), tuple((tensor.dtype, tensor.device) for tensor in tensors))
        if self._of != known:
            self._make(fused, flat)
            self._of = known
        sums = [work.sums(flat).reshape(-1) for work in self._work]
        return Sketches(torch.cat(sums) if sums else torch.zeros(0, dtype=torch.float64), self._owners, self._names)

    def _make(self, fused: Sequence[Fused], tensors: Sequence[torch.Tensor]) -> None:
        """Fill blocks with the pieces, those of the same columns and type together."""
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
                turns = torch.tensor(block.turns, device=device)
                self._work.append(ReadyBlock(block.sources, columns, rows.view(-1, TURNS, 1), turns))
                owners += block.owners if has_fp64(device) else np.repeat(block.owners, block.turns).tolist()
        self._owners = np.array(owners, np.int64)


def with_runs(fused: Fused) -> Iterator[tuple[Shard, list[ElementRange]]]:
    """The pieces of a parameter of which this rank holds any element, each with its runs."""
    runs: dict[int, list[ElementRange]] = {}
    for run in fused.runs():
        runs.setdefault(run.piece, []).append(run)
    yield from zip(shards_of(fused, dtype="", counted=True), runs.values(), strict=True)


def fill(blocks: list[Block], owner: int, slab: Slab, sources: list[tuple[int, int, int]], size: int) -> None:
    """Put the elements of a slab, those of ``sources`` one after the other, into the last of ``blocks`` and into new ones of about ``size``
    elements."""
    turn = slab.turn
    first, last = slab.start // turn, -(-slab.stop // turn)
    padded: list[Source] = [(None, 0, slab.start - first * turn), *sources, (None, 0, last * turn - slab.stop)]
    rest = [source for source in padded if source[1] < source[2]]
    most = max(size // turn, 1)
    while first < last:
        count = min(last - first, most)
        if not blocks or sum(blocks[-1].turns) + count > most:  # a piece is torn only where it is larger: its blocks are then views
            blocks.append(Block())
        taken, rest = split(rest, count * turn)
        block = blocks[-1]
        block.sources += taken
        block.owners.append(owner)
        block.turns.append(count)
        block.rows.append(row_signs(np.arange(first * TURNS, (first + count) * TURNS)))
        first += count


def split(sources: list[Source], size: int) -> tuple[list[Source], list[Source]]:
    """The first ``size`` elements of sources, and the others."""
    taken: list[Source] = []
    for number, (index, start, stop) in enumerate(sources):
        if stop - start > size:
            middle = start + size
            return [*taken, (index, start, middle)] if size else taken, [(index, middle, stop), *sources[number + 1 :]]
        taken.append((index, start, stop))
        size -= stop - start
    return taken, []
