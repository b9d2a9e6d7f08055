"""Losses after the first."""

from __future__ import annotations

from dataclasses import replace

from align_hooks.compare.findings import losses
from align_hooks.compare.ladder import Ladder
from align_hooks.compare.stages.stage import Phase, stage
from align_hooks.compare.steps import drifting
from align_hooks.compare.verdict import Finding, Place, StageResult, Status
from align_hooks.messages import message, sentences


@stage("later losses", Phase.FORWARD, place=Place.NEXT_LOSS, draws=True)
def later_losses(ladder: Ladder) -> StageResult:
    """Losses after the first."""
    exact: list[Finding] = []
    free: list[Finding] = []
    rows = ladder.pair.rows[1:]
    for ours, theirs in rows:
        still = ladder.pair.is_exact(ours.step)
        (exact if still else free).extend(losses(ours, theirs, ladder.loss_limit(ours.step))[:1])
    findings = [*exact, *free]
    if not findings:
        return StageResult(later_losses, Status.INCOMPLETE if rows else Status.NOT_COMPARED, message("later_losses.none"))
    wrong = [finding for finding in findings if finding.excess > 1]
    beyond = message("later_losses.first_beyond", what=wrong[0].what) if wrong else None
    summary = sentences(message("steps.count", count=len(findings)), beyond)
    result = drifting(ladder, later_losses, summary, exact, free)
    if any(finding.name == "loss" and finding.step == rows[0][0].step for finding in wrong):
        result = result.telling(message("later_losses.second_parts"))
    lost = len(rows) - len(findings)
    if lost and result.status is Status.SAME:
        return replace(result, status=Status.INCOMPLETE, summary=sentences(summary, message("later_losses.lost", count=lost)))
    return result
