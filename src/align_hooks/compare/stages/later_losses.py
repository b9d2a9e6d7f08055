"""Losses after the first."""

from __future__ import annotations

from dataclasses import replace

from align_hooks.compare.drifting import drifting
from align_hooks.compare.findings import losses
from align_hooks.compare.ladder import Ladder
from align_hooks.compare.stages.stage import Phase, stage
from align_hooks.compare.verdict import Finding, Place, StageResult, Status
from align_hooks.messages import message, sentences


@stage("later losses", Phase.FORWARD, place=Place.NEXT_LOSS, draws=True)
def later_losses(ladder: Ladder) -> StageResult:
    """Losses after the first."""
    exact: list[Finding] = []
    free: list[Finding] = []
    for ours, theirs in ladder.pair.rows[1:]:
        still = ladder.pair.is_exact(ours.step)
        (exact if still else free).extend(losses(ours, theirs, ladder.loss_limit(ours.step))[:1])
    if not exact and not free:
        status = Status.INCOMPLETE if len(ladder.pair.rows) > 1 else Status.NOT_COMPARED
        return StageResult(later_losses, status, message("later_losses.none"))
    out = next((finding for finding in [*exact, *free] if finding.excess > 1), None)
    beyond = message("later_losses.first_beyond", what=out.what) if out is not None else None
    summary = sentences(message("steps.count", count=len(exact) + len(free)), beyond)
    lost = len(ladder.pair.rows) - 1 - len(exact) - len(free)
    result = drifting(ladder, later_losses, summary, exact, free)
    second = ladder.pair.rows[1][0].step
    if any(finding.excess > 1 and finding.name == "loss" and finding.step == second for finding in [*exact, *free]):
        result = result.telling(message("later_losses.second_parts"))
    return (
        replace(result, status=Status.INCOMPLETE, summary=sentences(summary, message("later_losses.lost", count=lost)))
        if lost and result.status is Status.SAME
        else result
    )
