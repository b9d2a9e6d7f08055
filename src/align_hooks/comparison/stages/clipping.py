"""The stage of gradient clipping."""

from __future__ import annotations

import math

from align_hooks.comparison.context import ComparisonContext
from align_hooks.comparison.finding import Finding, Metric, at_step, limit_ratio, when
from align_hooks.comparison.findings import WORST, judged, kept_indices
from align_hooks.comparison.metrics.limits import CLIPPING
from align_hooks.comparison.metrics.measures import relative_difference
from align_hooks.comparison.pair import Pair
from align_hooks.comparison.stage_result import FaultLocation, Phase, StageResult, Status
from align_hooks.comparison.stages.stage import stage
from align_hooks.comparison.steps import drifting
from align_hooks.messages import message, sentences

NAMES = (Metric.GRAD_NORM.value, Metric.CLIP_COEFFICIENT.value)


@stage("clipping", Phase.UPDATE, place=FaultLocation.CLIPPING, decides=False)
def clipping(context: ComparisonContext) -> StageResult:
    """Compare the global norm by which each framework clipped, its coefficient, and skipped updates, at every step."""
    # name, step, both values and relative difference; a long run has thousands, of which few become findings
    numbers: list[tuple[str, int, float, float, float]] = []
    skipped = []
    spoiled = context.pair.skipped
    for ours, theirs in context.pair.rows:
        step = ours.step
        for name in NAMES if step not in spoiled else ():
            reference, candidate = getattr(ours, name), getattr(theirs, name)
            if reference is not None and candidate is not None:
                numbers.append((name, step, reference, candidate, relative_difference(reference, candidate)))
        if None not in (ours.skipped, theirs.skipped) and ours.skipped != theirs.skipped:
            kind = Metric.SKIPPED
            skipped.append(Finding(at_step(kind, step), ours.skipped, theirs.skipped, step=step, quantity=kind))
    summary = message("clipping.compared", count=len(context.pair.rows))
    if skipped:
        on_one_side = sentences(message("clipping.skipped_on_one_side"), summary)
        differs = message("clipping.skipped_at", step=when(skipped[0].step or 0))
        return StageResult(clipping, Status.DIFFERENT, on_one_side, tuple(skipped[:WORST]), differs=differs)
    if not numbers:
        return StageResult(clipping, Status.NOT_COMPARED, message("clipping.no_norm"))
    short = message("steps.count", count=len(context.pair.rows))
    result = judged(clipping, summary, [_finding(*number, limit=first_limit(context.pair)) for number in numbers[:2]], short)
    if result.status is not Status.SAME:
        return result
    free = [number for number in numbers if not context.is_banded(number[1])]
    excesses = [limit_ratio(error, CLIPPING) for *_, error in free]
    lost = [not math.isfinite(reference) for _, _, reference, _, _ in free]
    return drifting(context, clipping, summary, [], [_finding(*free[index]) for index in kept_indices(excesses, lost)], short)


def first_limit(pair: Pair) -> float:
    """Return how far the norms of one step's gradients on equal weights may differ: as gradients may, and as far as each framework's own
    rounding is known to move its norm."""
    checks = [run.self_check for run in pair.runs if run.manifests]
    if len(checks) < len(pair.runs) or not all(check.steps for check in checks):
        return CLIPPING
    return min(CLIPPING, pair.limits.gradient + ROUNDED * sum(check.inexact for check in checks))


ROUNDED = 2.0
"""Times the largest known rounding of a framework's norm."""


def _finding(name: str, step: int, reference: float, candidate: float, error: float, limit: float = CLIPPING) -> Finding:
    kind = Metric(name)
    return Finding(at_step(kind, step), reference, candidate, error, limit, step=step, quantity=kind)
