"""What each framework clipped by, at every step."""

from __future__ import annotations

from align_hooks.compare.findings import WORST, judged
from align_hooks.compare.ladder import Ladder
from align_hooks.compare.limits import CLIPPING
from align_hooks.compare.measures import relative_difference
from align_hooks.compare.stages.stage import Phase, stage
from align_hooks.compare.steps import drifting
from align_hooks.compare.verdict import Finding, Place, Quantity, StageResult, Status, at_step
from align_hooks.messages import message, sentences


@stage("clipping", Phase.UPDATE, place=Place.CLIPPING, decides=False)
def clipping(ladder: Ladder) -> StageResult:
    """The global norm that each framework clipped by, its coefficient, and skipped updates, at every step."""
    findings, skipped = [], []
    for ours, theirs in ladder.pair.rows:
        step = ours.step
        for kind in (Quantity.GRAD_NORM, Quantity.CLIP_COEFFICIENT) if step not in ladder.pair.skipped else ():
            reference, candidate = getattr(ours, kind.value), getattr(theirs, kind.value)
            if reference is not None and candidate is not None:
                error = relative_difference(reference, candidate)
                findings.append(Finding(at_step(kind, step), reference, candidate, error, CLIPPING, step=step, quantity=kind))
        if ours.skipped != theirs.skipped:
            kind = Quantity.SKIPPED
            skipped.append(Finding(at_step(kind, step), ours.skipped, theirs.skipped, step=step, quantity=kind))
    summary = message("clipping.compared", count=len(ladder.pair.rows))
    if skipped:
        on_one_side = sentences(message("clipping.skipped_on_one_side"), summary)
        return StageResult(clipping, Status.DIFFERENT, on_one_side, tuple(skipped[:WORST]))
    if not findings:
        return StageResult(clipping, Status.NOT_COMPARED, message("clipping.no_norm"))
    result = judged(clipping, summary, findings[:2])
    return result if result.status is not Status.SAME else drifting(ladder, clipping, summary, [], findings)
