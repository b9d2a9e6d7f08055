"""MindSpore's own dumps of graph mode: of the CPU, of a GPU, and of Ascend at ``jit_level`` O0, O1 and O2.

A directory of one graph and one iteration (``DUMP/rank_0/NET/GRAPH/ITERATION``; of O2 also ``…/step_N``) holds a file for every input and
output of every operator, ``TYPE.NAME.TASK.STREAM.TIMESTAMP.input.0.FORMAT[.DTYPE].npy``, or a row of ``statistic.csv``, or both.
``mapping.csv`` has the names that were too long for a file. NAME is the operator's scope with underscores for slashes:
``Default_network-LlamaForCausalLM_model-LlamaModel_layers-CellList_0-LLamaDecodeLayer_attention-LLamaAttention_wq-Linear_MatMul-op0``.
``execution_order``, if present, has the scopes with slashes; else a scope is split at its hyphens.

Operators below ``Default`` are the forward pass. Operators below ``Gradients`` are left out, for MindSpore names the backward pass of a
kind of operator once: ``Gradients/…/lm_head-Linear/Grad_MatMul`` stands for every layer.
"""

from __future__ import annotations

import csv
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from align_hooks.errors import RecordError, shown
from align_hooks.evidence.dumps.entry import AGAIN, FORWARD, MOST_ELEMENTS, Dump, DumpEntry, Statistics
from align_hooks.record.format.files import in_words, is_folder_in, list_folder, read_array
from align_hooks.regular import lines_of

DEEPEST = 6
"""Most directories between the named one and an iteration's."""
MOST = 200_000
"""Most directories that are searched."""
FILE = re.compile(
    r"(?P<type>\w{1,200})\.(?P<name>[^/]{1,4000})\.(?P<task>\d{1,20})\.(?P<stream>\d{1,20})\.(?P<time>\d{1,20})"
    r"\.(?P<side>input|output)\.(?P<slot>\d{1,9})\.(?P<format>\w{1,40})(?:\.(?P<dtype>\w{1,20}))?\.npy"
)
HIDDEN = re.compile(r"\d{1,40}\.npy")
"""A file whose own name was too long."""
ITERATION, RANK = re.compile(r"(?:step_)?(\d{1,15})"), re.compile(r"rank_?(\d{1,9})")
OPERATOR = re.compile(r"(?P<scope>Default_.+)_(?P<operator>[A-Za-z0-9]+-op\d{1,18})")
"""The name of an operator of the forward pass that stands in a Cell."""
STATISTIC, MAPPING, ORDER = "statistic.csv", "mapping.csv", "execution_order"
HEAD = ("Op Type", "Op Name", "Timestamp", "Slot", "Data Type", "Shape")
"""Columns that ``statistic.csv`` always has; the statistics follow."""
SIDE = ("IO", "Input/Output")
COLUMNS = {"Max Value": "maximum", "Min Value": "minimum", "Avg Value": "mean", "L2Norm Value": "norm"}
SHAPE = re.compile(r"\(?((?:\d{1,18},? ?)*)\)?")
T = TypeVar("T", int, float)
INTEGER = re.compile(r"[0-9]{1,20}")
NUMBER = re.compile(r"[-+]?(?:\d{1,400}(?:\.\d{0,400})?|\.\d{1,400})(?:[eE][-+]?\d{1,4})?|[-+]?(?:nan|inf)", re.IGNORECASE)


class _Iteration(NamedTuple):
    rank: int
    step: int
    graph: str
    folder: Path


def holds(path: Path) -> bool:
    """Return whether a directory is a dump of MindSpore, or a rank, a graph or an iteration of a dump."""
    return bool(_iterations(path))


def read_mindspore(path: Path) -> Dump:
    """Read the dump of one rank; raises RecordError for a damaged one, for several ranks, and without a forward pass."""
    iterations = _iterations(path)
    if len(ranks := sorted({one.rank for one in iterations})) > 1:
        raise RecordError(f"{path} holds ranks {ranks[0]} to {ranks[-1]}, and a dump does not say who holds what; name rank_N of one")
    scopes, backward = _scopes(path), 0
    classes: dict[str, str] = {}
    entries: list[DumpEntry] = []
    for iteration in iterations:
        for row in _rows(iteration):
            module = _module(row, scopes, classes)
            if module is None:
                backward += row.name.startswith("Gradients")
                continue
            shape = row.shape
            if shape is None:
                shape = read_array(row.file, headers_only=True, within=row.file.parent).shape if row.file is not None else ()
            name, (cell, operator) = f"{row.type}.{row.name}.{row.side}.{row.slot}", module
            of_row = (row.side, row.slot, 0, iteration.step, shape, row.dtype, row.statistics, row.file)
            entries.append(DumpEntry(name, cell, FORWARD, *of_row, operator=operator, moment=row.time))
    if not entries:
        raise RecordError(
            f"{path} has no operator of a Cell's forward pass; dump with dump_mode 0, and at an iteration that the run reached"
        )
    note = f"{backward} inputs and outputs of backward operators are left out: MindSpore names many of them after another layer"
    return Dump(path, "MindSpore", "ms", tuple(entries), classes, (note,) if backward else ())


def _iterations(path: Path) -> list[_Iteration]:
    found, seen, waiting = list[_Iteration](), 0, [(path, 0)]
    while waiting:
        folder, depth = waiting.pop()
        seen += 1
        if seen > MOST:
            raise RecordError(f"{path} holds more than {MOST} directories; name the dump alone")
        try:
            with os.scandir(folder) as listed:
                members = list(listed)
        except OSError as error:
            raise RecordError(f"{folder} cannot be read: {in_words(error)}") from None
        files = any(one.name == STATISTIC or FILE.fullmatch(one.name) or HIDDEN.fullmatch(one.name) for one in members)
        if files and (match := ITERATION.fullmatch(folder.name)):
            rank = next((int(name[1]) for part in reversed(folder.parts) if (name := RANK.fullmatch(part))), 0)
            found.append(_Iteration(rank, int(match[1]), folder.parent.name, folder))
        elif depth < DEEPEST:
            waiting += [(Path(one.path), depth + 1) for one in members if one.is_dir(follow_symlinks=False) and one.name != "constants"]
    return sorted(found)


class _Row(Struct, frozen=True):
    """An input or an output of an operator, from the table or a file's name."""

    type: str
    name: str
    time: int
    side: str
    slot: str
    dtype: str
    shape: tuple[int, ...] | None = None
    statistics: Statistics = Statistics()
    file: Path | None = None

    @property
    def key(self) -> tuple[object, ...]:
        return self.name, self.side, self.slot, self.time


def _rows(iteration: _Iteration) -> Iterator[_Row]:
    """Yield the rows of an iteration, the files joined with the rows of the table."""
    hidden = _mapping(iteration.folder / MAPPING)
    rows = {row.key: row for row in _table(iteration.folder / STATISTIC)}
    for name in (one.name for one in list_folder(iteration.folder)):
        match = FILE.fullmatch(hidden.get(name, name))
        if match is None:
            if HIDDEN.fullmatch(name):
                raise RecordError(f"{iteration.folder / name} has its name in {MAPPING}, which lacks it; copy the whole dump, or {AGAIN}")
            continue
        row = _Row(match["type"], match["name"], int(match["time"]), match["side"], match["slot"], (match["dtype"] or "").lower())
        listed = rows.pop(row.key, row)
        yield replace(listed, file=iteration.folder / name)
    if lost := next((name for name in hidden if not (iteration.folder / name).is_file()), None):
        raise RecordError(f"{iteration.folder / lost} is missing, {MAPPING} has it; copy the whole dump, or {AGAIN}")
    yield from rows.values()


def _lines(path: Path, *, ended: bool = False) -> Iterator[str]:
    """Yield the lines of a table, each with its end, which the last must have if ``ended``; raises RecordError for what is no such text."""
    try:
        for line in lines_of(path, path.parent):
            if ended and line[-1] not in "\r\n":
                raise RecordError(f"{path} ends within a row, as of a run that was killed; {AGAIN}")
            yield line
    except (OSError, ValueError) as error:
        raise RecordError(f"{path} cannot be read: {shown(in_words(error))}; copy it again, or {AGAIN}") from None


def _mapping(path: Path) -> Mapping[str, str]:
    """Return name of a file to the name that was too long for it."""
    names: dict[str, str] = {}
    for number, line in enumerate(filter(None, map(str.rstrip, _lines(path))) if path.exists() else (), 1):
        file, comma, name = line.partition(",")
        if not comma or not HIDDEN.fullmatch(file):
            raise RecordError(f"{path}:{number} does not give a name to a file; copy it again, or {AGAIN}")
        names[file] = name
    return names


def _table(path: Path) -> Iterator[_Row]:
    if not path.exists():
        return
    rows = csv.reader(_lines(path, ended=True), strict=True)  # row by row: a list of all cells takes fifty times the memory of their text
    try:
        head = [name.strip() for name in next(rows, [])]
        side = next((name for name in SIDE if name in head), None)
        if side is None or any(name not in head for name in HEAD):
            raise RecordError(f"{path}:1 is not the head of MindSpore's {STATISTIC}; {AGAIN}")
        for number, cells in enumerate(rows, 2):
            if cells:
                yield _row(dict(zip(head, cells, strict=False)), side, len(cells) >= len(head), f"{path}:{number}")
    except csv.Error as error:
        raise RecordError(f"{path} is no table ({shown(in_words(error))}); {AGAIN}") from None


def _row(cells: Mapping[str, str], side: str, complete: bool, where: str) -> _Row:
    try:
        shape = SHAPE.fullmatch(cells["Shape"].strip())
        if not complete or shape is None or cells[side] not in ("input", "output"):
            raise ValueError("a cell is missing, or of another kind")
        sizes = tuple(int(size) for size in re.findall(r"\d+", shape[1]))
        if math.prod(sizes) >= MOST_ELEMENTS:
            raise ValueError("its shape is of more elements than any tensor has")
        time, slot = (_number(cells[name], INTEGER, "whole number", int) for name in ("Timestamp", "Slot"))
        there = {name: cells[name] for name in COLUMNS if cells.get(name, "").strip() not in ("", "null")}  # else MindSpore has none
        statistics = Statistics(**{COLUMNS[name]: _number(cell.strip(), NUMBER, "number", float) for name, cell in there.items()})
        name = cells["Op Name"].replace("/", "_")
        return _Row(cells["Op Type"], name, time, cells[side], str(slot), cells["Data Type"].lower(), sizes, statistics)
    except (KeyError, ValueError) as error:
        raise RecordError(f"{where} is no row of MindSpore's {STATISTIC} ({shown(in_words(error))}); {AGAIN}") from None


def _number(text: str, pattern: re.Pattern[str], what: str, kind: Callable[[str], T]) -> T:
    if not pattern.fullmatch(text):
        raise ValueError(f"{text[:40]!r} is no {what}")
    return kind(text)


def _scopes(path: Path) -> Mapping[str, str]:
    """Return the scope of operators with underscores to the scope with slashes, of every graph; empty without ``execution_order``."""
    folders = [one / ORDER for one in (path, *path.parents[:DEEPEST]) if (one / ORDER).is_dir()][:1]
    if not folders:
        ranks = (one for one in list_folder(path) if one.name.startswith("rank_") and is_folder_in(one, path))
        folders = [rank / ORDER for rank in ranks if (rank / ORDER).is_dir()]
    files = (one for folder in folders for one in list_folder(folder) if re.fullmatch(r"ms_execution_order_graph_.*\.csv", one.name))
    # only scopes: MindSpore renumbers some operators after it has written the order
    scopes = {line.rstrip().rpartition("/")[0] for file in files for line in _lines(file)}
    return {scope.replace("/", "_"): scope for scope in sorted(scopes)}


def _module(row: _Row, scopes: Mapping[str, str], classes: dict[str, str]) -> tuple[str, str] | None:
    """Return the path of an operator's Cell, and the operator; None outside the forward pass. Adds the Cells' classes to ``classes``."""
    match = OPERATOR.fullmatch(row.name)
    if match is None:
        return None
    cells = _hyphened(match["scope"])
    if (scope := scopes.get(match["scope"])) is not None:  # reserve_class_name_in_scope=False leaves out classes
        cells = [(attribute, kind) for attribute, _, kind in (cell.partition("-") for cell in scope.split("/")[1:])]
    if cells is None or any("Grad_" in attribute for attribute, _ in cells):
        return None
    path = ""
    for attribute, kind in cells:
        path = f"{path}.{attribute}" if path else attribute
        classes.setdefault(path, kind)
    return path, match["operator"]


def _hyphened(scope: str) -> Sequence[tuple[str, str]] | None:
    """Return attribute and class of every Cell of a scope whose slashes are lost; None for an ambiguous scope."""
    attribute, *between = scope.removeprefix("Default_").split("-")
    cells = []
    for piece in between[:-1]:
        # a class, which has underscores only at its start, and the next attribute
        match = re.fullmatch(r"(_*[^_]+)_(.+)", piece)
        if match is None:
            return None
        cells.append((attribute, match[1]))
        attribute = match[2]
    return [*cells, (attribute, between[-1])] if between else None
