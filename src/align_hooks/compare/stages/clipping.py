"""What each framework clipped by, at every step."""

from __future__ import annotations

from align_hooks.compare.drifting import drifting
from align_hooks.compare.findings import WORST, judged
from align_hooks.compare.ladder import Ladder
from align_hooks.compare.limits import CLIPPING
from align_hooks.compare.measures import relative_difference
from align_hooks.compare.stages.stage import Phase, stage
from align_hooks.compare.verdict import Finding, Place, Quantity, StageResult, Status, at_step
from align_hooks.messages import message, sentences


@stage("clipping", Phase.UPDATE, place=Place.CLIPPING, decides=False)
def clipping(ladder: Ladder) -> StageResult:
    """The global norm that each framework clipped by, its coefficient, and skipped updates, at every step."""
    findings, skipped = [], []
    for ours, theirs in ladder.pair.rows:
        for key in ("grad_norm", "clip_coefficient") if ours.step not in ladder.pair.skipped else ():
            one, other = getattr(ours, key), getattr(theirs, key)
            if one is not None and other is not None:
                what, error = at_step(Quantity(key), ours.step), relative_difference(one, other)
                findings.append(Finding(what, one, other, error, CLIPPING, step=ours.step, quantity=Quantity(key)))
        if ours.skipped != theirs.skipped:
            step = ours.step
            what = at_step(Quantity.SKIPPED, step)
            skipped.append(Finding(what, ours.skipped, theirs.skipped, step=step, quantity=Quantity.SKIPPED))
    summary = message("clipping.compared", count=len(ladder.pair.rows))
    if skipped:
        said = sentences(message("clipping.skipped_on_one_side"), summary)
        return StageResult(clipping, Status.DIFFERENT, said, tuple(skipped[:WORST]))
    if not findings:
        return StageResult(clipping, Status.NOT_COMPARED, message("clipping.no_norm"))
    exact = [finding for finding in findings[:2] if ladder.pair.first is not None]
    result = judged(clipping, summary, exact)
    return result if result.status is not Status.SAME else drifting(ladder, clipping, summary, [], findings)
