"""Findings and judgements that the stages of the ladder share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from align_hooks.compare import distances
from align_hooks.compare.distances import Distance
from align_hooks.compare.limits import SAME_SKETCH, SETTING, SKETCHED
from align_hooks.compare.pair import Pair
from align_hooks.compare.settings import equal
from align_hooks.compare.verdict import Finding, Stage, Status, when
from align_hooks.progress import Progress

WORST = 10
Limit = Callable[[str], float]
"""Of a quantity's name."""


def norm_errors(pair: Pair, step: int, limit: Limit) -> list[Finding]:
    """Relative differences of norms."""
    found = distances.local_norms(*pair.both, step, pair.limits.eps)
    return [as_finding(one, step, limit, f"{one.reference:.9g}", f"{one.candidate:.9g}", "local_norms") for one in found]


def tensor_errors(pair: Pair, kind: str, step: int, limit: Limit, progress: Progress) -> list[Finding]:
    """Relative Frobenius errors of gradients or weights, estimated from sketches where not both runs stored them."""
    found = distances.MEASURED[kind](*pair.both, step, pair.limits.eps, progress)
    limits = limit if step in pair.steps(kind) else lambda name: max(SKETCHED * limit(name), SAME_SKETCH)
    return [as_finding(one, step, limits, unless_finite(one.reference), unless_finite(one.candidate), kind) for one in found]


def as_finding(one: Distance, step: int, limit: Limit, ours: str, theirs: str, quantity: str) -> Finding:
    """A distance with its limit, as it is shown."""
    what = f"{one.name} at {when(step)}"
    return Finding(what, ours, theirs, one.error, limit(one.name), one.scale, one.direction, one.name, step, quantity)


def moment_errors(pair: Pair, step: int, limit: float, progress: Progress) -> list[Finding]:
    """Relative Frobenius errors of Adam's moments after ``step`` updates."""
    ours, theirs = (run.optimizer_state(step).moments for run in pair.both)
    return [
        Finding(
            f"{moment} of {one.name} at {when(step)}",
            unless_finite(one.reference),
            unless_finite(one.candidate),
            one.error,
            limit,
            step=step,
            quantity="optimizer_state",
        )
        for moment in ours
        for one in distances.of_tensors(ours[moment], theirs[moment], f"{moment} of step {step}", progress)
    ]


def judged(name: str, summary: str, found: Sequence[Finding], *, incomplete: bool = False, most: int | None = WORST) -> Stage:
    """A stage whose findings are in or out, the worst of them kept; a reference that is not finite makes it not comparable."""
    bad = [finding for finding in found if finding.excess > 1]
    if any(finding.reference in ("nan", "inf", "-inf") for finding in bad):
        why = f"the reference holds NaN or infinity; record a healthy reference; {summary}"
        return Stage(name, Status.NOT_COMPARABLE, why, furthest(bad))
    return Stage(name, Status.DIFFERENT if bad else Status.INCOMPLETE if incomplete else Status.SAME, summary, furthest(found, most))


def losses(ours: Mapping[str, Any], theirs: Mapping[str, Any], limit: Limit) -> list[Finding]:
    """Loss and objective of a step, the worse first."""
    found = distances.of_losses(ours, theirs)
    findings = [as_finding(one, ours["step"], limit, f"{one.reference:.9g}", f"{one.candidate:.9g}", "losses") for one in found]
    return sorted(findings, key=lambda finding: -finding.excess)


def contradictions(found: Sequence[Any], whose: str = "") -> list[Finding]:
    """Contradictions of a record's self-check; ``whose`` is put before each, ``the candidate's `` say."""
    return [Finding(f"{whose}{one.what} at {when(one.step)}", one.one, one.other, step=one.step) for one in found]


def copies_alike(copies: int) -> str:
    """How many copies on other ranks a self-check compared."""
    return f"{copies} copies alike" if copies else "no copies to compare"


def labelled(kind: str, found: Iterable[Finding]) -> list[Finding]:
    """Findings that say what kind of tensor they are about."""
    return [replace(finding, what=f"{kind.replace('_', ' ')}: {finding.what}") for finding in found]


def unless_finite(size: float) -> str:
    """A tensor's value as a finding shows it: nothing, unless it is not finite."""
    return "" if math.isfinite(size) else "nan"


def rates_equal(one: Any, other: Any, within: float = SETTING) -> bool:
    """Rates are per group where groups differ; groups may be counted differently, so their distinct values are compared. ``within`` is
    relative."""
    ours, theirs = (np.unique(rate).tolist() for rate in (one, other))
    return equal(ours, theirs, within)


def steps_text(steps: Sequence[int]) -> str:
    """One step as :func:`when` says it, or how many there are."""
    return when(steps[0]) if len(steps) == 1 else f"{len(steps)} steps, {steps[0]} to {steps[-1]}"


def furthest(found: Sequence[Finding], most: int | None = WORST) -> tuple[Finding, ...]:
    """The findings that are furthest beyond their limits, the first first; all of them where ``most`` is None.

    The earliest that is beyond its limit is always among them: when a difference begins is told by it.
    """
    ordered = sorted(found, key=lambda finding: -finding.excess)
    begun = [finding for finding in ordered if finding.excess > 1 and finding.step is not None]
    earliest = min(begun, key=lambda finding: finding.step or 0, default=None)
    kept = ordered[:most]
    return tuple(kept if earliest is None or earliest in kept else [*kept, earliest])
