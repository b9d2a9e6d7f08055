"""The squared sums of :mod:`align_hooks.record.format.norms` of all pieces of all tensors, in a number of calls that does not grow with
either.

Memory is cut into parts of :data:`PART` elements, wherever a tensor or a piece begins, and one call takes the norms of all parts, another
those of all chunks of :data:`CHUNK` elements. Of the few chunks in which a piece begins the norms of parts are kept, and of the few parts
in which one begins the elements. These numbers, a thousandth of the elements, come to the host with those of the step, where squares are
added up in fp64 by the piece of each. So interleaved queries and keys, ranges of a distributed optimizer and padding cost nothing: which
number belongs to which piece is known once the model is built.

Tensors that are neighbours in memory are looked at as one. Megatron's data-parallel wrapper keeps all main gradients in a few contiguous
buffers, of which ``main_grad`` of a parameter is a view, and so is the gradient that its optimizer reads, unless it is of another type. A
view over a whole buffer takes one call of an operator where a view a tensor takes hundreds. The buffers are not asked for: every optimizer
and every version keeps them elsewhere, while a tensor always says which memory it is a view of.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch

from align_hooks.names.blocks import Array
from align_hooks.names.fused import Fused
from align_hooks.record.format.norms import CHUNK, PART

Key = TypeVar("Key")

TOGETHER = 1 << 20
"""Elements of small stretches that are copied together, so that they are one call."""

GAP = 1 << 16
"""Elements between two tensors that are read with them, and not counted. Buffers are padded by fewer."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """``size`` elements of one storage from ``offset`` on, which hold tensors: the index of each, and where it begins in the stretch."""

    offset: int
    size: int
    members: tuple[tuple[int, int], ...]
    dtype: torch.dtype

    def flat(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """The stretch, one-dimensional and without a copy, unless it is one tensor that is not contiguous."""
        first = tensors[self.members[0][0]].detach()
        if len(self.members) == 1:
            return first.reshape(-1)
        return torch.as_strided(first, (self.size,), (1,), self.offset)


def stretches_of(tensors: Sequence[torch.Tensor]) -> tuple[Stretch, ...]:
    """The stretches of tensors, each tensor in one."""
    stretches: list[Stretch] = []
    shared: dict[tuple[int, torch.dtype], list[tuple[int, int, int]]] = {}
    for index, tensor in enumerate(tensors):
        if tensor.is_contiguous():
            place = tensor.storage_offset(), tensor.storage_offset() + tensor.numel(), index
            shared.setdefault((tensor.untyped_storage().data_ptr(), tensor.dtype), []).append(place)
        else:
            stretches.append(Stretch(0, tensor.numel(), ((index, 0),), tensor.dtype))
    for (_, dtype), places in shared.items():
        stretches += _neighbours(sorted(places), dtype)
    return tuple(stretches)


def _neighbours(places: list[tuple[int, int, int]], dtype: torch.dtype) -> list[Stretch]:
    """The stretches of tensors of one storage, each [start, stop) and index. One that overlaps another is alone."""
    found: list[Stretch] = []
    members: list[tuple[int, int]] = []
    begin = end = 0
    for start, stop, index in places:
        if members and not 0 <= start - end <= GAP:
            found.append(Stretch(begin, end - begin, tuple(members), dtype))
            members = []
        if not members:
            begin = start
        members.append((index, start - begin))
        end = stop
    return [*found, Stretch(begin, end - begin, tuple(members), dtype)] if members else found


@dataclass(frozen=True, slots=True)
class ChunkRows:
    """How one stretch of memory is cut. ``owners`` are the owner of each number that :meth:`norms` gives, in its order; a number of several
    owners, and of none, has the last. ``mixed`` are the chunks, and ``split`` the parts, in which an owner's elements begin."""

    whole: int
    owners: Array
    mixed: torch.Tensor | None
    split: torch.Tensor | None

    @classmethod
    def cut(cls, size: int, edges: Array, owners: Array, nobody: int, device: torch.device) -> ChunkRows:
        """Cut ``size`` elements. ``edges`` are where the elements of each of the ``owners`` begin, ascending from 0; neighbours differ."""

        def owned(starts: Array, length: int) -> tuple[Array, Array]:
            first, last = (np.searchsorted(edges, place, "right") - 1 for place in (starts, starts + length - 1))
            return np.where(first == last, owners[first], nobody), np.flatnonzero(first != last)

        whole = size // CHUNK
        of_rows, mixed = owned(np.arange(whole) * CHUNK, CHUNK)
        parts = (mixed[:, None] * CHUNK + np.arange(0, CHUNK, PART)).reshape(-1)
        of_parts, split = owned(parts, PART)
        elements = (parts[split][:, None] + np.arange(PART)).reshape(-1)
        singles, _ = owned(np.concatenate([elements, np.arange(whole * CHUNK, size)]), 1)
        index = [torch.from_numpy(places).to(device) if len(places) else None for places in (mixed, parts[split] // PART)]
        return cls(whole, np.concatenate([of_rows, of_parts, singles]), *index)

    def norms(self, flat: torch.Tensor) -> list[torch.Tensor]:
        """Norms of chunks, of parts of mixed chunks, and elements of split parts and after the last chunk; fp32 on the device."""
        parts = flat[: self.whole * CHUNK].view(-1, PART)
        of_parts = torch.linalg.vector_norm(parts, dim=1, dtype=torch.float32).view(-1, CHUNK // PART)
        numbers = [torch.linalg.vector_norm(of_parts, dim=1)]
        if self.mixed is not None:
            numbers.append(of_parts.index_select(0, self.mixed).reshape(-1))
        if self.split is not None:
            numbers.append(parts.index_select(0, self.split).reshape(-1).float())
        if self.whole * CHUNK < flat.numel():
            numbers.append(flat[self.whole * CHUNK :].float())
        return numbers


@dataclass(frozen=True, slots=True)
class Norms:
    """The squared sums of a step, left on the device: ``numbers`` fp32, ``owners`` the piece of each, ``pieces`` the tensor's index and
    the canonical name of each piece."""

    numbers: torch.Tensor
    owners: Array
    pieces: Sequence[tuple[int, str]]

    def squares(self, numbers: Array) -> Array:
        """The squared sum of each of the ``pieces``, fp64, from ``numbers`` on the host."""
        with np.errstate(over="ignore", invalid="ignore"):
            wide = numbers.astype(np.float64)
            squared: Array = np.bincount(self.owners, wide * wide, len(self.pieces) + 1)[: len(self.pieces)]
        return squared

    def named(self, squares: Array) -> dict[str, float]:
        """Canonical name to squared sum, from :meth:`squares`."""
        return added(zip((name for _, name in self.pieces), squares.tolist(), strict=True))

    def by_tensor(self, squares: Array) -> dict[int, float]:
        """Index of a tensor to the squared sum of all its pieces, from :meth:`squares`."""
        return added(zip((index for index, _ in self.pieces), squares.tolist(), strict=True))


def added(squares: Iterable[tuple[Key, float]]) -> dict[Key, float]:
    """Key to the sum of what goes by it."""
    totals: dict[Key, float] = {}
    for key, squared in squares:
        totals[key] = totals.get(key, 0.0) + squared
    return totals


class NormPlan:
    """Which number belongs to which piece, for tensors of given parameters: made when tensors come that lie otherwise than the last."""

    def __init__(self) -> None:
        self._of: tuple[object, ...] = ()
        self._groups: list[tuple[list[Stretch], ChunkRows]] = []
        self._owners: Array = np.empty(0, np.int64)
        self._pieces: list[tuple[int, str]] = []

    def norms(self, fused: Sequence[Fused], tensors: Sequence[torch.Tensor]) -> Norms:
        """Take the norms of tensors, each with its pieces; nothing comes to the host."""
        stretches = stretches_of(tensors)
        if self._of != (tuple(fused), stretches):
            self._make(fused, stretches, tensors)
            self._of = (tuple(fused), stretches)
        numbers: list[torch.Tensor] = []
        for group, rows in self._groups:
            flats = [stretch.flat(tensors) for stretch in group]
            numbers += rows.norms(flats[0] if len(flats) == 1 else torch.cat(flats))
        return Norms(torch.cat(numbers) if numbers else torch.zeros(0), self._owners, self._pieces)

    def _make(self, fused: Sequence[Fused], stretches: Sequence[Stretch], tensors: Sequence[torch.Tensor]) -> None:
        """Decide which stretches are taken together, and cut them."""
        runs = [sorted(each.runs(), key=lambda run: run.start) for each in fused]
        held = sorted({(index, run.piece) for index, of_tensor in enumerate(runs) for run in of_tensor})
        numbers = {piece: number for number, piece in enumerate(held)}
        nobody, self._groups = len(held), []
        self._pieces = [(index, fused[index].parts[piece].name) for index, piece in held]
        for group in together(stretches):
            begins, size = [], 0
            for stretch in group:
                end = 0
                for index, start in stretch.members:
                    if start > end:
                        begins.append((size + end, nobody))
                    begins += [(size + start + run.start, numbers[index, run.piece]) for run in runs[index]]
                    end = start + tensors[index].numel()
                size += stretch.size
            edges, owners = np.array(begins).T
            differ = np.flatnonzero(np.diff(owners, prepend=-1))
            device = tensors[group[0].members[0][0]].device
            self._groups.append((group, ChunkRows.cut(size, edges[differ], owners[differ], nobody, device)))
        self._owners = np.concatenate([rows.owners for _, rows in self._groups]) if self._groups else np.empty(0, np.int64)


def together(stretches: Sequence[Stretch]) -> list[list[Stretch]]:
    """Stretches that are taken in one call: large ones alone, small ones of one type up to :data:`TOGETHER` elements. Empty ones are left
    out."""
    groups: list[list[Stretch]] = []
    small: dict[torch.dtype, list[Stretch]] = {}
    for stretch in stretches:
        if stretch.size >= TOGETHER:
            groups.append([stretch])
        elif stretch.size:
            open_group = small.setdefault(stretch.dtype, [])
            if sum(each.size for each in open_group) + stretch.size > TOGETHER:
                groups.append(open_group)
                small[stretch.dtype] = open_group = []
            open_group.append(stretch)
    return groups + [group for group in small.values() if group]
