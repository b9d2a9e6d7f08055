"""Judge steps: on equal weights limits are tight, and free-running steps only drift."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from align_hooks.comparison.context import ComparisonContext
from align_hooks.comparison.finding import Finding, Metric, Words
from align_hooks.comparison.findings import furthest, in_short, judged, of_tensors, steps_text
from align_hooks.comparison.patterns.sharding import explanation
from align_hooks.comparison.stage_result import StageInfo, StageResult, Status
from align_hooks.messages import Message, message, sentences


def exact_stage(context: ComparisonContext, stage: StageInfo, kind: Metric, wanted: Callable[[int], bool], default: float) -> StageResult:
    """Judge the tensors of all wanted steps, and say what the findings of the first step have in common."""
    pair, gaps = context.pair, context.pair.gaps(kind)
    known = pair.known(kind)
    steps = [step for step in known if wanted(step)]
    norms = kind is Metric.LOCAL_NORMS
    by_step = {step: context.norms(step, default) if norms else context.tensors(kind, step, default) for step in steps}
    findings = [finding for of_step in by_step.values() for finding in of_step]
    if findings:
        equal = sum(finding.by_digest for finding in findings)
        by_digest = message("same_weights.equal_by_digest", count=equal) if equal else None
        summary = sentences(_tensors(kind, len(findings), steps, sketched=steps[0] in pair.sketched(kind)), by_digest, *gaps[:1])
        short = message("short.tensors", count=len(findings), steps=in_short(steps))
        result = judged(stage, summary, findings, short, incomplete=bool(gaps), most=None)
        differs = result.status is Status.DIFFERENT
        if differs:
            result = result.with_common(*explanation(pair.runs, kind, steps[0], by_step[steps[0]]))
        return result if result.common else replace(result, differs=of_tensors(stage, findings) if differs else None)
    if steps and pair.nameless and not gaps:
        return StageResult(stage, Status.NOT_COMPARED, message("same_weights.own_names"))
    if gaps or steps:
        return StageResult(stage, Status.INCOMPLETE, gaps[0] if gaps else message("same_weights.no_common_tensor"))
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
