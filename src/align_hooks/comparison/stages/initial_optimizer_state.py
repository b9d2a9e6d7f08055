"""The stage of the optimizers' initial state."""

from __future__ import annotations

from align_hooks.comparison.context import ComparisonContext
from align_hooks.comparison.finding import Finding, Metric
from align_hooks.comparison.findings import judged, moment_errors
from align_hooks.comparison.metrics.limits import limits_for
from align_hooks.comparison.stage_result import FaultLocation, Phase, StageResult, Status
from align_hooks.comparison.stages.stage import stage
from align_hooks.messages import all_of, message


@stage("initial optimizer state", Phase.UPDATE, place=FaultLocation.STATE, decides=False)
def initial_optimizer_state(context: ComparisonContext) -> StageResult:
    """Compare the states of optimizers that made updates before, to the bit or within the rounding of the moments' type."""
    pair = context.pair
    first, none = pair.first, message("optimizer_state.no_update")
    no_update = StageResult(initial_optimizer_state, Status.SAME, none, short=message("short.no_update"))
    if first is None or first not in pair.steps("optimizer_state"):
        fresh = first == 0 and not pair.converted and all(run.manifests for run in pair.runs)
        return no_update if fresh else StageResult(initial_optimizer_state, Status.NOT_COMPARED, pair.why_not("optimizer_state"))
    states = {side: run.optimizer_state(first) for side, run in pair.sides}
    ours, theirs = (state.updates for state in states.values())
    types = {kind for state in states.values() for kind in state.dtypes.values()}
    rounding = limits_for(*types)[1].eps if types - {"float32"} else 0.0
    findings = moment_errors(pair, first, rounding, context.work)
    groups = [group for run in pair.runs if run.facts.optimizer for group in run.facts.optimizer.groups]
    unknown = sorted({str(group.optimizer) for group in groups if group.moments == ()})
    if unknown and first > 0:
        why = message("optimizer_state.unknown", types=all_of(*unknown))
        return judged(initial_optimizer_state, why, findings, message("short.moments", count=len(findings)), incomplete=True)
    if not (ours or theirs) and all(finding.limit_ratio <= 1 for finding in findings):
        return no_update
    if ours != theirs:
        findings.insert(0, Finding(message("optimizer_state.count"), ours, theirs, step=first, quantity=Metric.OPTIMIZER_STATE))
    compared = message("optimizer_state.within_rounding" if rounding else "optimizer_state.to_the_bit", count=len(findings))
    result = judged(initial_optimizer_state, compared, findings, message("short.moments", count=len(findings)))
    moments = {side: (tensor for named in state.moments.values() for tensor in named.values()) for side, state in states.items()}
    lost = [side for side, tensors in moments.items() if not any(tensor.any() for tensor in tensors)]
    return result.with_common(message("optimizer_state.not_restored", side=lost[0]) if len(lost) == 1 else None)
