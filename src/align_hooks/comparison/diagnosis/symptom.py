"""Find which of several differences shows first, in the order of training and not of the stages.

A cause has no effect before its time: a learning rate that differs at step 4 explains no token loss of step 0. The stage whose difference
comes first is blamed, and causes that act later are named as such."""

from __future__ import annotations

import math
from collections.abc import Sequence

from align_hooks.comparison.finding import Pattern
from align_hooks.comparison.stage_result import Phase, Reason, StageResult, Status
from align_hooks.comparison.stages import registry
from align_hooks.quantities.registry import STATES

NORM = "grad_norm"
"""A number that is made before the update that clips by it."""
FOLLOWING = (registry.first_updates, registry.later_losses, registry.free_running)
"""Stages whose differences follow from a wrong update."""
BEFORE_ALL, AFTER_ALL = (-1.0, int(Phase.START)), (math.inf, int(Phase.UPDATE))
Moment = tuple[float, int]


def first_symptom(stages: Sequence[StageResult], first_step: int | None) -> StageResult | None:
    """Return the stage that differs earliest; of two at one moment the first of the order of stages.

    Only stages up to the first that makes the pair not comparable count. A stage that leaves the following ones open
    (``StageResult.open``) counts too. Models that differ because one record's ranks share what they should not do so for this reason."""
    explained = next((stage for stage in stages if stage.stage is registry.self_check and stage.place is not None), None)
    if explained is not None and stages[0].reason is Reason.OTHER_MODEL:
        return explained
    end = next((index for index, stage in enumerate(stages) if stage.status is Status.NOT_COMPARABLE), len(stages))
    able = [stage for stage in stages[:end] if stage.status is Status.DIFFERENT or stage.open]
    start = first_step or 0
    following = [made_by(moment(stage, start)) for stage in able if stage.stage in FOLLOWING]

    def when(stage: StageResult) -> Moment:
        undated = any(finding.step is None for finding in stage.beyond)
        return min(following, default=AFTER_ALL) if undated and stage.stage is registry.weights_after_update else moment(stage, start)

    return min(able, key=when, default=stages[end] if end < len(stages) else None)


def moment(stage: StageResult, start: int) -> Moment:
    """Return step and phase at which a stage's difference can first arise; ``start`` is the first step of the pair."""
    phase = stage.stage.phase
    if phase in (Phase.BEFORE_ALL, Phase.AFTER_ALL):
        return AFTER_ALL if phase is Phase.AFTER_ALL else BEFORE_ALL
    times = []
    for finding in stage.beyond:
        step = next((step for step in (finding.since, finding.step) if step is not None), start)
        if step > start and (finding.quantity in STATES or stage.pattern is Pattern.BIAS_MOVED):  # the update of step N - 1 made state N
            times.append(made_by((float(step), int(Phase.START))))
        else:
            times.append((float(step), int(Phase.BACKWARD if finding.quantity == NORM else phase)))
    return min(times, default=(float(start), int(phase)))


def made_by(moment: Moment) -> Moment:
    """Return the last update before a moment."""
    step, phase = moment
    return moment if phase == Phase.UPDATE else (step - 1, int(Phase.UPDATE))
