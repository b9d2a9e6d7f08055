"""The stage of the first updates: the change of the weights while both runs still have equal ones.

Weights hide an update that is a hundredth of them, so their change is compared, of the first two updates that move any. After the first
both runs' weights and gradients are equal but for rounding. The second shows the betas and the clipping, which bias correction and the
scale of the gradients hide from the first. Sketches of the weights are enough: the sketch of a change is the change of the sketches."""

from __future__ import annotations

import math

from msgspec.structs import replace

from align_hooks.comparison import distances
from align_hooks.comparison.context import ComparisonContext
from align_hooks.comparison.finding import Finding, Metric, Pattern, at_step
from align_hooks.comparison.findings import as_finding, furthest, judged, of_tensors
from align_hooks.comparison.metrics.limits import SKETCHED
from align_hooks.comparison.patterns.sharding import common_factor
from align_hooks.comparison.stage_result import FaultLocation, Phase, StageResult, Status
from align_hooks.comparison.stages.stage import stage
from align_hooks.messages import any_of, message

UPDATES = 2
FLIPS = 1.5
"""Elements of a tensor, in root mean square, that may move the other way: those whose gradient is near zero move by the whole rate."""
MOST = 0.7
"""Part of the reference's update that no limit exceeds, or a tensor that is never updated would pass."""


@stage("first updates", Phase.UPDATE, place=FaultLocation.OPTIMIZER, is_of_tensors=True, is_pictured=True)
def first_updates(context: ComparisonContext) -> StageResult:
    """Compare the changes of the weights, tensor by tensor; inconclusive where they are not clearly beyond a default limit."""
    pair = context.pair
    kinds = {str(run.facts.optimizer and run.facts.optimizer.type) for side, run in pair.sides if side not in pair.converted}
    # default limits are Adam's: it makes the whole rate of a gradient that is near zero, on either side of it
    if not context.noise.repeats and not all("adam" in name.lower() for kind in kinds for name in kind.split(" and ")):
        return StageResult(first_updates, Status.NOT_COMPARED, message("first_updates.no_default_limit", optimizers=any_of(*sorted(kinds))))
    begun = next((index for index, (ours, _) in enumerate(pair.rows) if ours.step + 1 not in pair.still), len(pair.rows))
    rows = pair.rows[begun : begun + UPDATES]  # that can move a weight, from equal weights
    rows = rows if rows and pair.is_exact(rows[0][0].step) else []
    known = set(pair.known("weights"))
    steps = [ours.step for ours, theirs in rows if not (ours.skipped or theirs.skipped)]
    steps = [step for step in steps if {step, step + 1} <= known and step + 1 not in pair.after_injected]
    by_step = [_errors(context, step) for step in steps]
    if not any(by_step):
        injected = any(ours.step + 1 in pair.after_injected for ours, _ in rows)
        why = message("first_updates.handed_over" if injected else "first_updates.not_on_record")
        return StageResult(first_updates, Status.NOT_COMPARED, why)
    tensors = sum(bool(finding.name) for finding in by_step[0])
    summary = message("first_updates.compared", tensors=tensors, updates=len(steps))
    beyond_limit = next((errors for errors in by_step if any(error.limit_ratio > 1 for error in errors)), None)  # later ones follow from it
    findings = beyond_limit or [error for errors in by_step for error in errors]
    short = message("short.updates", count=len(steps), tensors=tensors)
    result = judged(first_updates, summary, findings, short, most=None)
    ordered = sorted(result.findings, key=lambda finding: (finding.limit_ratio <= 1, not finding.name))
    result = replace(result, findings=tuple(ordered))
    if result.status is not Status.DIFFERENT:
        return result
    result = replace(result, differs=of_tensors(first_updates, findings))
    clear = any(finding.limit_ratio > pair.limits.clear_update or not (finding.error or 0.0) <= MOST for finding in result.findings)
    if not clear and not context.noise.repeats:
        return StageResult(first_updates, Status.INCONCLUSIVE, result.summary, furthest(result.findings), short=short)
    factor = common_factor([replace(finding, limit=pair.limits.update) for finding in findings if finding.scale is not None])
    if factor is None:
        return result
    return replace(result, differs=None).with_common(message("first_updates.every_update_scaled", factor=factor), Pattern.UPDATES_SCALED)


def _errors(context: ComparisonContext, step: int) -> list[Finding]:
    """Return relative distances of one update, and that of all tensors together, which has no name."""
    pair = context.pair
    times = 1.0 if {step, step + 1} <= set(pair.steps("weights")) else SKETCHED
    measured = context.noise.limits("updates", step, pair.limits.update)
    shapes = pair.pieces(pair.reference)

    def limit(name: str) -> float:
        """Return a limit wide enough for one element that moves the other way, and too narrow for a tensor without update."""
        return min(math.hypot(times * measured(name), 2 * FLIPS / math.sqrt(math.prod(shapes[name]) or 1)), MOST)

    updates = list(distances.updates(*pair.runs, step, pair.limits.eps, context.work))
    findings = [as_finding(update, step, limit, Metric.UPDATES) for update in updates]
    size = math.sqrt(math.fsum(update.reference**2 for update in updates))
    if len(updates) < 2 or not math.isfinite(size):
        return findings
    elements = sum(math.prod(shapes[update.name]) for update in updates)
    widest = max(measured(update.name) for update in updates)
    apart = math.sqrt(math.fsum((update.error * update.reference) ** 2 for update in updates if update.error)) / size if size else 0.0
    together = min(math.hypot(widest, 2 * FLIPS / math.sqrt(elements or 1)), MOST)  # of many estimates the errors even out
    subject = at_step(message("first_updates.all_tensors"), step)
    return [*findings, Finding(subject, error=apart, limit=together, step=step, quantity=Metric.UPDATES)]
