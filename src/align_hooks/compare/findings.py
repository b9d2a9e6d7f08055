"""Findings and judgements that the stages of the ladder share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from align_hooks.compare.measures import distances, ratio, relative_difference
from align_hooks.compare.pair import Pair
from align_hooks.compare.settings import equal
from align_hooks.compare.verdict import Finding, Stage, Status

WORST = 10
Progress = Callable[[str], None]
Limit = Callable[[str], float]
"""Of a quantity's name."""


def norm_errors(pair: Pair, step: int, limit: Limit) -> list[Finding]:
    """Relative differences of norms. One below eps times the step's largest is made by rounding on either side."""
    ours, theirs = (run.local_norms(step) for run in pair.both)
    floor = pair.limits.eps * max(ours.values(), default=0.0)
    found = []
    for name in sorted(ours.keys() & theirs.keys()):
        rounding = max(ours[name], theirs[name]) < floor
        error = 0.0 if rounding else relative_difference(ours[name], theirs[name])
        scale = theirs[name] / ours[name] if ours[name] and not rounding else None
        found.append(Finding(f"{name} at {when(step)}", f"{ours[name]:.9g}", f"{theirs[name]:.9g}", error, limit(name), scale))
    return found


def tensor_errors(pair: Pair, kind: str, step: int, limit: Limit, progress: Progress) -> list[Finding]:
    """Relative Frobenius errors. A gradient below eps times the step's largest is made by rounding on either side."""
    ours, theirs = (getattr(run, kind)(step) for run in pair.both)
    found = list(apart(ours, theirs, f"{kind} of step {step}", progress))
    floor = pair.limits.eps * max((size for _, _, size, _ in found), default=0.0) if kind == "gradients" else 0.0
    return [
        Finding(
            f"{name} at {when(step)}",
            unless_finite(size),
            unless_finite(other),
            0.0 if max(size, other) < floor else ratio(distance, size),
            limit(name),
            *scale_and_direction(distance, size, other),
        )
        for name, distance, size, other in found
    ]


def scale_and_direction(distance: float, size: float, other: float) -> tuple[float | None, float | None]:
    """Of a candidate of norm ``other`` at ``distance`` from a reference of norm ``size``: the best factor, and the relative rest."""
    if not (size and other and math.isfinite(distance)):
        return None, None
    scale = (size**2 + other**2 - distance**2) / (2 * size**2)
    return scale, math.sqrt(max(other**2 - (scale * size) ** 2, 0.0)) / other


def moment_errors(pair: Pair, step: int, limit: float, progress: Progress) -> list[Finding]:
    """Relative Frobenius errors of Adam's moments after ``step`` updates."""
    ours, theirs = (run.optimizer_state(step).moments for run in pair.both)
    return [
        Finding(f"{moment} of {name} at {when(step)}", unless_finite(size), unless_finite(other), ratio(distance, size), limit)
        for moment in ours
        for name, distance, size, other in apart(ours[moment], theirs[moment], f"{moment} of step {step}", progress)
    ]


def apart(ours: Any, theirs: Any, what: str, progress: Progress) -> Iterator[tuple[str, float, float, float]]:
    """Name, distance and both norms of every tensor that both have in one shape; one at a time."""
    for name in ours:
        if name in theirs and ours.shape(name) == theirs.shape(name):
            progress(f"{what}: {name}")
            yield name, *distances(ours[name], theirs[name])


def judged(name: str, summary: str, found: Sequence[Finding], *, incomplete: bool = False, most: int | None = WORST) -> Stage:
    """A stage whose findings are in or out, the worst of them kept; a reference that is not finite makes it not comparable."""
    bad = [finding for finding in found if finding.excess > 1]
    if any(finding.reference in ("nan", "inf", "-inf") for finding in bad):
        why = f"the reference holds NaN or infinity; record a healthy reference; {summary}"
        return Stage(name, Status.NOT_COMPARABLE, why, furthest(bad))
    return Stage(name, Status.DIFFERENT if bad else Status.INCOMPLETE if incomplete else Status.SAME, summary, furthest(found, most))


def losses(ours: Mapping[str, Any], theirs: Mapping[str, Any], limit: Limit) -> list[Finding]:
    """Loss and objective of a step, the worse first."""
    found = []
    for key in ("loss", "objective_loss"):
        if ours[key] is not None and theirs[key] is not None:
            error = relative_difference(ours[key], theirs[key])
            scale = theirs[key] / ours[key] if ours[key] else None
            found.append(Finding(f"{key} at {when(ours['step'])}", f"{ours[key]:.9g}", f"{theirs[key]:.9g}", error, limit(key), scale))
    return sorted(found, key=lambda finding: -finding.excess)


def labelled(kind: str, found: Iterable[Finding]) -> list[Finding]:
    """Findings that say what kind of tensor they are about."""
    return [replace(finding, what=f"{kind.replace('_', ' ')}: {finding.what}") for finding in found]


def unless_finite(size: float) -> str:
    """A tensor's value as a finding shows it: nothing, unless it is not finite."""
    return "" if math.isfinite(size) else "nan"


def rates_equal(one: Any, other: Any) -> bool:
    """Rates are per group where groups differ; groups may be counted differently, so their distinct values are compared."""
    ours, theirs = (np.unique(rate).tolist() for rate in (one, other))
    return equal(ours, theirs)


def when(step: int) -> str:
    """A step as people meet it: our number, and the iteration that both frameworks print."""
    return f"step {step} (iteration {step + 1})"


def steps_text(steps: Sequence[int]) -> str:
    """One step as :func:`when` says it, or how many there are."""
    return when(steps[0]) if len(steps) == 1 else f"{len(steps)} steps, {steps[0]} to {steps[-1]}"


def furthest(found: Sequence[Finding], most: int | None = WORST) -> tuple[Finding, ...]:
    """The findings that are furthest beyond their limits, the first first; all of them where ``most`` is None."""
    return tuple(sorted(found, key=lambda finding: -finding.excess)[:most])
