"""Findings and judgements that several stages share."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from align_hooks.comparison import distances
from align_hooks.comparison.distances import Distance
from align_hooks.comparison.finding import Finding, Metric, Words, at_step, limit_ratio, when
from align_hooks.comparison.metrics.limits import SAME_SKETCH, SETTING, SKETCHED
from align_hooks.comparison.pair import Pair
from align_hooks.comparison.settings.recorded import equal
from align_hooks.comparison.stage_result import StageInfo, StageResult, Status
from align_hooks.messages import Message, Side, message, sentences
from align_hooks.process.work import WorkPool
from align_hooks.record.check.contradictions import Contradiction, ContradictionKind
from align_hooks.record.format.rows import ScalarRow
from align_hooks.record.format.schema import Rate

WORST = 10
NUMBERS = (Metric.LOSS, Metric.LOCAL_NORMS)
"""Quantities whose values a finding shows; of a tensor it shows a norm that is not finite, and nothing else."""
NOT_APART: Mapping[str, float] = {}
Limit = Callable[[str], float]
"""Name of a quantity to its limit."""
StepDistance: TypeAlias = tuple[int, Distance, Limit]
"""A step, the distance of two runs there, and its limit."""


def tensor_errors(pair: Pair, kind: str, step: int, limit: Limit, work: WorkPool, apart: Mapping[str, float] = NOT_APART) -> list[Finding]:
    """Return relative Frobenius errors of gradients or weights, estimated from sketches unless both runs stored the tensors.

    ``apart`` is a distance (L2) by name that is honest whatever the relative limit says."""
    measured = list(distances.MEASURED[kind](*pair.runs, step, pair.limits.eps, work))
    limits = limit if pair.both_stored(kind, step) else lambda name: max(SKETCHED * limit(name), SAME_SKETCH)
    wide = {one.name: apart[one.name] / one.reference for one in measured if one.name in apart and one.reference}
    return [as_finding(one, step, lambda name: max(limits(name), wide.get(name, 0.0)), Metric(kind)) for one in measured]


def as_finding(distance: Distance, step: int, limit: Limit, quantity: Metric) -> Finding:
    """Return a distance as a finding, with its limit and the values shown beside it."""
    name, ours, theirs = distance.name, distance.reference, distance.candidate
    values = (ours, theirs) if quantity in NUMBERS else (unless_finite(ours), unless_finite(theirs))
    of_two, by_digest = (distance.scale, distance.direction), distance.by_digest
    return Finding(at_step(name, step), *values, distance.error, limit(name), *of_two, name, step, quantity, by_digest=by_digest)


def moment_errors(pair: Pair, step: int, limit: float, work: WorkPool) -> list[Finding]:
    """Return relative Frobenius errors of moments after ``step`` updates."""
    ours, theirs = (run.optimizer_state(step).moments for run in pair.runs)
    findings = []
    for moment in filter(theirs.__contains__, ours):
        subject = message("distances.of_step", what=moment, step=when(step))
        for distance in distances.of_tensors(ours[moment], theirs[moment], subject, work):
            what = at_step(message("moment.of", moment=moment, tensor=distance.name), step)
            values = unless_finite(distance.reference), unless_finite(distance.candidate)
            findings.append(Finding(what, *values, distance.error, limit, step=step, quantity=Metric.OPTIMIZER_STATE))
    return findings


def judged(
    stage: StageInfo, summary: Words, findings: Sequence[Finding], short: Words, *, incomplete: bool = False, most: int | None = WORST
) -> StageResult:
    """Judge a stage by its findings and keep the ``most`` worst; without a finite reference it is not comparable.

    ``short`` is the summary in a few words."""
    bad = [finding for finding in findings if finding.limit_ratio > 1]
    if any(map(without_reference, bad)):
        why = sentences(message("stage.reference_not_finite"), summary)
        return StageResult(stage, Status.NOT_COMPARABLE, why, furthest(bad), short=short)
    status = Status.DIFFERENT if bad else Status.INCOMPLETE if incomplete else Status.SAME
    return StageResult(stage, status, summary, furthest(findings, most), short=short)


def worse_loss(ours: ScalarRow, theirs: ScalarRow, limit: Limit) -> Distance | None:
    """Return the first of :func:`losses` as a distance, which is cheaper than a finding; None where no loss is on both sides."""
    return max(distances.of_losses(ours, theirs), key=lambda distance: limit_ratio(distance.error, limit(distance.name)), default=None)


def losses(ours: ScalarRow, theirs: ScalarRow, limit: Limit) -> list[Finding]:
    """Return findings of a step's loss and objective, the worse first."""
    findings = [as_finding(distance, ours.step, limit, Metric.LOSS) for distance in distances.of_losses(ours, theirs)]
    return sorted(findings, key=lambda finding: -finding.limit_ratio)


def contradictions(recorded: Sequence[Contradiction], side: Side | None = None) -> list[Finding]:
    """Return a finding for each contradiction of a record's self-check; ``side`` names the record where there are two."""
    findings = []
    for contradiction in recorded:
        step, subject = contradiction.step, at_step(contradiction.subject, contradiction.step)
        if side is not None:
            subject = message("self_check.of_side", side=side, what=contradiction.subject, step=step, iteration=step + 1)
        claims, name, rank = (contradiction.first.words, contradiction.second.words), contradiction.name, contradiction.rank
        findings.append(Finding(subject, *claims, name=name, step=step, quantity=Metric.SELF_CHECK, rank=rank))
    return findings


def contradicted_by(side: Side, contradiction: Contradiction) -> Message:
    """Describe how a side's loss function contradicts its tokens' losses or its mask."""
    if contradiction.kind is ContradictionKind.WEIGHTS_OF_TOKENS:
        return message("first_loss.weighs_otherwise", side=side, made=contradiction.second.words, said=contradiction.first.words)
    said, made = contradiction.first.value, contradiction.second.value
    if contradiction.kind is ContradictionKind.COUNT:
        return message("first_loss.counts_otherwise", side=side, count=said, sum=made)
    return message("first_loss.not_the_mean", side=side, loss=said, mean=made)


def copies_alike(copies: int) -> Message:
    """Say how many copies on other ranks a self-check compared."""
    return message("copies.alike", count=copies) if copies else message("copies.none")


def unless_finite(norm: float) -> float | None:
    """Return a tensor's norm as a finding shows it: None, or NaN where it is not finite."""
    return None if math.isfinite(norm) else math.nan


def rates_equal(ours: Rate, theirs: Rate, within: float = SETTING) -> bool:
    """Compare the distinct rates of all groups, ``within`` relative: the sides may count groups differently."""
    if ours == theirs and isinstance(ours, float) and math.isfinite(ours):
        return True
    return equal(np.unique(ours).tolist(), np.unique(theirs).tolist(), within)


def steps_text(steps: Sequence[int]) -> Message:
    """Return one step in words, or how many steps there are."""
    if len(steps) == 1:
        return when(steps[0])
    first, last = steps[0], steps[-1]
    return message("steps.range", count=len(steps), first=first, last=last, from_iteration=first + 1, to_iteration=last + 1)


def in_short(steps: Sequence[int]) -> Message:
    """Return one step's number, or how many steps there are."""
    return message("short.step", step=steps[0]) if len(steps) == 1 else message("steps.count", count=len(steps))


def of_tensors(stage: StageInfo, findings: Sequence[Finding]) -> Message | None:
    """Say how many tensors differ at the first step that has any, and which most; None where none does."""
    beyond = [finding for finding in findings if finding.limit_ratio > 1 and finding.name]
    step = min((finding.step or 0 for finding in beyond), default=0)
    tensors = {finding.name for finding in findings if (finding.step or 0) == step and finding.name}
    worst = sorted((finding for finding in beyond if (finding.step or 0) == step), key=lambda finding: -finding.limit_ratio)
    if not worst:
        return None
    return message("differs.tensors", what=stage.title, count=len(worst), all=len(tensors), name=worst[0].name, step=when(step))


def from_step(what: Words | str, step: int, *, on: bool) -> Message:
    """Say what differs at a step; ``on`` says that all later steps differ too."""
    return message("differs.from_on" if on else "differs.first_at", what=what, step=when(step))


def furthest(findings: Sequence[Finding], most: int | None = WORST) -> tuple[Finding, ...]:
    """Return the ``most`` findings furthest beyond their limits, the worst first, and the earliest violation; all where None."""
    ordered = sorted(findings, key=lambda finding: -finding.limit_ratio)
    begun = [finding for finding in ordered if finding.limit_ratio > 1 and finding.step is not None]
    earliest = min(begun, key=lambda finding: finding.step or 0, default=None)  # says when the difference begins
    kept = ordered[:most]
    return tuple(kept if earliest is None or earliest in kept else [*kept, earliest])


def without_reference(finding: Finding | Distance) -> bool:
    """Return whether the reference's value is not finite, so that nothing can be compared with it."""
    return isinstance(finding.reference, float) and not math.isfinite(finding.reference)


def keep_worst(findings: Sequence[Finding]) -> list[Finding]:
    """Return what a judgement needs of many findings: the worst ones, and one without a finite reference."""
    kept = furthest(findings)
    lost = next(filter(without_reference, findings), None)
    return [*kept] if lost is None or any(map(without_reference, kept)) else [*kept, lost]


def worst_findings(of: Sequence[StepDistance], quantity: Metric) -> list[Finding]:
    """Return what :func:`keep_worst` keeps of distances, as findings in the order of their steps."""
    excesses = [limit_ratio(distance.error, limit(distance.name)) for _, distance, limit in of]
    chosen = kept_indices(excesses, [without_reference(distance) for _, distance, _ in of])
    return [as_finding(distance, step, limit, quantity) for step, distance, limit in (of[index] for index in chosen)]


def kept_indices(excesses: Sequence[float], lost: Sequence[bool]) -> list[int]:
    """Return the ascending indices of what :func:`keep_worst` keeps, before any finding is made.

    ``excesses`` are limit ratios in the order of steps, ``lost`` says which have no finite reference."""
    far, without = np.array(excesses, np.float64), np.array(lost, bool)
    kept = set(np.argsort(-far, kind="stable")[:WORST].tolist())
    return sorted(kept.union(np.flatnonzero(far > 1)[:1].tolist(), np.flatnonzero(without)[:1].tolist()))
