"""The losses of all steps together."""

from __future__ import annotations

import math

from align_hooks.compare.drifting import drifting
from align_hooks.compare.ladder import Ladder
from align_hooks.compare.stages.stage import Phase, stage
from align_hooks.compare.verdict import Finding, Place, Quantity, StageResult, Status
from align_hooks.messages import message

CURVE = 10
"""Steps that make a curve."""


@stage("curve", Phase.AFTER_ALL, place=Place.CURVE, draws=True, decides=False, source=message("method.guide_around_zero"))
def curve(ladder: Ladder) -> StageResult:
    """The mean of all relative differences of the loss, with their signs: a bias too small for any one step adds up here.

    Honest differences stand on both sides of zero, or drift within half of what one step may. The guide's "around the 0-axis" asks for
    the same of a run with a learning rate of 0; with another one neighbouring steps go together, so signs are told and not judged.
    """
    losses = [(ours.loss, theirs.loss) for ours, theirs in ladder.pair.rows]
    both = [(one, other) for one, other in losses if one is not None and other is not None]
    if len(both) < CURVE:
        return StageResult(curve, Status.NOT_COMPARED, message("curve.too_few", count=len(both), needed=CURVE))
    if not all(math.isfinite(loss) for pair in both for loss in pair):
        return StageResult(curve, Status.NOT_COMPARED, message("curve.not_finite"))
    differences = [(theirs - ours) / abs(ours) if ours else theirs - ours for ours, theirs in both]
    drift, above = math.fsum(differences) / len(differences), sum(one > 0 for one in differences)
    still = all(ladder.pair.is_exact(ours.step) for ours, _ in ladder.pair.rows)
    limits = [ladder.loss_limit(ours.step)("loss") for ours, _ in ladder.pair.rows]
    limit = math.fsum(limits) / len(limits) / 2
    found = Finding(message("curve.mean_difference"), drift, None, abs(drift), limit, quantity=Quantity.LOSS)
    summary = message("curve.compared", count=len(both), above=above)
    return drifting(ladder, curve, summary, [found] if still else [], [] if still else [found])
