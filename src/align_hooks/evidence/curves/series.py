"""Curves by name as rows of scalars, each number at the step that made it.

Steps may have gaps: what is logged every ten steps is still each step's own number. A step that was logged twice, by a run that was resumed
from an earlier checkpoint, counts as it was logged last.
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
"""What a value that was kept in fp32 leaves open, relative."""


@dataclass(frozen=True, slots=True)
class Found:
    """Curves that a tool left. ``first`` is the number that the tool gives to step 0, None where nothing says. ``resolution`` is what a
    value leaves open, relative."""

    curves: Curves
    source: str
    first: int | None = 1
    resolution: float = 0.0
    notes: list[str] = field(default_factory=list)


def scalars_of(found: Found, side: str | None) -> Scalars:
    """The rows of what was found. ``side`` is ``torch`` or ``ms``, None where the curves' names tell.

    :raises RecordError: they hold no loss, or do not tell which framework made them.
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
    """The names by which the curves are known; raises RecordError where neither they nor ``side`` tell the framework."""
    names = {spelled(name) for name in found.curves}
    known = MEGATRON if "lm loss" in names else MINDFORMERS if f"loss{OF_SAMPLES}" in names else None
    if known is not None and side in (None, known.side):
        return known
    if side is None:
        raise RecordError(f"{found.source} does not tell which framework made it; say --side torch or --side ms")
    return Tags(side, {name: tuple(dict.fromkeys((*FRAMEWORKS[side].names[name], *BY_HAND[name]))) for name in BY_HAND})


def first_of(curves: Curves, names: Sequence[str]) -> Mapping[int, float] | None:
    """The first curve that goes by one of the names."""
    by_name = {spelled(name): curve for name, curve in curves.items()}
    return next((by_name[spelled(name)] for name in names if by_name.get(spelled(name))), None)


def spelled(name: str) -> str:
    """A name in one spelling: tensorboardX, by which MindFormers writes, puts ``_`` for a space."""
    return name.lower().replace("_", " ")


def row(step: int, number: int, named: Curves, *, late: bool) -> Row:
    """The row of one step. ``late`` says that the rate of a step stands at the step before."""
    values: dict[str, float | None] = {name: named.get(name, {}).get(number) for name in BY_HAND}
    if late:
        values["learning_rate"] = named.get("learning_rate", {}).get(number - 1)
    samples = values["consumed_samples"]
    whole = int(samples) if samples is not None and math.isfinite(samples) else None
    return row_of(step, **values | {"consumed_samples": whole}, skipped=False)


def over_samples(curves: Mapping[str, Sequence[tuple[int, float]]]) -> dict[int, float]:
    """Samples consumed at each step: of a curve over steps and the same over samples, point by point."""
    by_name = {spelled(name): points for name, points in curves.items()}
    for name, points in by_name.items():
        others = by_name.get(name + OF_SAMPLES, ())
        if points and len(points) == len(others) and all(a[1] == b[1] or a[1] != a[1] for a, b in zip(points, others, strict=True)):
            return {step: samples for (step, _), (samples, _) in zip(points, others, strict=True)}
    return {}


def largest(curve: Mapping[int, float]) -> float:
    """The largest finite magnitude of a curve."""
    values = np.abs([value for value in curve.values() if math.isfinite(value)])
    return float(values.max()) if values.size else 0.0


def listed(names: Sequence[str]) -> str:
    """A few names, as a message has them."""
    shown = ", ".join(repr(name[:60]) for name in names[:8]) or "none"
    return shown + (f" and {len(names) - 8} more" if len(names) > 8 else "")
