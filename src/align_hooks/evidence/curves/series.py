"""Curves by name as rows of scalars, each number at its own step.

Steps may have gaps. A step that was logged twice, by a run that was resumed from an earlier checkpoint, counts as it was logged last.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from align_hooks.errors import RecordError
from align_hooks.evidence.curves.tags import BY_HAND, MEGATRON, MINDFORMERS, OF_SAMPLES, Tags
from align_hooks.evidence.recording import Row, Scalars, row_of

Curves: TypeAlias = Mapping[str, Mapping[int, float]]
"""Name of a curve to number of a step, as the tool counts, to value."""
FRAMEWORKS: Mapping[str, Tags] = {"torch": MEGATRON, "ms": MINDFORMERS}
FLOAT32 = 2.0**-24
"""Relative rounding error of a value that was kept in fp32."""


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
    """Return the rows of curves of a ``side``, ``torch`` or ``ms``; None: the curves' names show it.

    :raises RecordError: there is no curve of the loss, or the names do not show the framework.
    """
    tags = tags_of(found, side)
    named = {quantity: curve for quantity, names in tags.names.items() if (curve := first_of(found.curves, names)) is not None}
    if "loss" not in named:
        raise RecordError(f"{found.source} has no curve of the loss, {listed(tags.names['loss'])}; it has {listed(list(found.curves))}")
    notes = list(found.notes)
    first = found.first
    if first is None:
        first = 0 if min(named["loss"]) == 0 else 1
        notes.append(f"its steps begin with {min(named['loss'])}: step 0 is taken to be number {first}")
    late = tags.rate_of_next
    rows = [row(number - first, number, named, late=late) for number in sorted(named["loss"]) if number >= first]
    if not rows:
        raise RecordError(f"{found.source} has its loss at step {min(named['loss'])} alone, before the first, which is number {first}")
    if late:
        notes.append("Megatron-LM logs the learning rate of the step after: that of the first step is not known")
    resolution = {name: found.resolution * largest(named[name]) for name in ("loss", "grad_norm") if name in named}
    return Scalars(tags.side, rows, resolution | {"learning_rate": found.resolution}, notes)


def tags_of(found: Found, side: str | None) -> Tags:
    """Return the names of the framework of curves; raises RecordError where neither the curves nor ``side`` show it."""
    names = {spelled(name) for name in found.curves}
    known = MEGATRON if "lm loss" in names else MINDFORMERS if f"loss{OF_SAMPLES}" in names else None
    if known is not None and side in (None, known.side):
        return known
    if side is None:
        raise RecordError(f"{found.source} does not tell which framework made it; say --side torch or --side ms")
    return Tags(side, {name: tuple(dict.fromkeys((*FRAMEWORKS[side].names[name], *BY_HAND[name]))) for name in BY_HAND})


def first_of(curves: Curves, names: Sequence[str]) -> Mapping[int, float] | None:
    """Return the first curve that has one of the names."""
    by_name = {spelled(name): curve for name, curve in curves.items()}
    return next((by_name[spelled(name)] for name in names if by_name.get(spelled(name))), None)


def spelled(name: str) -> str:
    """Return a name in one spelling: tensorboardX, which MindFormers uses, writes ``_`` for a space."""
    return name.lower().replace("_", " ")


def row(step: int, number: int, named: Curves, *, late: bool) -> Row:
    """Return the row of one step; ``late``: the learning rate of a step stands at the step before."""
    values: dict[str, float | None] = {name: named.get(name, {}).get(number) for name in BY_HAND}
    if late:
        values["learning_rate"] = named.get("learning_rate", {}).get(number - 1)
    samples = values["consumed_samples"]
    values["consumed_samples"] = int(samples) if samples is not None and math.isfinite(samples) else None
    return row_of(step, **values, skipped=False)


def over_samples(curves: Mapping[str, Sequence[tuple[int, float]]]) -> dict[int, float]:
    """Return the samples consumed at each step, from a curve over steps and the same curve over samples."""
    by_name = {spelled(name): points for name, points in curves.items()}
    for name, points in by_name.items():
        others = by_name.get(name + OF_SAMPLES, ())
        if points and len(points) == len(others) and all(a[1] == b[1] or a[1] != a[1] for a, b in zip(points, others, strict=True)):
            return {step: samples for (step, _), (samples, _) in zip(points, others, strict=True)}
    return {}


def largest(curve: Mapping[int, float]) -> float:
    """Return the largest finite magnitude of a curve."""
    values = np.abs([value for value in curve.values() if math.isfinite(value)])
    return float(values.max()) if values.size else 0.0


def listed(names: Sequence[str]) -> str:
    """Return the first names of many, for a message."""
    shown = ", ".join(repr(name[:60]) for name in names[:8]) or "none"
    return shown + (f" and {len(names) - 8} more" if len(names) > 8 else "")
