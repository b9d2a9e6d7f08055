"""A dump as a record: of every step what the points of the model put out, as a run that recorded its activations has it.

Where the dump has tensors, the record has their sums and sketches, and the tensors themselves. Where it has statistics alone, the record
has what follows of them (elements, extremes, sum, squared sum) and NaN for sketches: such points are compared by their norms.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from align_hooks.checkpoints.model import open_model
from align_hooks.configuration.values import FRAMEWORKS
from align_hooks.errors import AlignHooksError, RecordError
from align_hooks.evidence.dumps.entry import DumpEntry, Statistics
from align_hooks.evidence.dumps.read import read_dump
from align_hooks.evidence.dumps.values import PointValue, points_of
from align_hooks.evidence.recording import recording, row_of
from align_hooks.names.points import GRADIENT
from align_hooks.process.paths import well_formed
from align_hooks.record.format.layout import Array
from align_hooks.record.format.ranges import ranges
from align_hooks.record.read.activations import (
    COUNT,
    LEAST,
    MOST,
    NOT_FINITE,
    NUMBERS,
    SQUARES,
    SUM,
    Numbers,
    column_signs,
    measured,
    row_signs,
)
from align_hooks.record.write.step_files import StepActivations
from align_hooks.record.write.writer import Writer
from align_hooks.settings import PREFIX, Settings

COMPUTE = ("float32", "bfloat16", "float16", "float64")
MOST_STEPS = 100_000
"""Steps of a dump, and of the gaps between them."""


@dataclass(frozen=True, slots=True)
class DumpSummary:
    """What was made of a dump: by which ``tool``, with whose module names, the ``steps``, how many points and gradients, and how many of
    both have statistics alone."""

    tool: str
    framework: str
    steps: tuple[int, ...]
    points: int
    gradients: int
    statistics: int
    notes: tuple[str, ...]


def convert_dump(
    source: Path, run: Path, *, config: Path | None = None, side: str | None = None, loss_scale: float = 1.0, first: int | None = None
) -> DumpSummary:
    """Write the record of a dump.

    ``config`` is a Hugging Face ``config.json`` of the model. ``side`` is ``torch`` or ``ms``, for a list of arrays, which does not say.
    ``loss_scale`` is what the loss was multiplied by before it was differentiated. ``first`` is the number of the dump's first step in
    training; None where the tool counted from its start.

    :raises RecordError: the dump cannot be read. :raises RefusedRun: the directory holds a run. :raises AlignHooksError: a choice does not
    fit.
    """
    if side is not None and side not in FRAMEWORKS:
        raise AlignHooksError(f"--side {side}: choose one of {', '.join(FRAMEWORKS)}")
    if not 0 < loss_scale < float("inf"):
        raise AlignHooksError("--loss-scale is a number above 0")
    dump = read_dump(source, side or "torch")
    points = points_of(dump, open_model(config).dims() if config is not None else None)
    by_step: dict[int, list[PointValue]] = defaultdict(list)
    for value in points.values:
        by_step[value.step].append(value)
    moved = 0 if first is None else first - min(by_step)
    steps = [step + moved for step in sorted(by_step)]
    if steps[-1] - steps[0] >= MOST_STEPS:
        raise RecordError(f"{source} is of steps {steps[0]} to {steps[-1]}, more than {MOST_STEPS}; name one step's directory")
    asked = Settings.from_environment({f"{PREFIX}ACTIVATIONS": ranges(steps), f"{PREFIX}RUN": str(run)})
    facts = {
        "converted": {"dump": well_formed(str(source.resolve())), "tool": dump.tool, "modules": points.framework},
        "training": {"compute_type": _compute_type([part for value in points.values for part in value.parts])},
        "notes": list(points.notes),
    }
    with recording(run, dump.side, asked, facts, range(steps[0], steps[-1] + 1)) as writer:
        for step, values in sorted(by_step.items()):
            _write_step(writer, step + moved, values, 1 / loss_scale)
            writer.scalars(row_of(step + moved, skipped=False))
    gradients = sum(value.gradient for value in points.values)
    alone = sum(not value.whole for value in points.values)
    return DumpSummary(dump.tool, points.framework, tuple(steps), len(points.values) - gradients, gradients, alone, points.notes)


def _compute_type(parts: Sequence[DumpEntry]) -> str | None:
    """The type that most of a dump's tensors have; None where it has no name here."""
    types = [part.dtype for part in parts]
    return max((name for name in COMPUTE if name in types), key=types.count, default=None)


def _write_step(writer: Writer, step: int, values: Sequence[PointValue], scale: float) -> None:
    """Write the points of one step, which all have the rows and the sequence of the first, or are left out of none."""
    sizes = values[0].sizes
    if odd := next((value for value in values if value.sizes != sizes), None):
        raise RecordError(
            f"step {step} has {len(sizes)} micro-batches of {values[0].point} and {len(odd.sizes)} of {odd.point}, or of other sizes; "
            f"dump the whole step"
        )
    sums: dict[str, Array] = {}
    tensors: dict[str, Array] = {}
    extents: dict[int, int] = {}
    extent_of: dict[str, int] = {}
    for value in values:
        name = value.point + (GRADIENT if value.gradient else "")
        width = value.shape[2] if len(value.shape) == 3 else 1
        extent_of[value.point] = extents.setdefault(width, len(extents))
        if value.whole:
            tensors[name] = value.read().reshape(*value.shape[:2], width).astype(np.float32)
            sums[name] = _sums(tensors[name], [rows for rows, _ in sizes])
        else:
            sums[name] = np.stack([_of_statistics(part.statistics, part.elements) for part in value.parts])
    facts = {
        "rows": [rows for rows, _ in sizes],
        "length": sizes[0][1],
        "extents": [{"width": width, "columns": [0, width]} for width in extents],
        "extent_of": extent_of,
        "scale": scale,
        "by_tokens": False,
    }
    writer.activations(step, StepActivations(sums, tensors, facts))


def _sums(tensor: Array, rows: Sequence[int]) -> Numbers:
    """The numbers of a value [rows, sequence, width], micro-batch by micro-batch."""
    _, length, width = tensor.shape
    columns, cuts = column_signs((0, width)), np.cumsum(rows)[:-1]
    tokens = np.arange(len(tensor) * length).reshape(len(tensor), length)
    parts = zip(np.split(tensor, cuts), np.split(tokens, cuts), strict=True)
    signed = ((part.reshape(-1, width), row_signs(places.reshape(-1))) for part, places in parts)
    return np.stack([measured(part, signs, columns) for part, signs in signed])


def _of_statistics(said: Statistics, elements: int) -> Numbers:
    """The numbers that follow of statistics; NaN for what does not."""
    numbers = np.full(NUMBERS, np.nan)
    with np.errstate(over="ignore", invalid="ignore"):
        numbers[COUNT], numbers[LEAST], numbers[MOST] = elements, _known(said.minimum), _known(said.maximum)
        numbers[SUM], numbers[SQUARES] = _known(said.mean) * elements, np.square(_known(said.norm))
        if math.isinf(numbers[SQUARES]) and not math.isinf(_known(said.norm)):
            numbers[SQUARES] = np.nan  # the square is beyond the largest double
    finite = np.isfinite([value for value in (said.minimum, said.maximum, said.norm) if value is not None]).all()
    numbers[NOT_FINITE] = 0 if finite else 1  # at least
    return numbers


def _known(value: float | None) -> float:
    return np.nan if value is None else value
