"""The ladder: matched of expected, hyper-parameters, batches, weights, first loss, norms, gradients, what came later.

The order is that of a training step, so the first stage that differs is the earliest place where the runs part. Exact
steps, where both runs stand on the same weights, have tight limits; free-running ones only drift (see
:mod:`align_hooks.compare.pair` and :mod:`align_hooks.compare.limits`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from align_hooks.compare.acceptance import acceptance
from align_hooks.compare.after_update import weights_after_update
from align_hooks.compare.before_training import batches, hyper_parameters, match, self_check
from align_hooks.compare.curves import curves, side
from align_hooks.compare.diagnosis.blame import blame
from align_hooks.compare.diagnosis.next_step import next_step
from align_hooks.compare.diagnosis.symptom import first_symptom
from align_hooks.compare.every_step import clipping, curve, later_losses, later_tensors, model_settings
from align_hooks.compare.first_updates import first_updates
from align_hooks.compare.ladder import Ladder
from align_hooks.compare.noise import Noise
from align_hooks.compare.pair import Pair
from align_hooks.compare.same_weights import (
    first_loss,
    gradients,
    initial_optimizer_state,
    initial_weights,
    local_norms,
    token_losses,
)
from align_hooks.compare.verdict import Comparison, Stage, Status, decide
from align_hooks.progress import Progress, silent

BEFORE: tuple[Callable[[Ladder], Stage], ...] = (match, self_check, hyper_parameters, batches)
"""Stages that need no number of either model."""
NUMBERS = (
    initial_weights,
    initial_optimizer_state,
    token_losses,
    first_loss,
    local_norms,
    gradients,
    clipping,
    weights_after_update,
    first_updates,
    later_losses,
    curve,
    later_tensors,
)
"""Those that compare numbers."""
NEITHER = ("initial optimizer state", "clipping", "curve", "free-running steps")
"""Stages of numbers that alone make no pair aligned: what they compare follows from the others, or drifts, or there was nothing yet."""


def compare(
    reference: Any,
    candidate: Any,
    *,
    noise: Sequence[Any] = (),
    allow_missing: Sequence[str] = (),
    progress: Progress = silent,
) -> Comparison:
    """Compare two runs, made by ``open_run``.

    ``noise`` are repeats of the reference, of which limits are measured; ``allow_missing`` are patterns of canonical names that one
    side may lack.
    """
    pair = Pair(reference, candidate)
    ladder = Ladder(pair, Noise(pair, noise), tuple(allow_missing), progress)
    stages = climbed(ladder, BEFORE)
    comparable = stages[0].status is not Status.NOT_COMPARABLE
    if comparable:  # no tensor of one model says anything of another
        stages += climbed(ladder, (*NUMBERS, model_settings))
    compared = [stage for stage in stages[len(BEFORE) : -1] if stage.status is not Status.NOT_COMPARED and stage.name not in NEITHER]
    verdict, first = decide(stages, first_symptom(stages, pair.first), len(compared))
    blamed = blame(first, stages, ladder)
    return Comparison(
        verdict=verdict,
        first=first,
        stages=tuple(stages),
        eps=pair.limits.eps,
        acceptance=acceptance(pair.rows),
        settings=tuple(ladder.settings),
        notes=tuple(ladder.notes()),
        blame=blamed,
        next=next_step(verdict, blamed, ladder, stages),
        calibration=ladder.noise.measured(),
        sides=tuple(map(side, pair.both)),
        curves=curves(ladder, judged=comparable),
        itself=pair.is_itself,
    )


def climbed(ladder: Ladder, stages: Sequence[Callable[[Ladder], Stage]]) -> list[Stage]:
    """Stages, one after the other."""
    found = []
    for index, stage in enumerate(stages):
        ladder.progress(stage.__name__.replace("_", " "), index, len(stages))
        found.append(stage(ladder))
    return found
