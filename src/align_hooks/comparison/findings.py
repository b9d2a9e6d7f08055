"""Findings and judgements that the stages of the ladder share."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from align_hooks.comparison.finding import Finding, Metric, Words, at_step, limit_ratio, when
from align_hooks.comparison.metrics import distances
from align_hooks.comparison.metrics.distances import Distance
from align_hooks.comparison.metrics.limits import SAME_SKETCH, SETTING, SKETCHED
from align_hooks.comparison.pair import Pair
from align_hooks.comparison.settings.recorded import equal
from align_hooks.comparison.stage_result import StageInfo, StageResult, Status
from align_hooks.messages import Message, Side, message, sentences
from align_hooks.process.work import WorkPool
from align_hooks.record.check.self_check import Contradiction, ContradictionKind
from align_hooks.record.format.schema import Rate, ScalarRow

WORST = 10
NUMBERS = (Metric.LOSS, Metric.LOCAL_NORMS)
"""What is a number on each side, which a finding shows. Of a tensor it shows nothing, unless the norm is not finite."""
NOT_APART: Mapping[str, float] = {}
Limit = Callable[[str], float]
"""Of a quantity's name."""
StepDistance: TypeAlias = tuple[int, Distance, Limit]
"""A step, how far two runs are apart there, and with which limit."""


def tensor_errors(pair: Pair, kind: str, step: int, limit: Limit, work: WorkPool, apart: Mapping[str, float] = NOT_APART) -> list[Finding]:
    """Relative Frobenius errors of gradients or weights, estimated from sketches where not both runs stored them. ``apart`` is how far
    (L2) some of them may be apart whatever their relative limit."""
    measured = list(distances.MEASURED[kind](*pair.runs, step, pair.limits.eps, work))
    limits = limit if pair.both_stored(kind, step) else lambda name: max(SKETCHED * limit(name), SAME_SKETCH)
    wide = {one.name: apart[one.name] / one.reference for one in measured if one.name in apart and one.reference}
    return [as_finding(one, step, lambda name: max(limits(name), wide.get(name, 0.0)), Metric(kind)) for one in measured]


def as_finding(distance: Distance, step: int, limit: Limit, quantity: Metric) -> Finding:
    """A distance with its limit, and the values that are shown beside it."""
    name, ours, theirs = distance.name, distance.reference, distance.candidate
    values = (ours, theirs) if quantity in NUMBERS else (unless_finite(ours), unless_finite(theirs))
    of_two, by_digest = (distance.scale, distance.direction), distance.by_digest
    return Finding(at_step(name, step), *values, distance.error, limit(name), *of_two, name, step, quantity, by_digest=by_digest)


def moment_errors(pair: Pair, step: int, limit: float, work: WorkPool) -> list[Finding]:
    """Relative Frobenius errors of Adam's moments after ``step`` updates."""
    ours, theirs = (run.optimizer_state(step).moments for run in pair.runs)
    return [
        Finding(
            at_step(message("moment.of", moment=moment, tensor=distance.name), step),
            unless_finite(distance.reference),
            unless_finite(distance.candidate),
            distance.error,
            limit,
            step=step,
            quantity=Metric.OPTIMIZER_STATE,
        )
        for moment in ours
        for distance in distances.of_tensors(ours[moment], theirs[moment], message("distances.of_step", what=moment, step=when(step)), work)
    ]


def judged(
    stage: StageInfo, summary: Words, findings: Sequence[Finding], short: Words, *, incomplete: bool = False, most: int | None = WORST
) -> StageResult:
    """A stage whose findings are in or out, the worst of them kept; a reference that is not finite makes it not comparable. ``short`` is
    the summary in a few words."""
    bad = [finding for finding in findings if finding.limit_ratio > 1]
    if any(map(without_reference, bad)):
        why = sentences(message("stage.reference_not_finite"), summary)
        return StageResult(stage, Status.NOT_COMPARABLE, why, furthest(bad), short=short)
    status = Status.DIFFERENT if bad else Status.INCOMPLETE if incomplete else Status.SAME
    return StageResult(stage, status, summary, furthest(findings, most), short=short)


def worse_loss(ours: ScalarRow, theirs: ScalarRow, limit: Limit) -> Distance | None:
    """The first of :func:`losses` as a distance; None where there is none. A long run has one at every step, and shows few."""
    return max(distances.of_losses(ours, theirs), key=lambda distance: limit_ratio(distance.error, limit(distance.name)), default=None)


def losses(ours: ScalarRow, theirs: ScalarRow, limit: Limit) -> list[Finding]:
    """Loss and objective of a step, the worse first."""
    findings = [as_finding(distance, ours.step, limit, Metric.LOSS) for distance in distances.of_losses(ours, theirs)]
    return sorted(findings, key=lambda finding: -finding.limit_ratio)


def contradictions(recorded: Sequence[Contradiction], side: Side | None = None) -> list[Finding]:
    """Contradictions of a record's self-check, and whose record it is where there are two."""
    findings = []
    for contradiction in recorded:
        step, subject = contradiction.step, at_step(contradiction.subject, contradiction.step)
        if side is not None:
            subject = message("self_check.of_side", side=side, what=contradiction.subject, step=step, iteration=step + 1)
        claims, name, rank = (contradiction.first.words, contradiction.second.words), contradiction.name, contradiction.rank
        findings.append(Finding(subject, *claims, name=name, step=step, quantity=Metric.SELF_CHECK, rank=rank))
    return findings


def contradicted_by(side: Side, contradiction: Contradiction) -> Message:
    """What a side's loss function makes otherwise than its tokens' losses and its mask say."""
    if contradiction.kind is ContradictionKind.WEIGHTS_OF_TOKENS:
        return message("first_loss.weighs_otherwise", side=side, made=contradiction.second.words, said=contradiction.first.words)
    said, made = contradiction.first.value, contradiction.second.value
    if contradiction.kind is ContradictionKind.COUNT:
        return message("first_loss.counts_otherwise", side=side, count=said, sum=made)
    return message("first_loss.not_the_mean", side=side, loss=said, mean=made)


def copies_alike(copies: int) -> Message:
    """How many copies on other ranks a self-check compared."""
    return message("copies.alike", count=copies) if copies else message("copies.none")


def unless_finite(norm: float) -> float | None:
    """A tensor's norm as a finding shows it: nothing, unless it is not finite."""
    return None if math.isfinite(norm) else math.nan


def rates_equal(ours: Rate, theirs: Rate, within: float = SETTING) -> bool:
    """Rates are per group where groups differ, which may be counted differently: the distinct rates are compared, ``within`` relative."""
    if ours == theirs and isinstance(ours, float) and math.isfinite(ours):
        return True
    return equal(np.unique(ours).tolist(), np.unique(theirs).tolist(), within)


def steps_text(steps: Sequence[int]) -> Message:
    """One step as :func:`when` says it, or how many there are."""
    if len(steps) == 1:
        return when(steps[0])
    first, last = steps[0], steps[-1]
    return message("steps.range", count=len(steps), first=first, last=last, from_iteration=first + 1, to_iteration=last + 1)


def in_short(steps: Sequence[int]) -> Message:
    """One step by its number alone, or how many there are."""
    return message("short.step", step=steps[0]) if len(steps) == 1 else message("steps.count", count=len(steps))


def of_tensors(stage: StageInfo, findings: Sequence[Finding]) -> Message | None:
    """Of how many tensors a stage differs at the first step at which it does, and of which most; None where it does not."""
    beyond = [finding for finding in findings if finding.limit_ratio > 1 and finding.name]
    step = min((finding.step or 0 for finding in beyond), default=0)
    tensors = {finding.name for finding in findings if (finding.step or 0) == step and finding.name}
    worst = sorted((finding for finding in beyond if (finding.step or 0) == step), key=lambda finding: -finding.limit_ratio)
    if not worst:
        return None
    return message("differs.tensors", what=stage.title, count=len(worst), all=len(tensors), name=worst[0].name, step=when(step))


def from_step(what: Words | str, step: int, *, on: bool) -> Message:
    """What differs at a step, and whether at all later ones too."""
    return message("differs.from_on" if on else "differs.first_at", what=what, step=when(step))


def furthest(findings: Sequence[Finding], most: int | None = WORST) -> tuple[Finding, ...]:
    """The findings that are furthest beyond their limits, the worst first; all of them where ``most`` is None. The earliest that is beyond
    its limit is always among them: it says when a difference begins."""
    ordered = sorted(findings, key=lambda finding: -finding.limit_ratio)
    begun = [finding for finding in ordered if finding.limit_ratio > 1 and finding.step is not None]
    earliest = min(begun, key=lambda finding: finding.step or 0, default=None)
    kept = ordered[:most]
    return tuple(kept if earliest is None or earliest in kept else [*kept, earliest])


def without_reference(finding: Finding | Distance) -> bool:
    """Whether the reference's value is not finite, so that nothing can be held against it."""
    return isinstance(finding.reference, float) and not math.isfinite(finding.reference)


def keep_worst(findings: Sequence[Finding]) -> list[Finding]:
    """Those of many findings that a judgement of all of them needs: the furthest, and one without a reference."""
    kept = furthest(findings)
    lost = next(filter(without_reference, findings), None)
    return [*kept] if lost is None or any(map(without_reference, kept)) else [*kept, lost]


def worst_findings(of: Sequence[StepDistance], quantity: Metric) -> list[Finding]:
    """The findings of those distances that a judgement of all of them needs, in the order of their steps."""
    excesses = [limit_ratio(distance.error, limit(distance.name)) for _, distance, limit in of]
    chosen = kept_indices(excesses, [without_reference(distance) for _, distance, _ in of])
    return [as_finding(distance, step, limit, quantity) for step, distance, limit in (of[index] for index in chosen)]


def kept_indices(excesses: Sequence[float], lost: Sequence[bool]) -> list[int]:
    """The indices of what :func:`keep_worst` keeps, ascending, where findings are not made before they are known to be shown: by the
    limit_ratio of each, in the order of their steps, and whether it is ``lost``, which is without a reference."""
    far, without = np.array(excesses, np.float64), np.array(lost, bool)
    kept = set(np.argsort(-far, kind="stable")[:WORST].tolist())
    return sorted(kept.union(np.flatnonzero(far > 1)[:1].tolist(), np.flatnonzero(without)[:1].tolist()))
