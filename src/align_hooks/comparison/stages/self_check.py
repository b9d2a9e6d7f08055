"""The stage of each record's contradictions."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from align_hooks.comparison.context import ComparisonContext
from align_hooks.comparison.findings import WORST, contradictions, copies_alike
from align_hooks.comparison.patterns.rank_copies import explained
from align_hooks.comparison.stage_result import FaultLocation, StageResult, Status
from align_hooks.comparison.stages.stage import stage
from align_hooks.messages import Message, Side, all_of, message, sentences
from align_hooks.record.check.self_check import SelfCheck


@stage("self-check", place=FaultLocation.SELF_CHECK, is_before_numbers=True, source="align_hooks.record.check.self_check")
def self_check(context: ComparisonContext) -> StageResult:
    """Check that each record holds every element once, by its framework's norm, and that copies are equal."""
    checks = {side: run.self_check for side, run in context.pair.sides if run.manifests}
    findings = [finding for side, check in checks.items() for finding in contradictions(check.of_layout, side)]
    if findings:
        summary = message("self_check.contradictions", count=len(findings))
        first = message("self_check.contradicts", what=findings[0].what)
        result = StageResult(self_check, Status.DIFFERENT, summary, tuple(findings[:WORST]), differs=first)
        found = [(side, run, checks[side].of_layout) for side, run in context.pair.sides if side in checks]
        known = [explained(context.pair, run, side, wrong) for side, run, wrong in found if wrong]
        if len(known) == 1 and known[0] is not None:
            words, pattern, place = known[0]
            return replace(result, differs=None, place=place).with_common(words, pattern)
        return result
    copies = sum(check.copies for check in checks.values())
    normed = [check for check in checks.values() if check.steps or check.unchecked]
    if not normed or not all(check.steps for check in normed):
        alike = copies_alike(copies) if copies else None
        return StageResult(self_check, Status.NOT_COMPARED, sentences(_unchecked(context, checks), alike))
    counts = {side: (len(check.steps), len(check.steps) + len(check.unchecked)) for side, check in checks.items()}
    steps = all_of(
        *(message("self_check.steps", checked=checked, all=total, side=side) for side, (checked, total) in counts.items() if total)
    )
    inexact = max(check.inexact for check in checks.values())
    norms = message("self_check.norms", steps=steps, inexact=inexact, copies=copies_alike(copies))
    checked = sum(checked for checked, _ in counts.values())
    short = message("short.self_check", count=checked)
    odd = all_of(*(side for side, check in checks.items() if check.of_losses))
    if odd.parts:
        other = message("self_check.loss_function", sides=odd)
        return StageResult(self_check, Status.SAME, sentences(norms, other), short=sentences(short, message("short.odd_loss")))
    return StageResult(self_check, Status.SAME, norms, short=short)


def _unchecked(context: ComparisonContext, checks: Mapping[Side, SelfCheck]) -> Message:
    """Say why there is no framework's norm to compare a record with."""
    bare = [side for side, check in checks.items() if not check.steps]
    injected = bare and all(run.facts.injected.steps for side, run in context.pair.sides if side in bare)
    if len(bare) == 1:
        return message("self_check.injected_of_side" if injected else "self_check.no_norms_of_side", side=bare[0])
    return message("self_check.injected" if injected else "self_check.no_norms")
