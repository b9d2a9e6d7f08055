"""Judge steps for several stages: tensors and points with tight limits on equal weights, and free-running steps that only drift."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import chain

from msgspec import Struct
from msgspec.structs import replace

from align_hooks.comparison import distances
from align_hooks.comparison.context import ComparisonContext
from align_hooks.comparison.finding import Finding, Metric, Words, at_step, when
from align_hooks.comparison.findings import as_finding, furthest, in_short, judged, of_tensors, steps_text
from align_hooks.comparison.metrics.points import healed, origins, pass_order, without_gradient, wrong_parts
from align_hooks.comparison.patterns.sharding import explanation
from align_hooks.comparison.stage_result import ErrorOrigin, StageInfo, StageResult, Status
from align_hooks.messages import Message, message, sentences, terms
from align_hooks.names.points import GRADIENT, consumers

SHOWN = 3


def exact_stage(context: ComparisonContext, stage: StageInfo, kind: Metric, wanted: Callable[[int], bool], default: float) -> StageResult:
    """Judge the tensors of all wanted steps, and say what the findings of the first step have in common."""
    pair, gaps, known = context.pair, context.pair.gaps(kind), context.pair.known(kind)
    steps = [step for step in known if wanted(step)]
    norms = kind is Metric.LOCAL_NORMS
    by_step = {step: context.norms(step, default) if norms else context.tensors(kind, step, default) for step in steps}
    if findings := list(chain.from_iterable(by_step.values())):
        equal = sum(finding.by_digest for finding in findings)
        by_digest = message("same_weights.equal_by_digest", count=equal) if equal else None
        summary = sentences(_tensors(kind, len(findings), steps, sketched=steps[0] in pair.sketched(kind)), by_digest, *gaps[:1])
        short = message("short.tensors", count=len(findings), steps=in_short(steps))
        result = judged(stage, summary, findings, short, incomplete=bool(gaps), most=None)
        differs = result.status is Status.DIFFERENT
        if differs:
            result = result.with_common(*explanation(pair.runs, kind, steps[0], by_step[steps[0]]))
        return result if result.common else replace(result, differs=of_tensors(stage, findings) if differs else None)
    if gaps or (steps and not pair.nameless):
        return StageResult(stage, Status.INCOMPLETE, gaps[0] if gaps else message("same_weights.no_common_tensor"))
    if steps:
        return StageResult(stage, Status.NOT_COMPARED, message("same_weights.own_names"))
    return StageResult(stage, Status.NOT_COMPARED, message("same_weights.no_exact_step") if known else pair.why_not(kind))


def _tensors(kind: Metric, count: int, steps: Sequence[int], *, sketched: bool) -> Message:
    """Say how many tensors were compared, and how."""
    if sketched:
        return message("same_weights.by_sketches", count=count, steps=steps_text(steps))
    if kind is Metric.WEIGHTS:
        return message("same_weights.to_the_bit", count=count)
    return message("same_weights.at_steps", count=count, steps=steps_text(steps))


def drifting(
    context: ComparisonContext, stage: StageInfo, summary: Words, exact: Sequence[Finding], free: Sequence[Finding], short: Words
) -> StageResult:
    """Judge exact findings by their limits, and free ones as inconclusive between ``limit`` and ``clear``.

    Free findings of steps that a control band judges are left out."""
    free = [finding for finding in free if not context.is_banded(finding.step)]
    findings = [*exact, *free]
    worst = max((finding.limit_ratio for finding in free), default=0.0)
    if any(finding.limit_ratio > 1 for finding in exact) or worst > context.pair.limits.clear:
        return judged(stage, summary, findings, short)
    return StageResult(stage, Status.SAME if worst <= 1 else Status.INCONCLUSIVE, summary, furthest(findings), short=short)


def point_stage(context: ComparisonContext, stage: StageInfo, *, backward: bool) -> StageResult | None:
    """Judge one point after the other in the first step that differs, or in the last; the origins of the error stand first.

    Steps on equal weights count, and the first step whose loss differs clearly on close ones."""
    pair = context.pair
    if not any(run.asked("activations") for run in pair.runs):
        return None
    recorded = pair.steps("activations")
    steps = [step for step in recorded if (pair.is_exact(step) or step == context.near_step) and step not in pair.skipped]
    if not steps:
        if gaps := pair.gaps("activations"):
            return StageResult(stage, Status.INCOMPLETE, gaps[0])
        return StageResult(stage, Status.NOT_COMPARED, message("same_weights.no_exact_step") if recorded else pair.why_not("activations"))
    for step in steps:
        found = compare_points(context, step, backward=backward)
        if found.origins:
            break
    if not found.count:
        return StageResult(stage, Status.NOT_COMPARED, message("activations.none_in_common"))
    until = [each for each in steps if each <= step]
    compared = message("activations.compared", count=found.count, steps=steps_text(until))
    norms = message("activations.by_norms", count=len(found.by_norms)) if found.by_norms else None
    agreeing = message("activations.healed", count=len(found.healed), name=found.healed[0]) if found.healed else None
    summary = sentences(compared, norms, agreeing, _of_one_side(context, step, backward=backward))
    short = message("short.points", count=found.count, steps=in_short(until))
    findings = furthest(list(found.findings.values()), None)
    if not found.origins:
        every = dict.fromkeys(name for run in pair.runs for name in run.activations(step).unseen)
        unseen = [name for name in every if name.endswith(GRADIENT) is backward]
        if unseen:
            return StageResult(stage, Status.INCOMPLETE, message("activations.unseen", count=len(unseen), name=unseen[0]))
        return StageResult(stage, Status.SAME, summary, findings, short=short)
    origins = tuple(found.origins if pair.is_forced(step) else found.origins[:1])
    shown = {each.name: each for each in (*(origin.finding for origin in origins), *findings)}
    jumps = tuple(jump(context, origin, step) for origin in origins[:SHOWN])
    differs = message("activations.differ_backward" if backward else "activations.differ", name=origins[0].name, step=when(step))
    result = StageResult(stage, Status.DIFFERENT, sentences(summary, *jumps), tuple(shown.values()), short=short, differs=differs)
    return replace(result, origins=origins, jumps=jumps)


class PassComparison(Struct, frozen=True):
    """The points of one pass of a step."""

    count: int
    """Number of points that both runs have."""
    findings: Mapping[str, Finding]
    """Canonical name to finding, without healed points."""
    origins: Sequence[ErrorOrigin]
    healed: Sequence[str]
    """Points that are the same function written otherwise."""
    by_norms: Sequence[str]
    """Points whose norms are compared, because one run has statistics only."""


def compare_points(context: ComparisonContext, step: int, *, backward: bool) -> PassComparison:
    """Compare the points of one pass."""
    without = ROTATED if packs_alone(context, step) else ()
    found = (finding for finding in of_step(context, step) if finding.name.endswith(GRADIENT) is backward)
    findings = {finding.name: finding for finding in found if not finding.name.removesuffix(GRADIENT).endswith(without)}
    ordered, made_from = pass_order(list(findings), backward=backward)
    ours, theirs = (run.activations(step) for run in context.pair.runs)
    common = [name for name in ordered if name in ours.names and name in theirs.names]
    by_norms = [name for name in common if not (ours[name].sketched and theirs[name].sketched)]
    limit_ratio = {name: finding.limit_ratio for name, finding in findings.items()}
    # an agreeing point speaks for one before it only if it was computed from that one, and more than norms agree
    follows = not by_norms and not context.pair.is_forced(step)
    fine = healed(limit_ratio, ordered, consumers(made_from)) if follows else []
    others = {name: finding for name, finding in findings.items() if name not in fine}
    return PassComparison(len(findings), others, origins(others, ordered, made_from), fine, by_norms)


ROTATED = (".self_attn.query", ".self_attn.key")
"""Points whose values depend on where positions begin, which attention does not."""


def packs_alone(context: ComparisonContext, step: int) -> bool:
    """Return whether one side alone packs samples: Megatron-LM begins a document's rotation anew, and else that of a row."""
    if step not in context.pair.steps("batches"):
        return False
    ours, theirs = context.batches(step)
    return (ours.documents is None) is not (theirs.documents is None)


def of_step(context: ComparisonContext, step: int) -> list[Finding]:
    """Return a finding for each value and gradient that both runs recorded; a gradient that one run lacks is infinitely wrong."""
    if step in context.points:
        return context.points[step]
    limits = context.pair.limits
    limit = context.noise.limits("activations", step, limits.gradient if context.pair.is_exact(step) else limits.free)
    measured = distances.activations(*context.pair.runs, step, context.pair.limits.eps, context.work)
    findings = [as_finding(distance, step, limit, Metric.ACTIVATIONS) for distance in measured]
    complete = not context.pair.dumped  # a dump may have no gradients, or none of some points
    for name, in_reference in without_gradient(*(run.activations(step) for run in context.pair.runs)) if complete else ():
        subject, has, no = at_step(name, step), message("activations.has_gradient"), message("activations.no_gradient")
        ours, theirs = (has, no) if in_reference else (no, has)
        findings.append(Finding(subject, ours, theirs, math.inf, limit(name), name=name, step=step, quantity=Metric.ACTIVATIONS))
    context.points[step] = findings
    return findings


def jump(context: ComparisonContext, origin: ErrorOrigin, step: int) -> Words:
    """Describe the origin of an error, and the limit ratios of the point and its sources."""
    finding, pass_of = origin.finding, "_backward" if origin.finding.name.endswith(GRADIENT) else ""
    sources = terms([name.removesuffix(GRADIENT) for name in origin.made_from[:SHOWN]])
    users = sources if origin.made_from else message("activations.nothing")
    ratio = "jump" if origin.made_from else "first"  # of points that nothing on record leads to, only their own error is known
    if finding.error is None or math.isinf(finding.limit_ratio):
        begins = message(f"activations.begins{pass_of}", name=origin.name, users=users)
        return sentences(begins, _parts(context, finding, step))
    ratios = {"times": finding.limit_ratio, "inputs": origin.inputs}
    return sentences(message(f"activations.{ratio}{pass_of}", name=origin.name, **ratios, users=users), _parts(context, finding, step))


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


def _of_one_side(context: ComparisonContext, step: int, *, backward: bool) -> Message | None:
    """Return the number of points that only one run has, and the first of them."""
    ours, theirs = ([name for name in run.activations(step).names if name.endswith(GRADIENT) is backward] for run in context.pair.runs)
    names = [name for name in (*ours, *theirs) if (name in ours) is not (name in theirs)]
    return message("activations.on_one_side", count=len(names), name=names[0]) if names else None
