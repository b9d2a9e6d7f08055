"""The loss of the first common step, and what was differentiated."""

from __future__ import annotations

from dataclasses import replace

from align_hooks.compare.findings import judged, losses
from align_hooks.compare.ladder import Ladder
from align_hooks.compare.sharding import objective_alone
from align_hooks.compare.stages.stage import Phase, stage
from align_hooks.compare.verdict import StageResult, Status, at_step
from align_hooks.messages import Message, message, sentences


def title(ladder: Ladder) -> Message | None:
    """What the stage is called where the first common step is a later one."""
    return message("stage.first_loss", step=ladder.pair.first) if ladder.pair.first else None


@stage("step-0 loss", Phase.FORWARD, draws=True)
def first_loss(ladder: Ladder) -> StageResult:
    """The loss of the first common step: the forward computation."""
    rows = ladder.pair.rows[:1]
    findings = [
        finding
        for ours, theirs in rows
        for finding in losses(ours, theirs, ladder.noise.limits("losses", ours.step, ladder.pair.limits.loss))
    ]
    if not findings:
        return StageResult(first_loss, Status.INCOMPLETE, message("first_loss.none"), other_title=title(ladder))
    result = replace(
        judged(first_loss, at_step(message("first_loss.loss_and_objective"), rows[0][0].step), findings), other_title=title(ladder)
    )
    if result.status is not Status.DIFFERENT:
        return result
    if ladder.pair.converted:  # and nothing else tells what they started from
        summary = sentences(result.summary, message("first_loss.of_a_log"))
        return replace(result, status=Status.INCONCLUSIVE, summary=summary, open=True)
    return result.telling(objective_alone(ladder.pair.both, findings) or weighed_otherwise(ladder))


def weighed_otherwise(ladder: Ladder) -> Message | None:
    """Whose first loss is not the mean of its own tokens' losses; None where both are."""
    odd = {side: one for side, run in ladder.pair.sides for one in run.self_check.of_losses if one.step == ladder.pair.first}
    if len(odd) != 1:
        return None
    ((side, contradiction),) = odd.items()
    loss, mean = contradiction.first.value, contradiction.second.value
    return message("first_loss.not_the_mean", side=side, loss=loss, mean=mean)
