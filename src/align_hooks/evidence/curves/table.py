"""The curves of tables: CSV files and JSON lines, as W&B, MLflow and people export them.

A chart of W&B is a file with a column ``NAME OF THE RUN - name of the curve`` and, beside it, ``…__MIN`` and ``…__MAX``;
a directory of such files is one run. ``run.history()`` gives columns by the curves' names and ``_step``.
"""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from align_hooks.errors import RecordError, shown
from align_hooks.evidence.curves.series import STEPS, Found, listed, spelled
from align_hooks.record.format.files import in_words, list_folder
from align_hooks.regular import ReadLimits, lines_of, whole_number

SUFFIXES = (".csv", ".jsonl")
OF_CHART = " - "
"""Separator of the name of a run and the name of a curve."""
SPREAD = ("__MIN", "__MAX")
FRAMEWORKS = {"lm loss", "lm-loss", "grad-norm", "learning-rate"}
"""Curves of the frameworks themselves, whose first step is number 1."""


def is_table(source: Path) -> bool:
    """Return whether a path is a table, or a directory of tables only."""
    if source.is_dir():
        files = [file for file in list_folder(source) if not file.name.startswith(".")]
        return bool(files) and all(file.suffix.lower() in SUFFIXES for file in files)
    return source.suffix.lower() in SUFFIXES


def read_tables(source: Path) -> Found:
    """Return the curves of a table, or of a directory of tables of one run; raises RecordError for tables of any other kind."""
    folder = source if source.is_dir() else None
    curves: dict[str, dict[int, float]] = defaultdict(dict)
    for file in list_folder(source) if folder else [source]:
        if not file.name.startswith("."):
            for name, step, value in points(file, folder):
                curves[name][step] = value
    if not curves:
        raise RecordError(f"{source} has no curve; its columns are to be step, loss and the like")
    runs = {name.rpartition(OF_CHART)[0] for name in curves if OF_CHART in name}
    if len(runs) > 1:
        raise RecordError(f"{source} has curves of {len(runs)} runs, {listed(sorted(runs))}; export one run at a time")
    named = {name.rpartition(OF_CHART)[2]: curve for name, curve in curves.items()}
    return Found(named, str(source), first=1 if FRAMEWORKS & {*map(spelled, named)} else None)


def points(file: Path, folder: Path | None) -> Iterator[tuple[str, int, float]]:
    """Yield name, step and value of every number of a table."""
    is_empty = True
    for number, record in enumerate(records(file, folder), 2):
        column = next((name for name in record if name.lower() in STEPS), None)
        if column is None:
            raise RecordError(f"{file}:{number} has no column of steps, {listed(STEPS)}; it has {listed(list(record))}")
        step = real(record[column])
        if step is None or step != step or step % 1 or not 0 <= step < 1e15:
            raise RecordError(f"{file}:{number} has {str(record[column])[:40]!r} as its step, which is no number of one")
        for name, cell in record.items():
            if cell != "" and name != column and not name.endswith(SPREAD) and (value := real(cell)) is not None:
                is_empty = False
                yield name, int(step), value
    if is_empty:
        raise RecordError(f"{file} holds no number of a step")


def records(file: Path, folder: Path | None) -> Iterator[Mapping[str, object]]:
    """Yield the rows of a table by the names of its columns; raises RecordError for a file that is no table."""
    cells = 0
    try:
        lines = lines_of(file, folder, "utf-8-sig")
        reader = csv.DictReader(lines, restkey="", restval="") if file.suffix.lower() != ".jsonl" else None
        for row in reader or of_json(lines, file):
            cells += len(row) if reader is None else len(reader.fieldnames or ())  # of which several may have one name
            if cells > ReadLimits.CELLS:
                raise ValueError(f"it has more than {ReadLimits.CELLS} cells")
            yield row
    except (OSError, ValueError, csv.Error) as error:
        raise RecordError(f"{file} cannot be read: {shown(in_words(error))}; export it again, of fewer steps or columns") from None


def of_json(lines: Iterable[str], file: Path) -> Iterator[Mapping[str, object]]:
    """Yield the objects of JSON lines."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line, parse_int=whole_number)
        except (ValueError, RecursionError) as error:
            raise RecordError(f"{file}:{number} is no JSON: {shown(in_words(error))}") from None
        if not isinstance(record, dict):
            raise RecordError(f"{file}:{number} is no object of JSON")
        yield record


def real(cell: object) -> float | None:
    """Return the number in a cell; None for an empty cell and for text."""
    if isinstance(cell, bool) or not isinstance(cell, int | float | str):
        return None
    try:
        return float(cell)
    except (ValueError, OverflowError):
        return None
