"""Curves that a finished run left in other tools' files, as rows of scalars, each number at its own step.

Steps may have gaps. A step that was logged twice, by a run that was resumed from an earlier checkpoint, counts as it was logged last.

``tags.txt`` has the frameworks' names of curves. Megatron-LM (``training_log``) logs the learning rate of the next step, and to TensorBoard
and W&B the loss of the step itself, where its text log has the mean since the line before. MindFormers logs in ``MFLossMonitor``.

A chart of W&B is a file with a column ``NAME OF THE RUN - name of the curve`` and, beside it, ``…__MIN`` and ``…__MAX``; a directory of
such files is one run. ``run.history()`` gives columns by the curves' names and ``_step``. MLflow and people export tables, too.

TensorBoard's own reader, which needs no TensorFlow, reads its event files. Megatron-LM writes them on one rank, MindFormers on every rank
into a folder ``rank_N``, each with that rank's own loss.
"""

from __future__ import annotations

import csv
import json
import math
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct, field

from align_hooks.configuration.values import FRAMEWORKS
from align_hooks.data_file import sections
from align_hooks.errors import AlignHooksError, RecordError, shown
from align_hooks.evidence.recording import Row, Scalars, row_of
from align_hooks.record.format.files import in_words, is_folder_in, list_folder
from align_hooks.regular import ReadLimits, lines_of, open_regular, whole_number

Curves: TypeAlias = Mapping[str, Mapping[int, float]]
"""Name of a curve to number of a step, as the tool counts, to value."""
Names: TypeAlias = Mapping[str, tuple[str, ...]]
"""A quantity of a row to its names, the best first."""
FLOAT32 = 2.0**-24
"""Relative rounding error of a value that was kept in fp32."""


class Tags(Struct, frozen=True):
    """The names that a framework gives to the quantities of a row."""

    side: str | None
    """``torch`` or ``ms``; None of names that people give."""
    names: Names
    rate_of_next: bool = False
    """Whether a learning rate stands at the step before the one that uses it."""


def _names(head: str) -> Names:
    lines = (line.partition(": ") for line in SECTIONS[head])
    return {quantity: tuple(names.split(", ")) for quantity, _, names in lines}


SECTIONS = sections(Path(__file__).with_name("tags.txt"))
MEGATRON, MINDFORMERS = Tags("torch", _names("torch"), rate_of_next=True), Tags("ms", _names("ms"))
BY_HAND = _names("by hand")
"""Names in tables that people make."""
STEPS = _names("steps")["step"]
"""Columns that number the rows of a table."""
OF_SAMPLES = " vs samples"
"""Suffix, in both frameworks, of a curve over consumed samples."""
SUFFIXES = (".csv", ".jsonl")
OF_CHART = " - "
"""Separator of the name of a run and the name of a curve."""
SPREAD = ("__MIN", "__MAX")
OF_FRAMEWORKS = {"lm loss", "lm-loss", "grad-norm", "learning-rate"}
"""Curves of the frameworks themselves, whose first step is number 1."""
EVENTS = "events.out.tfevents."
"""Part of the name of an event file."""


class Found(Struct, frozen=True):
    """Curves that a tool left."""

    curves: Curves
    source: str
    first: int | None = 1
    """The tool's number of step 0; None where unknown."""
    resolution: float = 0.0
    """Relative uncertainty of a value."""
    notes: list[str] = field(default_factory=list)


def scalars_of(found: Found, side: str | None) -> Scalars:
    """Return the rows of curves of a ``side``, None where it is not said; raises RecordError without a curve of the loss."""
    curves = {spelled(name): curve for name, curve in found.curves.items() if curve}
    tags = tags_of(found, side)
    best = {quantity: next(filter(curves.get, map(spelled, names)), None) for quantity, names in tags.names.items()}
    named = {quantity: curves[name] for quantity, name in best.items() if name is not None}
    if "loss" not in named:
        raise RecordError(f"{found.source} has no curve of the loss, {listed(tags.names['loss'])}; it has {listed(list(found.curves))}")
    notes, numbers, first = list(found.notes), sorted(named["loss"]), found.first
    if first is None:
        first = 0 if numbers[0] == 0 else 1
        notes.append(f"its steps begin with {numbers[0]}: step 0 is taken to be number {first}")
    back = {"learning_rate": 1} if tags.rate_of_next else {}
    rows: list[Row] = []
    for number in numbers:
        if number >= first:
            values: dict[str, float | None] = {name: named.get(name, {}).get(number - back.get(name, 0)) for name in BY_HAND}
            samples = values["consumed_samples"]
            values["consumed_samples"] = int(samples) if samples is not None and math.isfinite(samples) else None
            rows.append(row_of(number - first, **values, skipped=False))
    if not rows:
        raise RecordError(f"{found.source} has its loss at step {numbers[0]} alone, before the first, which is number {first}")
    if tags.side is None:
        notes.append("nothing says which framework made it, so its learning rates are left out: --side torch or --side ms")
    if tags.rate_of_next:
        notes.append("Megatron-LM logs the learning rate of the step after: that of the first step is not known")
    largest = {name: max(map(abs, filter(math.isfinite, curve.values())), default=0.0) for name, curve in named.items()}
    resolution = {name: found.resolution * largest[name] for name in ("loss", "grad_norm") if name in named}
    return Scalars(tags.side, rows, resolution | {"learning_rate": found.resolution}, notes)


def tags_of(found: Found, side: str | None) -> Tags:
    """Return the names of the framework of curves, or of people where neither the curves nor ``side`` say which that is."""
    if side not in (None, *FRAMEWORKS):
        raise AlignHooksError(f"--side {side}: choose one of {', '.join(FRAMEWORKS)}")
    names = {spelled(name) for name in found.curves}
    known = MEGATRON if "lm loss" in names else MINDFORMERS if f"loss{OF_SAMPLES}" in names else None
    if known is not None and side in (None, known.side):
        return known
    if side is None:
        # whether a rate is of its step or of the next is the framework's habit
        return Tags(None, {**BY_HAND, "learning_rate": ()})
    own = (MEGATRON if side == MEGATRON.side else MINDFORMERS).names
    return Tags(side, {name: tuple(dict.fromkeys((*own[name], *BY_HAND[name]))) for name in BY_HAND})


def spelled(name: str) -> str:
    """Return a name in one spelling: tensorboardX, which MindFormers uses, writes ``_`` for a space."""
    return name.lower().replace("_", " ")


def over_samples(curves: Mapping[str, Sequence[tuple[int, float]]]) -> dict[int, float]:
    """Return the samples consumed at each step, from a curve over steps and the same curve over samples."""
    by_name = {spelled(name): points for name, points in curves.items()}
    for name, points in by_name.items():
        others = by_name.get(name + OF_SAMPLES, ())
        if points and len(points) == len(others) and all(a[1] == b[1] or a[1] != a[1] for a, b in zip(points, others, strict=True)):
            return {step: float(samples) for (step, _), (samples, _) in zip(points, others, strict=True)}
    return {}


def listed(names: Sequence[str]) -> str:
    """Return the first names of many, for a message."""
    shown = ", ".join(repr(name[:60]) for name in names[:8]) or "none"
    return shown + (f" and {len(names) - 8} more" if len(names) > 8 else "")


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
    return Found(named, str(source), first=1 if OF_FRAMEWORKS & {*map(spelled, named)} else None)


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


def is_tensorboard(source: Path) -> bool:
    """Return whether a path is an event file, or a directory with event files, its own or of ranks."""
    return EVENTS in source.name or bool(_folders(source))


def _folders(source: Path) -> list[Path]:
    """Return the directories with events: a directory and its ``rank_N``."""
    inside = list_folder(source) if source.is_dir() else []
    ranks = (place for place in inside if place.name.startswith("rank_") and is_folder_in(place, source))
    return [place for place in (source, *ranks) if inside and any(EVENTS in file.name for file in list_folder(place))]


def read_events(source: Path) -> Found:
    """Return the curves of an event file, or of a directory's files in the order of their writing; raises RecordError for several ranks."""
    folders = _folders(source)
    if len(folders) > 1:
        raise RecordError(f"{source} has events of {len(folders)} ranks, each of its own loss; name one, {folders[0]} or another")
    source = folders[0] if folders else source
    try:
        _refuse_unread(source)
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except ImportError:
        raise RecordError(f"{source} is of TensorBoard, which is not installed; pip install 'align-hooks[tensorboard]'") from None
    except (OSError, ValueError) as error:
        way = "name a directory that holds the events of one run, as files of its own"
        raise RecordError(f"{source} cannot be read as TensorBoard's events: {shown(in_words(error))}; {way}") from None
    try:
        reader = EventAccumulator(str(source), size_guidance={"scalars": 0}, purge_orphaned_data=False)
        reader.Reload()
        tags = reader.Tags()["scalars"]
        points = {tag: [(event.step, event.value) for event in reader.Scalars(tag)] for tag in tags}
    except Exception as error:  # TensorBoard and protobuf have many kinds for bytes that are no events
        raise RecordError(f"{source} cannot be read as TensorBoard's events: {shown(in_words(error))}; copy it again") from None
    if not points:
        raise RecordError(f"{source} holds no curve; name the directory of one run")
    curves = {tag: dict(of_tag) for tag, of_tag in points.items()}
    again = sum(len(of_tag) - len(curves[tag]) for tag, of_tag in points.items())
    notes = [f"{again} points were logged again for the same step, by a resumed run: the later ones count"] if again else []
    if samples := over_samples(points):
        curves["consumed_samples"] = samples
    return Found(curves, str(source), first=1, resolution=FLOAT32, notes=notes)


def _refuse_unread(source: Path) -> None:
    """Raise ValueError or OSError for irregular or too large event files: TensorBoard opens any file of the name, and reads all of it."""
    folder, size = source if source.is_dir() else None, 0
    for file in list_folder(source) if folder else [source]:
        if EVENTS in file.name or not folder:
            with open_regular(file, folder) as events:
                size += os.fstat(events.fileno()).st_size
    if size > ReadLimits.FILE:
        raise ValueError(f"its events are larger than {ReadLimits.FILE} bytes")
