"""The stage of training state beside weights, moments and generators, which a resumed run has to restore."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec.structs import replace

from align_hooks.comparison.context import ComparisonContext
from align_hooks.comparison.finding import Finding, Metric, Pattern, at_step, when
from align_hooks.comparison.pair import Pair
from align_hooks.comparison.settings.recorded import listed
from align_hooks.comparison.stage_result import FaultLocation, Phase, StageResult, Status
from align_hooks.comparison.stages.stage import stage
from align_hooks.messages import message
from align_hooks.record.format.state import EXPERT_BIAS, SCHEDULER


@stage("training state", Phase.START, place=FaultLocation.STATE, is_before_numbers=True, decides=False)
def state(context: ComparisonContext) -> StageResult | None:
    """Compare counts of samples, scheduler, optimizer and loss scaler, and buffers, at the start of every step.

    Only for one framework in one layout; the first difference was not restored, or was advanced once too often."""
    pair = context.pair
    if len({run.facts.framework for run in pair.runs}) > 1:
        return None
    if not pair.has_one_layout:
        return StageResult(state, Status.NOT_COMPARED, message("training_state.other_layout"))
    looked_at = pair.may_differ("state")
    compared = len(pair.rows) - len(looked_at) - empty(pair, looked_at)
    for step in looked_at:
        names, findings = set[str](), []
        for name, finding in of_step(pair, step):
            names.add(name)
            findings += [] if finding is None else [finding]
        if findings:
            summary = message("training_state.first_different", count=len(findings), all=len(names), step=step, iteration=step + 1)
            differing = listed([finding.name for finding in findings])
            differs = message("training_state.differs", names=differing, step=when(step))
            result = StageResult(state, Status.DIFFERENT, summary, tuple(findings), differs=differs)
            if step == 0 and all(finding.name == SCHEDULER for finding in findings):  # no schedule is restored before a first step
                return replace(result, place=FaultLocation.OPTIMIZER)
            if step == pair.first or not all(finding.name.endswith(EXPERT_BIAS) for finding in findings):
                return result
            moved = message("training_state.bias_moved", names=differing, step=when(step - 1))  # which nothing but this update does
            return replace(result, place=FaultLocation.OPTIMIZER, differs=None).with_common(moved, Pattern.BIAS_MOVED)
        compared += bool(names)
    if not compared:
        return None
    short = message("steps.count", count=compared)
    return StageResult(state, Status.SAME, message("training_state.compared", count=compared), short=short)


def empty(pair: Pair, without: Sequence[int]) -> int:
    """Count the common steps, ``without`` some, for which the reference recorded no state on any rank."""
    steps = sorted({ours.step for ours, _ in pair.rows}.difference(without))
    held = [of_rank["state"] > 0 for of_rank in pair.reference.columns(steps).values()]
    return len(steps) - int(np.any(held, axis=0).sum())


def of_step(pair: Pair, step: int) -> Iterator[tuple[str, Finding | None]]:
    """Yield by name what both runs have of a step's start, with a finding where it differs; equal names on other ranks count once."""
    reference, candidate = (run.state(step) for run in pair.runs)
    reported: set[str] = set()
    for rank, entries in reference.items():
        others = candidate.get(rank, {})
        for name, ours in entries.items():
            if name not in others:
                continue
            if ours == (theirs := others[name]):
                yield name, None
            elif name not in reported:
                reported.add(name)
                yield name, Finding(at_step(name, step), ours, theirs, name=name, step=step, quantity=Metric.STATE)
