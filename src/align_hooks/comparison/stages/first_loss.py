"""The loss of the first common step, and what was differentiated."""

from __future__ import annotations

from dataclasses import replace

from align_hooks.comparison.findings import judged, losses, told_otherwise
from align_hooks.comparison.ladder import Ladder
from align_hooks.comparison.sharding import objective_alone
from align_hooks.comparison.stages.stage import Phase, stage
from align_hooks.comparison.verdict import StageResult, Status, Words, at_step
from align_hooks.messages import message, sentences
from align_hooks.record.self_check import OF_LOSS


@stage("step-0 loss", Phase.FORWARD, draws=True)
def first_loss(ladder: Ladder) -> StageResult:
    """The loss of the first common step: the forward computation."""
    step = ladder.pair.first or 0
    limit = ladder.noise.limits("losses", step, ladder.pair.limits.loss)
    findings = [finding for ours, theirs in ladder.pair.rows[:1] for finding in losses(ours, theirs, limit)]
    title = message("stage.first_loss", step=step) if step else None  # where the first common step is a later one
    if not findings and ladder.pair.dumped:
        return StageResult(first_loss, Status.NOT_COMPARED, message("first_loss.of_a_dump"), other_title=title)
    if not findings:
        return StageResult(first_loss, Status.INCOMPLETE, message("first_loss.none"), other_title=title)
    result = judged(first_loss, at_step(message("first_loss.loss_and_objective"), step), findings)
    result = replace(result, other_title=title, short=message("first_loss.loss_and_objective"))
    if result.status is not Status.DIFFERENT:
        return result
    if ladder.pair.converted:  # and nothing else tells what they started from
        summary = sentences(result.summary, message("first_loss.of_a_log"))
        return replace(result, status=Status.INCONCLUSIVE, summary=summary, open=True, differs=message("first_loss.log_differs"))
    return result.telling(objective_alone(ladder.pair.runs, findings) or weighed_otherwise(ladder))


def weighed_otherwise(ladder: Ladder) -> Words | None:
    """The side whose loss function counts other tokens than its mask at the first step, or whose first loss is not the mean of its own
    tokens' losses; None where neither or both do."""
    sides, first = ladder.pair.sides, ladder.pair.first
    of_sides = {side: [claims for claims in run.self_check.of_losses if claims.step == first] for side, run in sides}
    odd = [side for side, claims in of_sides.items() if claims]
    if len(odd) != 1:
        return None
    (side,) = odd
    claims = sorted(of_sides[side], key=lambda contradiction: OF_LOSS.index(contradiction.kind))
    return sentences(*(told_otherwise(side, contradiction) for contradiction in claims))
