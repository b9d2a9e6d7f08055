"""A dump of any known tool as a record of activations at the points of the model.

A tensor of the dump gives the record the tensor, its sums and its sketches. A tensor with only statistics gives elements, extremes, sum and
squared sum, and NaN for sketches; such points are compared by their norms.
"""

from __future__ import annotations

import math
import stat
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from msgspec import Struct

from align_hooks.checkpoints.model import open_model
from align_hooks.configuration.values import FRAMEWORKS
from align_hooks.errors import AlignHooksError, RecordError, shown
from align_hooks.evidence.dumps import mindspore, msprobe, npy_lists
from align_hooks.evidence.dumps.entry import Dump, Statistics
from align_hooks.evidence.dumps.values import PointValue, points_of
from align_hooks.evidence.recording import recording, row_of
from align_hooks.names.points import GRADIENT
from align_hooks.process.paths import well_formed
from align_hooks.record.format.files import in_words, list_folder
from align_hooks.record.format.layout import Array
from align_hooks.record.format.ranges import ranges
from align_hooks.record.read import activations
from align_hooks.record.read.activations import COUNT, LEAST, MOST, NOT_FINITE, NUMBERS, SQUARES, SUM, Numbers
from align_hooks.record.write.step_files import StepActivations
from align_hooks.record.write.writer import Writer
from align_hooks.settings import PREFIX, Settings

COMPUTE = ("float32", "bfloat16", "float16", "float64")
"""Types in which a run may compute: the most frequent one of a dump is taken."""
PICKLES = (".pkl", ".pickle")
KNOWN = (
    "a dump of msprobe (dump.json in stepN/rankM), of MindSpore (rank_N/NET/GRAPH/ITERATION with statistic.csv or .npy files), "
    "or a list of .npy files"
)
MOST_STEPS = 100_000
"""Most steps from the first to the last of a dump."""


class DumpSummary(Struct, frozen=True):
    """The content of the record of a dump."""

    tool: str
    framework: str
    """The framework whose module names the dump has."""
    steps: tuple[int, ...]
    points: int
    gradients: int
    statistics: int
    """Number of points and gradients with only statistics."""
    notes: tuple[str, ...]


def convert_dump(
    source: Path, run: Path, *, config: Path | None = None, side: str | None = None, loss_scale: float = 1.0, first: int | None = None
) -> DumpSummary:
    """Write the record of a dump.

    :param config: a Hugging Face ``config.json`` of the model.
    :param side: ``torch`` or ``ms``, for a list of arrays, which does not say.
    :param loss_scale: the factor of the loss before it was differentiated.
    :param first: the training step of the dump's first; None where the tool counted from the start of training.
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
    types = [part.dtype for value in points.values for part in value.parts]
    facts = {
        "converted": {"dump": well_formed(str(source.resolve())), "tool": dump.tool, "modules": points.framework},
        "training": {"compute_type": max((name for name in COMPUTE if name in types), key=types.count, default=None)},
        "notes": list(points.notes),
    }
    with recording(run, dump.side, asked, facts, range(steps[0], steps[-1] + 1)) as writer:
        for step, values in sorted(by_step.items()):
            _write_step(writer, step + moved, values, 1 / loss_scale)
            writer.scalars(row_of(step + moved, skipped=False))
    gradients = sum(value.gradient for value in points.values)
    statistics = sum(not value.has_numbers for value in points.values)
    return DumpSummary(dump.tool, points.framework, tuple(steps), len(points.values) - gradients, gradients, statistics, points.notes)


def _write_step(writer: Writer, step: int, values: Sequence[PointValue], scale: float) -> None:
    """Write the points of one step; raises RecordError for points of different rows or sequences."""
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
        if value.has_numbers:
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
    """Return the numbers of a tensor [rows, sequence, width] for each micro-batch."""
    _, length, width = tensor.shape
    columns, cuts = activations.column_signs((0, width)), np.cumsum(rows)[:-1]
    tokens = np.arange(len(tensor) * length).reshape(len(tensor), length)
    parts = zip(np.split(tensor, cuts), np.split(tokens, cuts), strict=True)
    signed = ((part.reshape(-1, width), activations.row_signs(places.reshape(-1))) for part, places in parts)
    return np.stack([activations.measured(part, signs, columns) for part, signs in signed])


def _of_statistics(statistics: Statistics, elements: int) -> Numbers:
    """Return the numbers that follow from statistics; NaN for the others."""
    known = (statistics.minimum, statistics.maximum, statistics.mean, statistics.norm)
    least, most, mean, norm = (np.nan if value is None else value for value in known)
    numbers = np.full(NUMBERS, np.nan)
    with np.errstate(over="ignore", invalid="ignore"):
        numbers[COUNT], numbers[LEAST], numbers[MOST] = elements, least, most
        numbers[SUM], numbers[SQUARES] = mean * elements, np.square(norm)
        if math.isinf(numbers[SQUARES]) and not math.isinf(norm):
            numbers[SQUARES] = np.nan  # the square exceeds the largest double
    is_odd = any(value is not None and not math.isfinite(value) for value in (statistics.minimum, statistics.maximum, statistics.norm))
    numbers[NOT_FINITE] = int(is_odd)  # at least
    return numbers


def is_dump(path: Path) -> bool:
    """Return whether a source is a dump, or the pickle of an older tool."""
    tools = (msprobe, mindspore, npy_lists)
    return path.suffix in PICKLES or (path.is_dir() and (bool(_pickles(path)) or any(tool.holds(path) for tool in tools)))


def read_dump(path: Path, side: str = "torch") -> Dump:
    """Read a dump, of a list of arrays by ``side``; raises RecordError for no complete dump of a known tool, and for pickles."""
    if found := _pickles(path):
        raise RecordError(
            f"{found[0]} may be a pickle, and is never opened: reading one can run anything; dump again with msprobe "
            f"(pip install mindstudio-probe), which writes dump.json"
        )
    try:
        if not stat.S_ISDIR(path.stat().st_mode):
            raise RecordError(f"{path} is no directory; name {KNOWN}")
    except OSError as error:
        raise RecordError(f"{path} cannot be read: {shown(in_words(error))}; name {KNOWN}") from None
    if msprobe.holds(path):
        return msprobe.read_msprobe(path)
    if mindspore.holds(path):
        return mindspore.read_mindspore(path)
    if npy_lists.holds(path):
        return npy_lists.read_list(path, side)
    raise RecordError(f"{path} is no dump that is known here; name {KNOWN}")


def _pickles(path: Path) -> list[Path]:
    """Return the pickles of msprobe's forerunner (``api_stack_dump.pkl``) at or below a path."""
    if not path.is_dir():
        return [path] if path.suffix in PICKLES else []
    folders = [path, *(one for one in list_folder(path) if not one.is_symlink() and one.is_dir())]
    return [one for folder in folders for one in list_folder(folder) if one.suffix in PICKLES and "dump" in one.name]
