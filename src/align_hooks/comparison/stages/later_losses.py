"""The stage of losses after the first."""

from __future__ import annotations

from msgspec.structs import replace

from align_hooks.comparison.context import ComparisonContext
from align_hooks.comparison.data.empty_micro_batch import divided_by_nothing
from align_hooks.comparison.finding import Metric, Pattern
from align_hooks.comparison.findings import StepDistance, from_step, worse_loss, worst_findings
from align_hooks.comparison.stage_result import FaultLocation, Phase, StageResult, Status
from align_hooks.comparison.stages.stage import stage
from align_hooks.comparison.steps import drifting
from align_hooks.messages import message, sentences


@stage("later losses", Phase.FORWARD, place=FaultLocation.NEXT_LOSS, draws=True)
def later_losses(context: ComparisonContext) -> StageResult:
    """Compare the losses after the first."""
    exact: list[StepDistance] = []
    free: list[StepDistance] = []
    skipped = 0  # by both runs, of which Megatron-LM's log has no loss
    rows = context.pair.rows[1:]
    for ours, theirs in rows:
        limit = context.loss_limit(ours.step)
        distance = worse_loss(ours, theirs, limit)
        if distance is not None:
            (exact if context.pair.is_exact(ours.step) else free).append((ours.step, distance, limit))
        else:
            skipped += bool(ours.skipped and theirs.skipped)
    count = len(exact) + len(free)
    if not count:
        status = Status.INCOMPLETE if rows and not context.pair.dumped else Status.NOT_COMPARED
        return StageResult(later_losses, status, message("later_losses.none"))
    judged_free = worst_findings([apart for apart in free if not context.is_banded(apart[0])], Metric.LOSS)
    of_exact, of_free = (worst_findings(of, Metric.LOSS) for of in (exact, free))
    wrong = [finding for finding in (*of_exact, *of_free) if finding.limit_ratio > 1]  # the first that is beyond its limit is among them
    beyond = message("later_losses.first_beyond", what=wrong[0].what) if wrong else None
    short = message("steps.count", count=count)
    summary = sentences(short, beyond)
    result = drifting(context, later_losses, summary, of_exact, judged_free, short)
    if wrong and result.status is Status.DIFFERENT:
        result = replace(result, differs=from_step(Metric.LOSS, wrong[0].step or 0, on=False))
    if (empty := divided_by_nothing(context, wrong)) is not None:
        return replace(result, place=FaultLocation.NORMALISATION, differs=None).with_common(empty, Pattern.DIVIDED_BY_NOTHING)
    if any(finding.name == "loss" and finding.step == rows[0][0].step for finding in wrong):
        result = result.with_common(message("later_losses.second_parts"))
    lost = len(rows) - count - skipped
    if lost and result.status is Status.SAME:
        return replace(result, status=Status.INCOMPLETE, summary=sentences(summary, message("later_losses.lost", count=lost)))
    return result
