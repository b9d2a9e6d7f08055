"""Findings and judgements that the stages of the ladder share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from align_hooks.compare import distances
from align_hooks.compare.distances import Distance
from align_hooks.compare.limits import SAME_SKETCH, SETTING, SKETCHED
from align_hooks.compare.pair import Pair
from align_hooks.compare.settings import equal
from align_hooks.compare.stages.stage import Stage
from align_hooks.compare.verdict import Finding, Quantity, StageResult, Status, Words, at_step, when
from align_hooks.messages import Message, Side, message, sentences
from align_hooks.messages.progress import Progress
from align_hooks.record.schema import Rate, Row
from align_hooks.record.self_check import Contradiction

WORST = 10
Limit = Callable[[str], float]
"""Of a quantity's name."""


def norm_errors(pair: Pair, step: int, limit: Limit) -> list[Finding]:
    """Relative differences of norms."""
    found = distances.local_norms(*pair.both, step, pair.limits.eps)
    return [as_finding(one, step, limit, Quantity.LOCAL_NORMS, one.reference, one.candidate) for one in found]


def tensor_errors(pair: Pair, kind: str, step: int, limit: Limit, progress: Progress) -> list[Finding]:
    """Relative Frobenius errors of gradients or weights, estimated from sketches where not both runs stored them."""
    found = distances.MEASURED[kind](*pair.both, step, pair.limits.eps, progress)
    limits = limit if step in pair.steps(kind) else lambda name: max(SKETCHED * limit(name), SAME_SKETCH)
    return [as_finding(one, step, limits, Quantity(kind), unless_finite(one.reference), unless_finite(one.candidate)) for one in found]


def as_finding(one: Distance, step: int, limit: Limit, quantity: Quantity, ours: float | None, theirs: float | None) -> Finding:
    """A distance with its limit, and the values that are shown beside it."""
    what = at_step(one.name, step)
    return Finding(what, ours, theirs, one.error, limit(one.name), one.scale, one.direction, one.name, step, quantity)


def moment_errors(pair: Pair, step: int, limit: float, progress: Progress) -> list[Finding]:
    """Relative Frobenius errors of Adam's moments after ``step`` updates."""
    ours, theirs = (run.optimizer_state(step).moments for run in pair.both)
    return [
        Finding(
            at_step(message("moment.of", moment=moment, tensor=one.name), step),
            unless_finite(one.reference),
            unless_finite(one.candidate),
            one.error,
            limit,
            step=step,
            quantity=Quantity.OPTIMIZER_STATE,
        )
        for moment in ours
        for one in distances.of_tensors(ours[moment], theirs[moment], message("distances.of_step", what=moment, step=step), progress)
    ]


def judged(stage: Stage, summary: Words, found: Sequence[Finding], *, incomplete: bool = False, most: int | None = WORST) -> StageResult:
    """A stage whose findings are in or out, the worst of them kept; a reference that is not finite makes it not comparable."""
    bad = [finding for finding in found if finding.excess > 1]
    if any(isinstance(finding.reference, float) and not math.isfinite(finding.reference) for finding in bad):
        why = sentences(message("stage.reference_not_finite"), summary)
        return StageResult(stage, Status.NOT_COMPARABLE, why, furthest(bad))
    return StageResult(stage, Status.DIFFERENT if bad else Status.INCOMPLETE if incomplete else Status.SAME, summary, furthest(found, most))


def losses(ours: Row, theirs: Row, limit: Limit) -> list[Finding]:
    """Loss and objective of a step, the worse first."""
    found = distances.of_losses(ours, theirs)
    findings = [as_finding(one, ours.step, limit, Quantity.LOSS, one.reference, one.candidate) for one in found]
    return sorted(findings, key=lambda finding: -finding.excess)


def contradictions(found: Sequence[Contradiction], side: Side | None = None) -> list[Finding]:
    """Contradictions of a record's self-check, and whose record it is where there are two."""
    return [_contradiction(contradiction, side) for contradiction in found]


def _contradiction(contradiction: Contradiction, side: Side | None) -> Finding:
    step, what = contradiction.step, at_step(contradiction.subject, contradiction.step)
    if side is not None:
        what = message("self_check.of_side", side=side, what=contradiction.subject, step=step, iteration=step + 1)
    claims = contradiction.first.words, contradiction.second.words
    return Finding(what, *claims, name=contradiction.name, step=step, quantity=Quantity.SELF_CHECK, rank=contradiction.rank)


def copies_alike(copies: int) -> Message:
    """How many copies on other ranks a self-check compared."""
    return message("copies.alike", count=copies) if copies else message("copies.none")


def labelled(kind: Quantity, found: Iterable[Finding]) -> list[Finding]:
    """Findings that say what kind of tensor they are about."""
    return [replace(finding, what=message("finding.labelled", kind=kind, what=finding.what)) for finding in found]


def unless_finite(size: float) -> float | None:
    """A tensor's norm as a finding shows it: nothing, unless it is not finite."""
    return None if math.isfinite(size) else math.nan


def rates_equal(one: Rate, other: Rate, within: float = SETTING) -> bool:
    """Rates are per group where groups differ; groups may be counted differently, so their distinct values are compared. ``within`` is
    relative."""
    ours, theirs = (np.unique(rate).tolist() for rate in (one, other))
    return equal(ours, theirs, within)


def steps_text(steps: Sequence[int]) -> Message:
    """One step as :func:`when` says it, or how many there are."""
    return when(steps[0]) if len(steps) == 1 else message("steps.range", count=len(steps), first=steps[0], last=steps[-1])


def furthest(found: Sequence[Finding], most: int | None = WORST) -> tuple[Finding, ...]:
    """The findings that are furthest beyond their limits, the first first; all of them where ``most`` is None.

    The earliest that is beyond its limit is always among them: when a difference begins is told by it.
    """
    ordered = sorted(found, key=lambda finding: -finding.excess)
    begun = [finding for finding in ordered if finding.excess > 1 and finding.step is not None]
    earliest = min(begun, key=lambda finding: finding.step or 0, default=None)
    kept = ordered[:most]
    return tuple(kept if earliest is None or earliest in kept else [*kept, earliest])
