"""The squared sums of :mod:`align_hooks.record.format.norms` of all pieces, in a number of calls independent of their number.

Memory is cut into parts of :data:`PART` elements, regardless of tensors and pieces. One call takes the norms of all parts, another those
of all chunks of :data:`CHUNK` elements. The few chunks in which a piece begins keep the norms of their parts, and the few parts in which a
piece begins keep their elements. These numbers, a thousandth of the elements, come to the host with those of the step, where squares are
added up in fp64 by piece. So interleaved queries and keys, ranges of a distributed optimizer and padding cost nothing.

Tensors that are neighbours in memory are read as one. Megatron's data-parallel wrapper keeps all main gradients in a few contiguous
buffers, of which a parameter's ``main_grad`` is a view, as is the gradient that its optimizer reads, unless of another type. A view of a
buffer takes one call of an operator, a view a tensor hundreds. The buffers themselves stand elsewhere in every optimizer and version, while
a tensor always knows its memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

import numpy as np
import torch
from msgspec import Struct

from align_hooks.names.blocks import Array
from align_hooks.names.fused import Fused
from align_hooks.record.format.norms import CHUNK, PART

Key = TypeVar("Key")
TOGETHER = 1 << 20
"""Most elements of small spans that are copied together, to be one call."""
GAP = 1 << 16
"""Most elements between two tensors of a span, read and not counted. Buffers are padded by fewer."""


class ContiguousSpan(Struct, frozen=True):
    """Consecutive elements of one storage, which hold tensors."""

    offset: int
    size: int
    members: tuple[tuple[int, int], ...]
    """The index of each tensor, and its first element in the span."""
    dtype: torch.dtype

    def flat(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return the span as a vector, without a copy unless it is a tensor that is not contiguous."""
        first = tensors[self.members[0][0]].detach()
        if len(self.members) == 1:
            return first.reshape(-1)
        return torch.as_strided(first, (self.size,), (1,), self.offset)


def spans_of(tensors: Sequence[torch.Tensor]) -> tuple[ContiguousSpan, ...]:
    """Return the spans of tensors, each tensor in one span."""
    spans: list[ContiguousSpan] = []
    shared: dict[tuple[int, torch.dtype], list[tuple[int, int, int]]] = {}
    for index, tensor in enumerate(tensors):
        if tensor.is_contiguous():
            place = tensor.storage_offset(), tensor.storage_offset() + tensor.numel(), index
            shared.setdefault((tensor.untyped_storage().data_ptr(), tensor.dtype), []).append(place)
        else:
            spans.append(ContiguousSpan(0, tensor.numel(), ((index, 0),), tensor.dtype))
    for (_, dtype), places in shared.items():
        spans += _neighbours(sorted(places), dtype)
    return tuple(spans)


def _neighbours(places: list[tuple[int, int, int]], dtype: torch.dtype) -> list[ContiguousSpan]:
    """Return the spans of one storage's tensors, each (start, stop, index); a tensor that overlaps another begins a new span."""
    found: list[ContiguousSpan] = []
    members: list[tuple[int, int]] = []
    begin = end = 0
    for start, stop, index in places:
        if members and not 0 <= start - end <= GAP:
            found.append(ContiguousSpan(begin, end - begin, tuple(members), dtype))
            members = []
        if not members:
            begin = start
        members.append((index, start - begin))
        end = stop
    return [*found, ContiguousSpan(begin, end - begin, tuple(members), dtype)] if members else found


class ChunkRows(Struct, frozen=True):
    """The division of one span of memory into chunks, parts and elements."""

    chunks: int
    """The number of full chunks."""
    owners: Array
    """The owner of each number of :meth:`norms`; the last owner for numbers of several owners, and of none."""
    mixed: torch.Tensor | None
    """The chunks in which an owner's elements begin; None for no chunk."""
    split: torch.Tensor | None
    """The parts in which an owner's elements begin; None for no part."""

    @classmethod
    def cut(cls, size: int, edges: Array, owners: Array, nobody: int, device: torch.device) -> ChunkRows:
        """Cut ``size`` elements, of which each owner's begin at an edge, ascending from 0; neighbouring owners differ."""

        def owned(starts: Array, length: int) -> tuple[Array, Array]:
            first, last = (np.searchsorted(edges, place, "right") - 1 for place in (starts, starts + length - 1))
            return np.where(first == last, owners[first], nobody), np.flatnonzero(first != last)

        chunks = size // CHUNK
        of_rows, mixed = owned(np.arange(chunks) * CHUNK, CHUNK)
        parts = (mixed[:, None] * CHUNK + np.arange(0, CHUNK, PART)).reshape(-1)
        of_parts, split = owned(parts, PART)
        elements = (parts[split][:, None] + np.arange(PART)).reshape(-1)
        singles, _ = owned(np.concatenate([elements, np.arange(chunks * CHUNK, size)]), 1)
        index = [torch.from_numpy(places).to(device) if len(places) else None for places in (mixed, parts[split] // PART)]
        return cls(chunks, np.concatenate([of_rows, of_parts, singles]), *index)

    def norms(self, flat: torch.Tensor) -> list[torch.Tensor]:
        """Return norms of chunks, of parts of mixed chunks, and elements of split parts and after the last chunk; fp32 on the device."""
        parts = flat[: self.chunks * CHUNK].view(-1, PART)
        of_parts = torch.linalg.vector_norm(parts, dim=1, dtype=torch.float32).view(-1, CHUNK // PART)
        numbers = [torch.linalg.vector_norm(of_parts, dim=1)]
        if self.mixed is not None:
            numbers.append(of_parts.index_select(0, self.mixed).reshape(-1))
        if self.split is not None:
            numbers.append(parts.index_select(0, self.split).reshape(-1).float())
        if self.chunks * CHUNK < flat.numel():
            numbers.append(flat[self.chunks * CHUNK :].float())
        return numbers


class Norms(Struct, frozen=True):
    """The norms of a step, on the device."""

    numbers: torch.Tensor
    """fp32 ``[numbers]``."""
    owners: Array
    """The piece of each number."""
    pieces: Sequence[tuple[int, str]]
    """The tensor's index and the canonical name of each piece."""

    def squares(self, numbers: Array) -> Array:
        """Return the squared sum of each piece, fp64, from ``numbers`` on the host."""
        with np.errstate(over="ignore", invalid="ignore"):
            wide = numbers.astype(np.float64)
            squared: Array = np.bincount(self.owners, wide * wide, len(self.pieces) + 1)[: len(self.pieces)]
        return squared

    def named(self, squares: Array) -> dict[str, float]:
        """Map canonical names to squared sums, from :meth:`squares`."""
        return added(zip((name for _, name in self.pieces), squares.tolist(), strict=True))

    def by_tensor(self, squares: Array) -> dict[int, float]:
        """Map the index of each tensor to the squared sum of its pieces, from :meth:`squares`."""
        return added(zip((index for index, _ in self.pieces), squares.tolist(), strict=True))


def added(squares: Iterable[tuple[Key, float]]) -> dict[Key, float]:
    """Map each key to the sum of its values."""
    totals: dict[Key, float] = {}
    for key, squared in squares:
        totals[key] = totals.get(key, 0.0) + squared
    return totals


class NormPlan:
    """The piece of each number, planned anew when tensors have other places in memory than the last."""

    def __init__(self) -> None:
        self._of: tuple[object, ...] = ()
        self._groups: list[tuple[list[ContiguousSpan], ChunkRows]] = []
        self._owners: Array = np.empty(0, np.int64)
        self._pieces: list[tuple[int, str]] = []

    def norms(self, pairs: Iterable[tuple[Fused, torch.Tensor]]) -> Norms:
        """Compute the norms of tensors, each with its pieces, on the device."""
        known = list(pairs)
        fused, tensors = tuple(fused for fused, _ in known), [tensor for _, tensor in known]
        spans = spans_of(tensors)
        if self._of != (fused, spans):
            self._make(fused, spans, tensors)
            self._of = fused, spans
        numbers: list[torch.Tensor] = []
        for group, rows in self._groups:
            flats = [span.flat(tensors) for span in group]
            numbers += rows.norms(flats[0] if len(flats) == 1 else torch.cat(flats))
        return Norms(torch.cat(numbers) if numbers else torch.zeros(0), self._owners, self._pieces)

    def _make(self, fused: Sequence[Fused], spans: Sequence[ContiguousSpan], tensors: Sequence[torch.Tensor]) -> None:
        """Group the spans, and cut each group."""
        runs = [sorted(each.runs(), key=lambda run: run.start) for each in fused]
        held = sorted({(index, run.piece) for index, of_tensor in enumerate(runs) for run in of_tensor})
        numbers = {piece: number for number, piece in enumerate(held)}
        nobody, self._groups = len(held), []
        self._pieces = [(index, fused[index].parts[piece].name) for index, piece in held]
        for group in together(spans):
            begins, size = [], 0
            for span in group:
                end = 0
                for index, start in span.members:
                    if start > end:
                        begins.append((size + end, nobody))
                    begins += [(size + start + run.start, numbers[index, run.piece]) for run in runs[index]]
                    end = start + tensors[index].numel()
                size += span.size
            edges, owners = np.array(begins).T
            differ = np.flatnonzero(np.diff(owners, prepend=-1))
            device = tensors[group[0].members[0][0]].device
            self._groups.append((group, ChunkRows.cut(size, edges[differ], owners[differ], nobody, device)))
        self._owners = np.concatenate([rows.owners for _, rows in self._groups]) if self._groups else np.empty(0, np.int64)


def together(spans: Sequence[ContiguousSpan]) -> list[list[ContiguousSpan]]:
    """Group spans by call: each large span by itself, small spans of one type up to :data:`TOGETHER` elements, empty spans nowhere."""
    groups: list[list[ContiguousSpan]] = []
    small: dict[torch.dtype, list[ContiguousSpan]] = {}
    for span in spans:
        if span.size >= TOGETHER:
            groups.append([span])
        elif span.size:
            open_group = small.setdefault(span.dtype, [])
            if sum(each.size for each in open_group) + span.size > TOGETHER:
                groups.append(open_group)
                small[span.dtype] = open_group = []
            open_group.append(span)
    return groups + [group for group in small.values() if group]
