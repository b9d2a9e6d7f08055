"""The points of a dump, each with the numbers or the statistics of its value or its gradient."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from align_hooks.errors import RecordError, shown
from align_hooks.evidence.dumps.entry import BACKWARD, FORWARD, INPUT, OUTPUT, Dump, DumpEntry
from align_hooks.evidence.dumps.points import BS, Fusion, ModuleRow, pattern_of, rows_of, table_of
from align_hooks.names.blocks import Dims
from align_hooks.record.format.layout import Array

STREAM = ("model.embed_tokens", "model.layers.{layer}.input", "model.layers.{layer}")
"""Points that have the rows and the sequence of all points of the micro-batch."""
PARTS = "its shape is not that of whole rows and sequences, as on one rank of several"
FUSED = "its operators are others than are known of it, as where a compiler fuses them or repeats them by micro-batch"
NOTHING = "the dump has neither its numbers nor its norm; dump with task tensor or statistics"
NO_TENSOR = "several projections in one tensor, of which the dump has statistics alone; dump tensors to compare them"
NO_SIZES = "several projections in one tensor, and how it is cut is not known; name the model's config.json with --config"
"""Why something is left out."""


class Heads(NamedTuple):
    """The heads of attention on the rank of the dump."""

    queries: int
    keys: int
    """Number of key heads, and of value heads."""
    size: int
    """Numbers of a head."""

    @property
    def width(self) -> int:
        """Numbers of a token's queries, keys and values together."""
        return (self.queries + 2 * self.keys) * self.size


class PointValue(Struct, frozen=True):
    """A point's value or gradient in a step."""

    step: int
    point: str
    gradient: bool
    parts: tuple[DumpEntry, ...]
    """The micro-batches, in order."""
    sizes: tuple[tuple[int, int], ...]
    """Rows and sequence of each micro-batch."""
    order: str
    columns: Array | None = None
    """The point's columns of a module's output; None for all."""

    @property
    def has_numbers(self) -> bool:
        """Whether the dump has numbers, and not only statistics."""
        return all(part.tensor is not None for part in self.parts)

    @property
    def shape(self) -> tuple[int, ...]:
        """[rows, sequence, width] of the step; [rows, sequence] of token losses."""
        rows, sequence = sum(size[0] for size in self.sizes), self.sizes[0][1]
        width = len(self.columns) if self.columns is not None else self.parts[0].elements // max(1, math.prod(self.sizes[0]))
        return (rows, sequence) if len(self.parts[0].shape) == 2 and width == 1 else (rows, sequence, width)

    def read(self) -> Array:
        """Return the numbers, of :attr:`shape`; raises RecordError as :meth:`DumpEntry.read`."""
        pieces = []
        for part, (rows, sequence) in zip(self.parts, self.sizes, strict=True):
            first = (rows, sequence) if self.order == BS else (sequence, rows)
            array = part.read().reshape(*first, -1)
            array = array if self.order == BS else array.swapaxes(0, 1)
            pieces.append(array if self.columns is None else array[..., self.columns])
        return np.ascontiguousarray(np.concatenate(pieces)).reshape(self.shape)


class DumpPoints(Struct, frozen=True):
    """The points of a dump."""

    framework: str
    values: tuple[PointValue, ...]
    notes: tuple[str, ...]
    """Modules that were left out, and why."""


def points_of(dump: Dump, dims: Dims | None = None) -> DumpPoints:
    """Return the points of a dump, cut by the model's ``dims`` where the dump does not show how; raises RecordError for none."""
    table, path = table_of(dump), dump.path
    if table is None and dump.notes and not dump.classes:
        raise RecordError(f"{path}: {dump.notes[0]}")
    if table is None:
        known = "Megatron-LM, MindFormers or Hugging Face"
        named = f" ({', '.join(shown(path) for path in list(dump.classes)[:3])})" if dump.classes else ""
        raise RecordError(f"{path} names no module of {known}{named}; dump a whole model with its modules")
    rows = rows_of(table, dump.classes)
    reader = _PointReader(dump, dims, rows)
    values: dict[tuple[object, ...], PointValue] = {}
    for row in rows:
        for value in reader.of(row):
            values.setdefault((value.step, value.point, value.gradient), value)
    if not values:
        raise RecordError(f"{path} has modules of {table.name} and nothing that they were given or gave; dump their inputs and outputs")
    ordered = sorted(values.values(), key=lambda value: value.step)
    return DumpPoints(table.name, tuple(ordered), (*dump.notes, *reader.notes()))


class _PointReader:
    """The entries of a dump by step and module, and the modules that are left out."""

    def __init__(self, dump: Dump, dims: Dims | None, rows: Sequence[ModuleRow]) -> None:
        self.dump, self.dims = dump, dims
        self.operators = any(entry.operator for entry in dump.entries)
        self.inside: dict[tuple[int, str], list[DumpEntry]] = defaultdict(list)
        self.left: dict[str, dict[str, None]] = defaultdict(dict)
        self.sizes: dict[tuple[int, int], tuple[int, int]] = {}
        """Step and micro-batch to rows and sequence, of the stream between blocks, or else of any 3-D tensor."""
        for entry in dump.entries:
            if entry.module is not None:
                self.inside[entry.step, entry.module].append(entry)
        for row in sorted(rows, key=lambda row: row.points[0] not in STREAM):
            for step, path, _ in self._matching(row):
                for part in self._parts(row, step, path, gradient=False):
                    if len(part.shape) == 3:
                        size = part.shape[:2] if row.order == BS else part.shape[1::-1]
                        self.sizes.setdefault((step, part.call), (size[0], size[1]))

    def notes(self) -> Iterator[str]:
        for why, names in self.left.items():
            listed = ", ".join(list(names)[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
            yield f"left out: {listed}: {why}"

    def of(self, row: ModuleRow) -> Iterator[PointValue]:
        for step, path, match in self._matching(row):
            if row.kinds and not re.fullmatch(row.kinds, self.dump.classes.get(path, "")):
                continue
            if int(match.groupdict().get("chunk") or 0):
                raise RecordError(f"{self.dump.path} is of several pieces of a model (virtual pipeline), which number their layers anew")
            names = [point.format(layer=match.groupdict().get("layer")) for point in row.points]
            for gradient in (False, True):
                parts = self._parts(row, step, path, gradient=gradient)
                sizes = tuple(size for part in parts if (size := self.sizes.get((step, part.call))) and _fits(part, size, row.order))
                made = self._columns(row, step, path, parts, len(sizes) == len(parts)) if parts else []
                if isinstance(made, str):
                    self.left[made][path] = None
                    continue
                for name, columns in zip(names, made, strict=False):
                    yield PointValue(step, name, gradient, tuple(parts), sizes, row.order, columns)

    def _matching(self, row: ModuleRow) -> Iterator[tuple[int, str, re.Match[str]]]:
        """Yield the steps and paths of a row's modules, in a dump of the row's kind."""
        if row.operators if self.operators else row.modules:
            pattern = pattern_of(row.path)
            yield from ((step, path, match) for step, path in list(self.inside) if (match := pattern.fullmatch(path)))

    def _parts(self, row: ModuleRow, step: int, path: str, *, gradient: bool) -> list[DumpEntry]:
        """Return the tensors of a module, a micro-batch each; of a Cell that of its one operator of the row's kinds."""
        entries = self.inside[step, path]
        if self.operators:
            for kinds, count in () if gradient else row.operators:
                found = [one for one in entries if one.operator.rpartition("-op")[0] in kinds]
                if len({one.operator for one in found}) == count:
                    last = max(found, key=lambda one: one.moment).operator
                    return [one for one in found if (one.operator, one.side, one.index) == (last, row.side, "0")][:1]
            if not gradient:
                self.left[FUSED][path] = None
            return []
        if gradient and row.side == INPUT and not row.sole_consumer:
            return []
        side = row.side if not gradient else {INPUT: OUTPUT, OUTPUT: INPUT}[row.side]
        direction = BACKWARD if gradient else FORWARD
        for index in row.index.split("|"):
            if found := [one for one in entries if (one.direction, one.side, one.index) == (direction, side, index)]:
                return sorted(found, key=lambda one: one.call)
        return []

    def _columns(self, row: ModuleRow, step: int, path: str, parts: Sequence[DumpEntry], fit: bool) -> Sequence[Array | None] | str:
        """Return the columns of each point of a row in a module's output, None for all; or why the module is left out."""
        if not fit:
            return PARTS
        if any(part.tensor is None and part.statistics.norm is None for part in parts):
            return NOTHING
        if row.fusion is None:
            return [None]
        if any(part.tensor is None for part in parts):
            return NO_TENSOR
        width, above = parts[0].shape[-1], self.dump.classes.get(path.rpartition(".")[0], "")
        if row.fusion is Fusion.GROUPS:
            heads = self._heads(step, path, width)
            return NO_SIZES if heads is None else _groups(heads, contiguous=above.endswith("Contiguous"))
        # the input of the next projection has half the width: this one holds a gate, too
        mlp = path.rpartition(".")[0]
        following = self._shape(step, f"{mlp}.linear_fc2", INPUT, ("0",)) or self._shape(step, f"{mlp}.w2", INPUT, ("0",))
        if width % 2 or not following or 2 * following[-1] != width:
            return NO_SIZES
        by_row = above.endswith("Interleaved") or row.path.endswith("w_gate_hidden")
        columns = np.arange(width)
        return [columns[::2], columns[1::2]] if by_row else [columns[: width // 2], columns[width // 2 :]]

    def _heads(self, step: int, path: str, width: int) -> Heads | None:
        """Return the heads of a layer, by the inputs of its core, the outputs of its norms, or the model's sizes; None where unknown."""
        attention = path.rpartition(".")[0]
        for queries, keys in (
            (("core_attention", INPUT, ("0", "query")), ("core_attention", INPUT, ("1", "key"))),
            (("q_layernorm", OUTPUT, ("0",)), ("k_layernorm", OUTPUT, ("0",))),
        ):
            shapes = [self._shape(step, f"{attention}.{name}", side, index) for name, side, index in (queries, keys)]
            if all(len(shape) == 4 for shape in shapes):
                heads = Heads(shapes[0][-2], shapes[1][-2], shapes[0][-1])
                if heads.width == width and heads.keys and heads.queries % heads.keys == 0:
                    return heads
        known = None if self.dims is None else Heads(self.dims.heads, self.dims.groups, self.dims.head_dim)
        return known if known is not None and known.width == width else None

    def _shape(self, step: int, path: str, side: str, indices: Iterable[str]) -> tuple[int, ...]:
        entries = (one for one in self.inside.get((step, path), ()) if one.index in indices)
        shapes = [one.shape for one in entries if (one.direction, one.side) == (FORWARD, side)]
        return max(shapes, key=lambda shape: (len(shape), math.prod(shape)), default=())


def _fits(part: DumpEntry, size: tuple[int, int], order: str) -> bool:
    """Return whether a tensor has the rows and the sequence of its micro-batch, as two axes or as one."""
    rows, sequence = size
    first = (rows, sequence) if order == BS else (sequence, rows)
    return part.shape[:2] == first or (len(part.shape) == 2 and part.shape[0] == rows * sequence)


def _groups(heads: Heads, *, contiguous: bool) -> list[Array]:
    """Return the columns of queries, keys and values: all queries first, or by query group the queries, a key and a value."""
    at = np.arange(heads.width)
    if contiguous:
        queries, keys = heads.queries * heads.size, heads.keys * heads.size
        return np.split(at, [queries, queries + keys])
    each = heads.queries // heads.keys
    by_group = np.split(at.reshape(heads.keys, each + 2, heads.size), [each, each + 1], axis=1)
    return [columns.reshape(-1) for columns in by_group]
