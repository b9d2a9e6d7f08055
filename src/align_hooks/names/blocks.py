"""Fused and padded parameters as blocks of rows.

A layout is ``repeats`` times some rows of the first piece, then of the second, and so on. Megatron's ``linear_qkv`` repeats (queries of a
group, key, value) for each query group, ``[gate; up]`` has one repeat, interleaved rows have as many repeats as rows, and a padded
vocabulary is one repeat of (vocabulary, padding).

A tensor-parallel rank holds blocks with fewer repeats or rows. A distributed optimizer cuts at any element; as a piece keeps the fused
tensor's order, a range of the fused tensor is a range of each piece. In MindFormers' stacks of experts, each expert is transposed, and its
pieces are columns (:class:`Stack`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Any, TypeAlias

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from align_hooks.errors import RefusedRun

Array = NDArray[Any]
Tensor: TypeAlias = Any
"""A numpy array or a torch tensor."""
View: TypeAlias = tuple[int, int, int]
"""The shape of a fused tensor as a view of three axes."""
Ranges: TypeAlias = tuple[tuple[int, int], tuple[int, int], tuple[int, int]]
"""[start, stop) of a piece on each axis of such a view."""
PADDING = "#padding"
"""Suffix of the canonical name of a padded vocabulary's dummy rows; no Hugging Face name has it."""


class Dims(Struct, frozen=True):
    """The sizes of a decoder on which its layouts depend."""

    heads: int
    groups: int
    """Query groups: heads of keys and values."""
    head_dim: int
    ffn: int
    vocabulary: int
    """Without padding."""
    padded: int
    """The vocabulary with padding."""
    expert_ffn: int = 0
    experts: int = 0
    layers: int = 0
    """Without layers for multi-token prediction."""
    q_lora: int = 0
    """The rank of latent attention's queries."""


class Cut(Struct, frozen=True):
    """Part ``index`` of ``count`` equal parts of a parameter along ``axis``, which a tensor-parallel rank holds."""

    axis: int | None = None
    """None for the axis that the name table states."""
    index: int = 0
    count: int = 1


WHOLE = Cut()


class Blocks(Struct, frozen=True):
    """``repeats`` × (``rows[0]`` rows of piece 0, ``rows[1]`` of piece 1, …) along the first axis."""

    repeats: int
    rows: tuple[int, ...]

    @property
    def total(self) -> int:
        """Length of the first axis of the fused tensor."""
        return self.repeats * sum(self.rows)

    def split(self, tensor: Tensor) -> list[Tensor]:
        """Return the pieces of a fused tensor in order, as arrays or tensors like it, and as views where possible."""
        if len(self.rows) == 1:
            return [tensor]
        tail = tuple(tensor.shape[1:])
        runs = tensor.reshape((self.repeats, sum(self.rows), *tail))
        starts = np.cumsum((0, *self.rows)).tolist()
        return [runs[:, start : start + rows].reshape((self.repeats * rows, *tail)) for start, rows in zip(starts, self.rows, strict=False)]

    def join(self, pieces: Sequence[Array]) -> Array:
        """Return the fused array of its pieces, the inverse of :meth:`split`."""
        if len(self.rows) == 1:
            return pieces[0]
        tail = pieces[0].shape[1:]
        runs = [piece.reshape((self.repeats, rows, *tail)) for piece, rows in zip(pieces, self.rows, strict=True)]
        whole: Array = np.concatenate(runs, axis=1).reshape((self.total, *tail))
        return whole

    def shapes(self, shape: Sequence[int]) -> list[tuple[int, ...]]:
        """Return the shapes of the pieces of a fused tensor of ``shape``."""
        return [(self.repeats * rows, *shape[1:]) for rows in self.rows]

    def fused(self, piece: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of the fused tensor whose first piece has the shape ``piece``."""
        return (self.total, *piece[1:])

    @property
    def filled(self) -> Blocks:
        """The same blocks without empty pieces."""
        return Blocks(self.repeats, tuple(rows for rows in self.rows if rows))

    def view(self, shape: Sequence[int]) -> tuple[View, list[Ranges]]:
        """Return a fused tensor's ``shape`` as three axes, and the ranges of each piece there."""
        width, stops = math.prod(shape[1:]), np.cumsum(self.rows).tolist()
        ranges = [((0, self.repeats), (stop - rows, stop), (0, width)) for stop, rows in zip(stops, self.rows, strict=True)]
        return (self.repeats, sum(self.rows), width), ranges

    def before(self, piece: int, element: int, width: int) -> int:
        """Return how many elements of a piece precede ``element`` of the fused tensor, whose rows have ``width`` elements."""
        period, start, size = (rows * width for rows in (sum(self.rows), sum(self.rows[:piece]), self.rows[piece]))
        repeats, rest = divmod(element, period)
        return repeats * size + min(max(rest - start, 0), size)

    def runs(self, piece: int, start: int, stop: int, width: int) -> Iterator[slice]:
        """Yield slices with the elements of a piece in the range [start, stop) of the fused tensor, counted from ``start``."""
        period, offset = sum(self.rows) * width, sum(self.rows[:piece]) * width
        for repeat in range(start // period, -(-stop // period)):
            first = repeat * period + offset
            low, high = max(start, first), min(stop, first + self.rows[piece] * width)
            if low < high:
                yield slice(low - start, high - start)


class Stack(Struct, frozen=True):
    """Matrices of experts, one below the other. Each is transposed: ``columns[0]`` of its columns are piece 0, and so on."""

    experts: int
    height: int
    """Rows of a matrix."""
    columns: tuple[int, ...]

    @property
    def total(self) -> int:
        """Length of the first axis of the stack."""
        return self.experts * self.height

    @property
    def rows(self) -> tuple[int, ...]:
        """Rows of each piece, which are columns of the stack; all pieces of an expert, then those of the next."""
        return self.columns * self.experts

    @property
    def filled(self) -> Stack:
        """The stack itself: no piece is empty."""
        return self

    def shapes(self, shape: Sequence[int]) -> list[tuple[int, ...]]:
        """Return the shapes of the pieces."""
        return [(columns, self.height) for columns in self.rows]

    def fused(self, piece: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of the stack."""
        return (self.total, sum(self.columns))

    def view(self, shape: Sequence[int]) -> tuple[View, list[Ranges]]:
        """Return the stack's shape with an axis for experts, and the ranges of each piece there."""
        stops = np.cumsum(self.columns).tolist()
        columns = [(stop - size, stop) for stop, size in zip(stops, self.columns, strict=True)]
        ranges = [((expert, expert + 1), (0, self.height), part) for expert in range(self.experts) for part in columns]
        return (self.experts, self.height, sum(self.columns)), ranges

    def split(self, tensor: Tensor) -> list[Tensor]:
        """Return the pieces of a stack in order, each a copy in row-major order."""
        shape, ranges = self.view(())
        of_expert = tensor.reshape(shape)
        pieces = (of_expert[expert, :, start:stop].T for (expert, _), _, (start, stop) in ranges)
        return [piece.contiguous() if hasattr(piece, "contiguous") else np.ascontiguousarray(piece) for piece in pieces]

    def join(self, pieces: Sequence[Array]) -> Array:
        """Return the stack of its pieces, the inverse of :meth:`split`."""
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
    """What one of several equal parts of a fused parameter holds, where tensor parallelism cuts its rows."""

    RUNS = "some of the runs, each whole"
    PIECES = "a part of each piece"
    ROWS = "rows as they lie, of whatever piece"


class FusedLayout(Struct, frozen=True):
    """The layout of the pieces in a kind of parameter."""

    name: str
    """For messages."""
    blocks: Callable[[Dims, Sequence[int]], Blocks | Stack]
    """The blocks by the decoder's sizes and the parameter's global shape."""
    division: Division = Division.PIECES
    of_experts: bool = False
    """Whether a parameter holds the pieces of every expert, one expert after the other."""

    def whole(self, dims: Dims, shape: Sequence[int]) -> Blocks | Stack:
        """Return the blocks of a parameter of global ``shape``; raises RefusedRun where they do not fit."""
        blocks = self.blocks(dims, shape)
        if blocks.total != shape[0]:
            raise RefusedRun(f"a parameter of {shape[0]} rows does not have the layout {self.name} of {dims}: that has {blocks.total}")
        return blocks

    def part(self, whole: Blocks | Stack, cut: Cut) -> tuple[Blocks | Stack, list[tuple[int, int]]]:
        """Return a part's blocks along the rows, and the rows [start, stop) of each piece in it; raises RefusedRun for unequal parts."""
        if cut.count == 1:
            return whole, [(0, rows) for rows, *_ in whole.shapes(())]
        if isinstance(whole, Stack):
            raise RefusedRun(f"a parameter in the layout {self.name} is cut into {cut.count} parts, which this version does not read")
        if self.division is Division.ROWS:
            return _rows(whole, cut)
        if self.division is Division.RUNS:
            repeats, divided = whole.repeats // cut.count, whole.rows
        else:
            repeats, divided = 1, tuple(rows // cut.count for rows in whole.rows)
        part = Blocks(repeats, divided)
        if part.total * cut.count != whole.total:
            raise RefusedRun(
                f"a parameter of {whole.total} rows in the layout {self.name}, {whole.repeats} runs of {sum(whole.rows)}, "
                f"has no {cut.count} equal parts of whole runs; use fewer tensor-parallel ranks"
            )
        rows_of = [repeats * rows for rows in divided]
        return part, [(cut.index * rows, (cut.index + 1) * rows) for rows in rows_of]


def _rows(whole: Blocks, cut: Cut) -> tuple[Blocks, list[tuple[int, int]]]:
    """Return the part of a parameter whose rows are cut anywhere, so that a part may hold rows of one piece only."""
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
HEADS = FusedLayout("heads", lambda dims, shape: Blocks(1, (dims.heads,)))
ALL_QUERIES = FusedLayout("all_queries", lambda dims, shape: Blocks(1, (dims.heads * dims.head_dim,)))
ALL_KEYS = FusedLayout("all_keys", lambda dims, shape: Blocks(1, (dims.groups * dims.head_dim,)))
VOCABULARY = FusedLayout("vocabulary", _vocabulary, Division.ROWS)
"""A vocabulary is padded before it is cut, so that its rows are cut wherever the padding begins."""
QUERIES_THEN_KEYS = FusedLayout("latent_queries_then_keys", lambda dims, shape: Blocks(1, (dims.q_lora, shape[0] - dims.q_lora)))
"""Latent attention: the compressed queries, then the compressed keys and values with the key's rotary part."""
STACKED_GATE_UP = FusedLayout(
    "stacked_gate_up",
    lambda dims, shape: Stack(dims.experts, shape[0] // (dims.experts or 1), (shape[1] // 2, shape[1] // 2)),
    of_experts=True,
)
STACKED_DOWN = FusedLayout(
    "stacked_down", lambda dims, shape: Stack(dims.experts, shape[0] // (dims.experts or 1), (shape[1],)), of_experts=True
)
"""MindFormers' ``weight1``, ``[experts · hidden, 2 · ffn]``, and ``weight2``, ``[experts · ffn, hidden]``."""


def rows_and_columns(native: str, shape: Sequence[int]) -> tuple[int, ...]:
    """Return a parameter's shape; of experts that a PyNative model stacks along an axis of their own as if one lay below the other."""
    return (shape[0] * shape[1], shape[2]) if len(shape) == 3 and ".experts." in native else tuple(shape)
