"""The stage of expert choices, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from align_hooks.comparison import distances
from align_hooks.comparison.context import ComparisonContext
from align_hooks.comparison.data.routing import ALWAYS, has_choices, is_given, one_sided
from align_hooks.comparison.finding import Finding, Metric, when
from align_hooks.comparison.findings import WORST, furthest, in_short, steps_text
from align_hooks.comparison.stage_result import FaultLocation, Phase, StageResult, Status
from align_hooks.comparison.stages.stage import stage
from align_hooks.messages import Message, message, sentences
from align_hooks.record.read.routing import in_layers


@stage("routing", Phase.FORWARD, place=FaultLocation.FORWARD, draws=True, decides=False)
def routing(context: ComparisonContext) -> StageResult | None:
    """Compare each token's experts at every step, or counts of tokens where not both runs recorded them; None without experts.

    A few tokens that change experts are near ties. On equal weights more are a fault at or before the first layer that shows them; on
    weights that drifted they decide nothing."""
    pair = context.pair
    if not any(".experts." in name for run in pair.runs for name in pair.pieces(run)):
        return None
    by_step = {step: of_step(context, step) for step in sorted({*pair.steps("batches"), *pair.steps("routing")})}
    steps = [step for step, findings in by_step.items() if findings]
    if not steps:
        status = Status.INCOMPLETE if pair.steps("routing") else Status.NOT_COMPARED
        return StageResult(routing, status, message("routing.none"))
    findings = [finding for step in steps for finding in by_step[step]]
    changed = [finding for finding in findings if finding.error]
    beyond = [finding for finding in changed if finding.limit_ratio > 1]
    wrong = [finding for finding in beyond if finding.step is not None and pair.is_exact(finding.step)]
    status = Status.DIFFERENT if wrong else Status.INCONCLUSIVE if beyond else Status.SAME
    chosen = all(has_choices(*pair.runs, step=step) for step in steps)
    lacking = next((lack for step in pair.steps("routing") if (lack := one_sided(*pair.runs, step))), None)
    if lacking is not None and status is Status.SAME:
        return StageResult(routing, Status.INCOMPLETE, message("routing.unlike", name=lacking))
    summary = message("routing.compared" if chosen else "routing.counted", count=len(by_step[steps[0]]), steps=steps_text(steps))
    shown = first_wrong(wrong) if wrong else furthest(changed or findings)
    short = message("short.layers", count=len(by_step[steps[0]]), steps=in_short(steps))
    first_changed = message("routing.first_changed", what=first_wrong(changed)[0].what) if changed else None
    result = StageResult(routing, status, sentences(summary, first_changed), shown, short=short)
    result = replace(result, differs=shown[0].what) if wrong and isinstance(shown[0].what, Message) else result
    free = [step for step in steps if any(finding.error for finding in by_step[step]) and not is_given(*pair.runs, step)]
    return replace(result, ties=min(free, default=None))


def of_step(context: ComparisonContext, step: int) -> list[Finding]:
    """Return a finding for each layer of a step: the share of its tokens that went to other experts."""
    limits = context.pair.limits
    measured = distances.routing(*context.pair.runs, step, limits.eps)
    findings = []
    for distance in measured:
        default = max(limits.ties, ALWAYS / max(distance.reference, 1.0))
        limit = context.noise.limit("routing", step, distance.name, default)
        tokens = round(distance.error * distance.reference)
        what = message("routing.of_tokens", name=distance.name, count=tokens, all=int(distance.reference), step=when(step))
        findings.append(Finding(what, error=distance.error, limit=limit, name=distance.name, step=step, quantity=Metric.ROUTING))
    return findings


def first_wrong(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return violations in the order of a forward pass: the first passes its error on."""
    ordered = sorted(findings, key=lambda finding: (finding.step or 0, in_layers(finding.name)))
    return tuple(ordered[:WORST])
