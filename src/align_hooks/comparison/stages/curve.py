"""The stage of the losses of all steps together."""

from __future__ import annotations

import math
from statistics import fmean

from msgspec.structs import replace

from align_hooks.comparison.context import ComparisonContext
from align_hooks.comparison.finding import Finding, Metric
from align_hooks.comparison.stage_result import FaultLocation, Phase, StageResult, Status
from align_hooks.comparison.stages.stage import stage
from align_hooks.comparison.steps import drifting
from align_hooks.comparison.verdict import relative
from align_hooks.messages import message

CURVE = 10
"""Steps that make a curve."""


@stage("curve", Phase.AFTER_ALL, place=FaultLocation.CURVE, draws=True, decides=False, source=message("method.guide_around_zero"))
def curve(context: ComparisonContext) -> StageResult:
    """Compare the mean of all signed relative differences of the loss: a bias too small for any one step adds up here.

    Honest differences are on both sides of zero, or drift within half of a step's limit. The guide's "around the 0-axis" asks for the
    same of a run with a learning rate of 0. With another rate neighbouring steps correlate, so signs are reported and not judged. Where
    repeats make a band, the band judges."""
    rows = context.pair.rows
    losses = [(ours, theirs) for _, ours, theirs in context.pair.numbers("loss")]
    if len(losses) < CURVE:
        return StageResult(curve, Status.NOT_COMPARED, message("curve.too_few", count=len(losses), needed=CURVE))
    if not all(math.isfinite(loss) for pair in losses for loss in pair):
        return StageResult(curve, Status.NOT_COMPARED, message("curve.not_finite"))
    differences = [relative(*pair) for pair in losses]
    drift, above = fmean(differences), sum(difference > 0 for difference in differences)
    still = all(context.pair.is_exact(ours.step) for ours, _ in rows)
    limit = fmean(context.loss_limit(ours.step)("loss") for ours, _ in rows) / 2
    finding = Finding(message("curve.mean_difference"), drift, None, abs(drift), limit, quantity=Metric.LOSS)
    summary = message("curve.compared", count=len(losses), above=above)
    short, free = message("steps.count", count=len(losses)), [] if still or context.bands else [finding]
    result = drifting(context, curve, summary, [finding] if still else [], free, short)
    return replace(result, differs=message("curve.differs", by=drift)) if result.status is Status.DIFFERENT else result
