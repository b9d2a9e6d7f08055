"""The stage of a long run judged over all its steps, by the band that repeats of the reference make."""

from __future__ import annotations

from align_hooks.comparison.context import ComparisonContext
from align_hooks.comparison.control_band.banded import Banded, is_installed
from align_hooks.comparison.control_band.departure import departure
from align_hooks.comparison.control_band.noise_model import NUMBERS
from align_hooks.comparison.finding import Finding, Words, when
from align_hooks.comparison.stage_result import FaultLocation, Phase, StageResult, Status
from align_hooks.comparison.stages.stage import stage
from align_hooks.extras import installing
from align_hooks.messages import Message, message, sentences


@stage("band", Phase.AFTER_ALL, place=FaultLocation.CURVE, draws=True, decides=False, source=message("method.local_level"))
def band(context: ComparisonContext) -> StageResult | None:
    """Compare loss and global norm of all settled steps with what repeats differ by; None where no number has a band.

    Single free-running steps are not judged then: of thousands one is always far off."""
    if not context.bands:
        return None
    findings = [finding for each in context.bands for finding in (*left(context, each), *parts(each))]
    first = context.bands[0]
    judged = len(first.steps)
    summary: Words = message("band.compared", count=judged, repeats=len(context.noise.repeats), unsettled=first.model.settled)
    if not is_installed():
        summary = sentences(summary, message("band.without_parts", install=installing("statistics")))
    short = message("short.band", count=judged, repeats=len(context.noise.repeats))
    if not any(finding.limit_ratio > 1 for finding in findings):
        return StageResult(band, Status.SAME, summary, tuple(findings), short=short)
    findings.sort(key=lambda finding: (finding.limit_ratio <= 1, finding.step or 0))
    differs = findings[0].what if isinstance(findings[0].what, Message) else None
    result = StageResult(band, Status.DIFFERENT, summary, tuple(findings), short=short, differs=differs)
    return result.with_common(sentences(*departure(context)))


def left(context: ComparisonContext, each: Banded) -> list[Finding]:
    """Return a finding where a number leaves its band, with the values of the step at which that was seen."""
    if each.alarm is None or each.start is None:
        return []
    quantity, seen = NUMBERS[each.name], int(each.common[each.alarm.seen])
    what = message("band.left", what=quantity, start=when(each.start), step=when(seen))
    ours, theirs = (getattr(run.row(seen), each.name, None) for run in context.pair.runs)
    return [Finding(what, ours, theirs, step=each.start, quantity=quantity)]


def parts(each: Banded) -> list[Finding]:
    """Return a finding for the mean difference of each part of the run."""
    quantity, found = NUMBERS[each.name], []
    for part in each.drifts:
        first, last = (int(each.common[index]) for index in (part.start, part.stop - 1))
        what = message("band.part", what=quantity, first=first, last=last, from_iteration=first + 1, to_iteration=last + 1)
        found.append(Finding(what, error=abs(part.mean), limit=part.limit, step=first, quantity=quantity))
    return found
