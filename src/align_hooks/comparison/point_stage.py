"""Judge the values or the gradients at points, for the two stages that do."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from align_hooks.comparison import distances
from align_hooks.comparison.context import ComparisonContext
from align_hooks.comparison.finding import Finding, Metric, Words, at_step, when
from align_hooks.comparison.findings import as_finding, furthest, in_short, steps_text
from align_hooks.comparison.metrics.points import healed, origins, without_gradient, wrong_parts
from align_hooks.comparison.stage_result import ErrorOrigin, StageInfo, StageResult, Status
from align_hooks.messages import Message, message, sentences, terms
from align_hooks.names.points import GRADIENT, consumers

Order = Callable[[Sequence[str]], tuple[list[str], dict[str, tuple[str, ...]]]]
"""The points of a pass in its order, and what each is made from."""
SHOWN = 3


def point_stage(context: ComparisonContext, stage: StageInfo, chosen: Callable[[str], bool], order: Order) -> StageResult | None:
    """Judge one point after the other in the first step that differs, or in the last; the origins of the error stand first.

    Steps on equal weights count, and the first step whose loss differs clearly on close ones."""
    pair = context.pair
    if not any(run.asked("activations") for run in pair.runs):
        return None
    recorded = pair.steps("activations")
    steps = [step for step in recorded if (pair.is_exact(step) or step == context.near_step) and step not in pair.skipped]
    if not steps:
        gaps = pair.gaps("activations")
        if gaps:
            return StageResult(stage, Status.INCOMPLETE, gaps[0])
        return StageResult(stage, Status.NOT_COMPARED, message("same_weights.no_exact_step") if recorded else pair.why_not("activations"))
    for step in steps:
        seen = look(context, step, chosen, order)
        if seen.origins:
            break
    if not seen.count:
        return StageResult(stage, Status.NOT_COMPARED, message("activations.none_in_common"))
    until = [each for each in steps if each <= step]
    compared = message("activations.compared", count=seen.count, steps=steps_text(until))
    norms = message("activations.by_norms", count=len(seen.by_norms)) if seen.by_norms else None
    agreeing = message("activations.healed", count=len(seen.otherwise), name=seen.otherwise[0]) if seen.otherwise else None
    summary = sentences(compared, norms, agreeing, _alone(context, step, chosen))
    short = message("short.points", count=seen.count, steps=in_short(until))
    if not seen.origins:
        unseen = list(dict.fromkeys(name for run in pair.runs for name in run.activations(step).unseen if chosen(name)))
        if unseen:
            return StageResult(stage, Status.INCOMPLETE, message("activations.unseen", count=len(unseen), name=unseen[0]))
        return StageResult(stage, Status.SAME, summary, furthest(list(seen.findings.values()), None), short=short)
    told = seen.origins if pair.is_taught(step) else seen.origins[:1]
    shown = {origin.finding.name: origin.finding for origin in told}
    shown |= {each.name: each for each in furthest(list(seen.findings.values()), None)}
    jumps = tuple(jump(context, origin, step) for origin in told[:SHOWN])
    backward = told[0].finding.name.endswith(GRADIENT)
    differs = message("activations.differ_backward" if backward else "activations.differ", name=told[0].name, step=when(step))
    jumped = sentences(summary, *jumps)
    result = StageResult(stage, Status.DIFFERENT, jumped, tuple(shown.values()), short=short, differs=differs)
    return replace(result, origins=tuple(told), jumps=jumps)


@dataclass(frozen=True, slots=True)
class PassComparison:
    """The points of one pass of a step."""

    count: int
    """How many points both runs have."""
    findings: Mapping[str, Finding]
    """Canonical name to finding, without the points of ``otherwise``."""
    origins: Sequence[ErrorOrigin]
    """The points at which an error comes about, in the order of the pass."""
    otherwise: Sequence[str]
    """Points that are the same function written otherwise."""
    by_norms: Sequence[str]
    """Points whose norms are compared, because one run has statistics only."""


def look(context: ComparisonContext, step: int, chosen: Callable[[str], bool], order: Order) -> PassComparison:
    """Compare the points of one pass."""
    findings = {finding.name: finding for finding in of_step(context, step) if chosen(finding.name)}
    ordered, made_from = order(list(findings))
    by_norms = _by_norms(context, step, ordered)
    limit_ratio = {name: finding.limit_ratio for name, finding in findings.items()}
    # an agreeing point speaks for one before it only if it was computed from that one, and more than norms agree
    follows = not by_norms and not context.pair.is_taught(step)
    otherwise = healed(limit_ratio, ordered, consumers(made_from)) if follows else []
    others = {name: finding for name, finding in findings.items() if name not in otherwise}
    return PassComparison(len(findings), others, origins(others, ordered, made_from), otherwise, by_norms)


def of_step(context: ComparisonContext, step: int) -> list[Finding]:
    """Return a finding for each value and gradient that both runs recorded; a gradient that one run lacks is infinitely wrong."""
    if step in context.points:
        return context.points[step]
    limits = context.pair.limits
    limit = context.noise.limits("activations", step, limits.gradient if context.pair.is_exact(step) else limits.free)
    measured = distances.activations(*context.pair.runs, step, context.pair.limits.eps, context.work)
    findings = [as_finding(distance, step, limit, Metric.ACTIVATIONS) for distance in measured]
    complete = not context.pair.dumped  # a dump may have no gradients, or none of some points
    for name, ours in without_gradient(*(run.activations(step) for run in context.pair.runs)) if complete else ():
        there, absent = message("activations.has_gradient"), message("activations.no_gradient")
        values = (there, absent) if ours else (absent, there)
        by: Mapping[str, object] = {"name": name, "step": step, "quantity": Metric.ACTIVATIONS}
        findings.append(Finding(at_step(name, step), *values, math.inf, limit(name), **by))  # type: ignore[arg-type]
    context.points[step] = findings
    return findings


def jump(context: ComparisonContext, origin: ErrorOrigin, step: int) -> Words:
    """Describe where an error comes about, and how far the point and its sources are beyond their limits."""
    finding, backward, users = origin.finding, origin.finding.name.endswith(GRADIENT), _listed(origin)
    if finding.error is None or math.isinf(finding.limit_ratio):
        id = "activations.begins_backward" if backward else "activations.begins"
        return sentences(message(id, name=origin.name, users=users), _parts(context, finding, step))
    id = "activations.jump_backward" if backward else "activations.jump"
    told = message(id, name=origin.name, times=finding.limit_ratio, inputs=origin.inputs, users=users)
    return sentences(told, _parts(context, finding, step))


def _listed(origin: ErrorOrigin) -> Words:
    return terms([name.removesuffix(GRADIENT) for name in origin.made_from[:SHOWN]]) if origin.made_from else message("activations.nothing")


def _parts(context: ComparisonContext, finding: Finding, step: int) -> Message | None:
    """Describe the micro-batches or ranks in which a point is wrong; None where it is wrong in all."""
    ours, theirs = (run.activations(step) for run in context.pair.runs)
    if finding.limit is None or finding.name not in ours.names or finding.name not in theirs.names:
        return None
    wrong, count = wrong_parts(ours, theirs, finding.name, finding.limit)
    if not wrong or len(wrong) == count:
        return None
    micro_batches, ranks = (sorted({part[axis] for part in wrong}) for axis in (0, 1))
    return message("activations.in_parts", count=len(wrong), all=count, micro_batches=terms(micro_batches), ranks=terms(ranks))


def _alone(context: ComparisonContext, step: int, chosen: Callable[[str], bool]) -> Message | None:
    """Return how many points only one run has, and the first of them."""
    ours, theirs = ([name for name in run.activations(step).names if chosen(name)] for run in context.pair.runs)
    alone = [name for name in (*ours, *theirs) if (name in ours) is not (name in theirs)]
    return message("activations.on_one_side", count=len(alone), name=alone[0]) if alone else None


def _by_norms(context: ComparisonContext, step: int, names: Sequence[str]) -> list[str]:
    """Return the points of which a run has statistics but no sketch, so that their norms are compared."""
    ours, theirs = (run.activations(step) for run in context.pair.runs)
    common = [name for name in names if name in ours.names and name in theirs.names]
    return [name for name in common if not (ours[name].sketched and theirs[name].sketched)]
