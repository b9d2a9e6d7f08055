"""Fused and padded parameters as blocks of rows.

Every layout of both frameworks has the same form: the first axis is ``repeats`` times a run of rows of the first piece, then
of the second, and so on. Megatron's ``linear_qkv`` repeats (queries of a group, key, value) for each query group. ``[gate; up]``
has a single repeat. Rows interleaved one by one have as many repeats as rows. A padded vocabulary is a single repeat of
(vocabulary, padding). The same code therefore splits and joins them all, exactly and invertibly.

A tensor-parallel rank holds blocks of the same kind, with fewer repeats or shorter rows. A distributed optimizer cuts those at
any element. Within a piece, row-major order is the fused tensor's order, so a range of the fused tensor is a range of each piece.

MindFormers' stacks of experts are the exception: each expert is transposed, and its pieces are columns (:class:`Stack`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from align_hooks.errors import RefusedRun

Array = NDArray[Any]
"""A numpy array of whatever type."""
Tensor: TypeAlias = Any
"""A numpy array or a torch tensor."""
View: TypeAlias = tuple[int, int, int]
"""The shape of a fused tensor that is looked at with three axes."""
Ranges: TypeAlias = tuple[tuple[int, int], tuple[int, int], tuple[int, int]]
"""[start, stop) of a piece on each axis of such a view."""

PADDING = "#padding"
"""Suffix of the canonical name of a padded vocabulary's dummy rows; no Hugging Face name has it."""


@dataclass(frozen=True, slots=True)
class Dims:
    """The sizes of a decoder on which its layouts depend. ``vocabulary`` excludes padding, ``padded`` includes it.

    ``layers`` are those of the decoder, without layers for multi-token prediction. ``q_lora`` is the rank of latent attention's queries.
    """

    heads: int
    groups: int
    head_dim: int
    ffn: int
    vocabulary: int
    padded: int
    expert_ffn: int = 0
    experts: int = 0
    layers: int = 0
    q_lora: int = 0


@dataclass(frozen=True, slots=True)
class Cut:
    """Part ``index`` of ``count`` equal parts of a parameter along ``axis``: what one tensor-parallel rank holds.

    With None the name table says which axis that is.
    """

    axis: int | None = None
    index: int = 0
    count: int = 1


WHOLE = Cut()


@dataclass(frozen=True, slots=True)
class Blocks:
    """``repeats`` × (``rows[0]`` rows of piece 0, ``rows[1]`` of piece 1, …) along the first axis."""

    repeats: int
    rows: tuple[int, ...]

    @property
    def total(self) -> int:
        """Length of the first axis of the fused tensor."""
        return self.repeats * sum(self.rows)

    def split(self, tensor: Tensor) -> list[Tensor]:
        """The pieces of a fused tensor, whole and in order: numpy arrays of an array, torch tensors of a tensor; views where possible."""
        if len(self.rows) == 1:
            return [tensor]
        tail = tuple(tensor.shape[1:])
        runs = tensor.reshape((self.repeats, sum(self.rows), *tail))
        starts = np.cumsum((0, *self.rows)).tolist()
        return [runs[:, start : start + rows].reshape((self.repeats * rows, *tail)) for start, rows in zip(starts, self.rows, strict=False)]

    def join(self, pieces: Sequence[Array]) -> Array:
        """The inverse of :meth:`split`, for numpy arrays."""
        if len(self.rows) == 1:
            return pieces[0]
        tail = pieces[0].shape[1:]
        runs = [piece.reshape((self.repeats, rows, *tail)) for piece, rows in zip(pieces, self.rows, strict=True)]
        whole: Array = np.concatenate(runs, axis=1).reshape((self.total, *tail))
        return whole

    def shapes(self, shape: Sequence[int]) -> list[tuple[int, ...]]:
        """The shapes of the pieces of a fused tensor of ``shape``."""
        return [(self.repeats * rows, *shape[1:]) for rows in self.rows]

    def fused(self, piece: Sequence[int]) -> tuple[int, ...]:
        """The shape of the fused tensor whose first piece has the shape ``piece``."""
        return (self.total, *piece[1:])

    @property
    def filled(self) -> Blocks:
        """The same without pieces of no rows."""
        return Blocks(self.repeats, tuple(rows for rows in self.rows if rows))

    def view(self, shape: Sequence[int]) -> tuple[View, list[Ranges]]:
        """A view of three axes of a fused tensor of ``shape``, and the ranges of each piece in it."""
        width, stops = math.prod(shape[1:]), np.cumsum(self.rows).tolist()
        bounds = [(stop - rows, stop) for stop, rows in zip(stops, self.rows, strict=True)]
        ranges = [((0, self.repeats), rows, (0, width)) for rows in bounds]
        return (self.repeats, sum(self.rows), width), ranges

    def before(self, piece: int, element: int, width: int) -> int:
        """How many elements of a piece stand before ``element`` of the fused tensor, whose rows have ``width`` elements."""
        period, start = sum(self.rows) * width, sum(self.rows[:piece]) * width
        repeats, rest = divmod(element, period)
        size = self.rows[piece] * width
        return repeats * size + min(max(rest - start, 0), size)

    def runs(self, piece: int, start: int, stop: int, width: int) -> Iterator[slice]:
        """Where the elements of a piece lie in the range [start, stop) of the fused tensor, counted from ``start``."""
        period, offset = sum(self.rows) * width, sum(self.rows[:piece]) * width
        for repeat in range(start // period, -(-stop // period)):
            first = repeat * period + offset
            low, high = max(start, first), min(stop, first + self.rows[piece] * width)
            if low < high:
                yield slice(low - start, high - start)


@dataclass(frozen=True, slots=True)
class Stack:
    """``experts`` matrices of ``height`` rows, one below the other; each is transposed, and ``columns[0]`` of its columns are piece 0.

    An expert's pieces follow each other, then those of the next expert.
    """

    experts: int
    height: int
    columns: tuple[int, ...]

    @property
    def total(self) -> int:
        """Length of the first axis of the stack."""
        return self.experts * self.height

    @property
    def rows(self) -> tuple[int, ...]:
        """Rows of each piece, which are columns here."""
        return self.columns * self.experts

    @property
    def filled(self) -> Stack:
        """The stack itself: no piece is without rows."""
        return self

    def shapes(self, shape: Sequence[int]) -> list[tuple[int, ...]]:
        """The shapes of the pieces."""
        return [(columns, self.height) for columns in self.rows]

    def fused(self, piece: Sequence[int]) -> tuple[int, ...]:
        """The shape of the stack."""
        return (self.total, sum(self.columns))

    def view(self, shape: Sequence[int]) -> tuple[View, list[Ranges]]:
        """The stack with an axis for experts, and the ranges of each piece in it."""
        stops = np.cumsum(self.columns).tolist()
        columns = [(stop - size, stop) for stop, size in zip(stops, self.columns, strict=True)]
        ranges = [((expert, expert + 1), (0, self.height), part) for expert in range(self.experts) for part in columns]
        return (self.experts, self.height, sum(self.columns)), ranges

    def split(self, tensor: Tensor) -> list[Tensor]:
        """The pieces of a stack, whole and in order, each a copy in row-major order."""
        shape, ranges = self.view(())
        of_expert = tensor.reshape(shape)
        pieces = (of_expert[expert, :, start:stop].T for (expert, _), _, (start, stop) in ranges)
        return [piece.contiguous() if hasattr(piece, "contiguous") else np.ascontiguousarray(piece) for piece in pieces]

    def join(self, pieces: Sequence[Array]) -> Array:
        """The inverse of :meth:`split`, for numpy arrays."""
        shape, ranges = self.view(())
        whole = np.empty(shape, pieces[0].dtype)
        for piece, ((expert, _), _, (start, stop)) in zip(pieces, ranges, strict=True):
            whole[expert, :, start:stop] = piece.T
        return whole.reshape(self.fused(()))

    def before(self, piece: int, element: int, width: int) -> int:
        """Raise RefusedRun: a range of a stack is no range of its pieces."""
        raise RefusedRun("an optimizer cuts through the rows of stacked experts, which this version does not read; let it hold them whole")

    def runs(self, piece: int, start: int, stop: int, width: int) -> Iterator[slice]:
        """Raise RefusedRun, as :meth:`before` does."""
        raise RefusedRun("an optimizer cuts through the rows of stacked experts, which this version does not read; let it hold them whole")


class Division(Enum):
    """What each of several equal parts of a fused parameter holds, where tensor parallelism cuts its rows."""

    RUNS = "some of the runs, each whole"
    PIECES = "a part of each piece"
    ROWS = "rows as they lie, of whatever piece"


@dataclass(frozen=True, slots=True)
class FusedLayout:
    """How the pieces lie in a kind of parameter: ``blocks`` gives its blocks by the decoder's sizes and the parameter's whole shape.

    ``of_experts`` says that a parameter has the pieces of every expert, one expert after the other. A family that lays its parameters out
    in another way brings a layout of its own. ``name`` is for messages.
    """

    name: str
    blocks: Callable[[Dims, Sequence[int]], Blocks | Stack]
    division: Division = Division.PIECES
    of_experts: bool = False

    def whole(self, dims: Dims, shape: Sequence[int]) -> Blocks | Stack:
        """The blocks of a whole parameter of ``shape``; raises RefusedRun where they do not fit."""
        blocks = self.blocks(dims, shape)
        if blocks.total != shape[0]:
            raise RefusedRun(f"a parameter of {shape[0]} rows does not have the layout {self.name} of {dims}: that has {blocks.total}")
        return blocks

    def part(self, whole: Blocks | Stack, cut: Cut) -> tuple[Blocks | Stack, list[tuple[int, int]]]:
        """The blocks of a part along the rows, and which rows [start, stop) of each whole piece it holds.

        Raises RefusedRun where the parts are not equal.
        """
        if cut.count == 1:
            return whole, [(0, rows) for rows, *_ in whole.shapes(())]
        if isinstance(whole, Stack):
            raise RefusedRun(f"a parameter in the layout {self.name} is cut into {cut.count} parts, which this version does not read")
        if self.division is Division.ROWS:
            return _rows(whole, cut)
        by_run = self.division is Division.RUNS
        divided = whole.rows if by_run else tuple(rows // cut.count for rows in whole.rows)
        repeats = whole.repeats // cut.count if by_run else 1
        part = Blocks(repeats, divided)
        if part.total * cut.count != whole.total:
            raise RefusedRun(
                f"a parameter of {whole.total} rows in the layout {self.name}, {whole.repeats} runs of {sum(whole.rows)}, "
                f"has no {cut.count} equal parts of whole runs; use fewer tensor-parallel ranks"
            )
        rows_of = [repeats * rows for rows in divided]
        return part, [(cut.index * rows, (cut.index + 1) * rows) for rows in rows_of]


def _rows(whole: Blocks, cut: Cut) -> tuple[Blocks, list[tuple[int, int]]]:
    """The part of a parameter whose rows are cut as they lie: such a part may hold rows of a single piece."""
    share = whole.total // cut.count
    start, stop = cut.index * share, (cut.index + 1) * share
    bounds = [
        (min(max(start - first, 0), rows), min(max(stop - first, 0), rows))
        for first, rows in zip(np.cumsum((0, *whole.rows)).tolist(), whole.rows, strict=False)
    ]
    return Blocks(1, tuple(high - low for low, high in bounds)), bounds


def _vocabulary(dims: Dims, shape: Sequence[int]) -> Blocks:
    padding = dims.padded - dims.vocabulary
    return Blocks(1, (dims.vocabulary, padding) if padding > 0 else (shape[0],))


def _qkv(dims: Dims) -> tuple[int, int, int]:
    return (dims.heads // dims.groups * dims.head_dim, dims.head_dim, dims.head_dim)


UNFUSED = FusedLayout("whole", lambda dims, shape: Blocks(1, (shape[0],)))
QKV_PER_GROUP = FusedLayout("qkv_per_group", lambda dims, shape: Blocks(dims.groups, _qkv(dims)), Division.RUNS)
QKV_CONTIGUOUS = FusedLayout("qkv_contiguous", lambda dims, shape: Blocks(1, tuple(dims.groups * rows for rows in _qkv(dims))))
GATE_THEN_UP = FusedLayout("gate_then_up", lambda dims, shape: Blocks(1, (dims.ffn, dims.ffn)))
GATE_UP_BY_ROW = FusedLayout("gate_up_by_row", lambda dims, shape: Blocks(dims.ffn, (1, 1)), Division.RUNS)
HALVES = FusedLayout("halves", lambda dims, shape: Blocks(1, (shape[0] // 2, shape[0] // 2)))
HALVES_BY_ROW = FusedLayout("halves_by_row", lambda dims, shape: Blocks(shape[0] // 2, (1, 1)), Division.RUNS)
EXPERT_GATE_THEN_UP = FusedLayout("expert_gate_then_up", lambda dims, shape: Blocks(1, (dims.expert_ffn, dims.expert_ffn)))
VOCABULARY = FusedLayout("vocabulary", _vocabulary, Division.ROWS)
"""The layouts of the two frameworks. A vocabulary is padded at its end as a whole, and its rows are cut wherever that end falls."""

QUERIES_THEN_KEYS = FusedLayout("latent_queries_then_keys", lambda dims, shape: Blocks(1, (dims.q_lora, shape[0] - dims.q_lora)))
"""Of latent attention: the compressed queries, then the compressed keys and values with the key's turned part."""

STACKED_GATE_UP = FusedLayout(
    "stacked_gate_up",
    lambda dims, shape: Stack(dims.experts, shape[0] // (dims.experts or 1), (shape[1] // 2, shape[1] // 2)),
    of_experts=True,
)
STACKED_DOWN = FusedLayout(
    "stacked_down", lambda dims, shape: Stack(dims.experts, shape[0] // (dims.experts or 1), (shape[1],)), of_experts=True
)
"""MindFormers' ``weight1``, ``[experts · hidden, 2 · ffn]``, and ``weight2``, ``[experts · ffn, hidden]``."""
