"""The loss of the first common step, and what was differentiated."""

from __future__ import annotations

from dataclasses import replace

from align_hooks.comparison.findings import judged, losses
from align_hooks.comparison.ladder import Ladder
from align_hooks.comparison.sharding import objective_alone
from align_hooks.comparison.stages.stage import Phase, stage
from align_hooks.comparison.verdict import StageResult, Status, at_step
from align_hooks.messages import Message, message, sentences


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


def weighed_otherwise(ladder: Ladder) -> Message | None:
    """The side whose first loss is not the mean of its own tokens' losses; None where neither or both are."""
    sides, first = ladder.pair.sides, ladder.pair.first
    odd = {side: claims for side, run in sides for claims in run.self_check.of_losses if claims.step == first}
    if len(odd) != 1:
        return None
    ((side, contradiction),) = odd.items()
    loss, mean = contradiction.first.value, contradiction.second.value
    return message("first_loss.not_the_mean", side=side, loss=loss, mean=mean)
