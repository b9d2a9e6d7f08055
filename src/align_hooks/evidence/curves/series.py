"""Curves by name as rows of scalars, each number at its own step.

Steps may have gaps. A step that was logged twice, by a run that was resumed from an earlier checkpoint, counts as it was logged last.

``tags.txt`` has the frameworks' names of curves. Megatron-LM (``training_log``) logs the learning rate of the next step, and to TensorBoard
and W&B the loss of the step itself, where its text log has the mean since the line before. MindFormers logs in ``MFLossMonitor``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from align_hooks.configuration.values import FRAMEWORKS
from align_hooks.data_file import sections
from align_hooks.errors import AlignHooksError, RecordError
from align_hooks.evidence.recording import Row, Scalars, row_of

Curves: TypeAlias = Mapping[str, Mapping[int, float]]
"""Name of a curve to number of a step, as the tool counts, to value."""
Names: TypeAlias = Mapping[str, tuple[str, ...]]
"""A quantity of a row to its names, the best first."""
FLOAT32 = 2.0**-24
"""Relative rounding error of a value that was kept in fp32."""


@dataclass(frozen=True, slots=True)
class Tags:
    """The names that a framework gives to the quantities of a row."""

    side: str
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


@dataclass(frozen=True, slots=True)
class Found:
    """Curves that a tool left."""

    curves: Curves
    source: str
    first: int | None = 1
    """The tool's number of step 0; None where unknown."""
    resolution: float = 0.0
    """Relative uncertainty of a value."""
    notes: list[str] = field(default_factory=list)


def scalars_of(found: Found, side: str | None) -> Scalars:
    """Return the rows of curves of a ``side``; raises RecordError without a curve of the loss, or where neither names nor ``side`` tell."""
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
    if tags.rate_of_next:
        notes.append("Megatron-LM logs the learning rate of the step after: that of the first step is not known")
    largest = {name: max(map(abs, filter(math.isfinite, curve.values())), default=0.0) for name, curve in named.items()}
    resolution = {name: found.resolution * largest[name] for name in ("loss", "grad_norm") if name in named}
    return Scalars(tags.side, rows, resolution | {"learning_rate": found.resolution}, notes)


def tags_of(found: Found, side: str | None) -> Tags:
    """Return the names of the framework of curves; raises RecordError where neither the curves nor ``side`` show it."""
    if side not in (None, *FRAMEWORKS):
        raise AlignHooksError(f"--side {side}: choose one of {', '.join(FRAMEWORKS)}")
    names = {spelled(name) for name in found.curves}
    known = MEGATRON if "lm loss" in names else MINDFORMERS if f"loss{OF_SAMPLES}" in names else None
    if known is not None and side in (None, known.side):
        return known
    if side is None:
        raise RecordError(f"{found.source} does not tell which framework made it; say --side torch or --side ms")
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
