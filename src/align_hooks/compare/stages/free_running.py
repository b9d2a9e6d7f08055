"""Norms, gradients and weights of steps that do not stand on equal weights any more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from align_hooks.compare.drifting import drifting
from align_hooks.compare.findings import labelled
from align_hooks.compare.ladder import Ladder
from align_hooks.compare.stages.stage import Phase, stage
from align_hooks.compare.verdict import Finding, Place, Quantity, StageResult, Status
from align_hooks.messages import message, sentences, terms


@stage("free-running steps", Phase.BACKWARD, place=Place.NEXT_LOSS, draws=True, decides=False, is_of_tensors=True)
def free_running(ladder: Ladder) -> StageResult:
    """Norms, gradients and weights of free-running steps, beside what an honest pair gives; weights at a rate of 0."""
    exact: list[Finding] = []
    free: list[Finding] = []
    parts, gaps = [], []
    limit = ladder.pair.limits.free
    kinds: tuple[tuple[Quantity, Callable[[int, float], list[Finding]]], ...] = (
        (Quantity.LOCAL_NORMS, ladder.norms),
        (Quantity.GRADIENTS, lambda step, limit: ladder.tensors("gradients", step, limit)),
        (Quantity.WEIGHTS, lambda step, limit: ladder.tensors("weights", step, limit)),
    )
    for kind, errors in kinds:
        steps = [
            step
            for step in ladder.pair.known(kind)
            if step != ladder.pair.first and not (kind is not Quantity.WEIGHTS and ladder.pair.is_exact(step))
        ]
        if kind is Quantity.WEIGHTS:
            steps = [step for step in steps if step not in ladder.pair.handed]
        for step in steps:
            still = kind is Quantity.WEIGHTS and ladder.pair.is_still(step)
            (exact if still else free).extend(labelled(kind, errors(step, 0.0 if still else limit)))
        parts += [message("free_running.compared", kind=kind, count=len(steps))] if steps else []
        gaps += ladder.pair.gaps(kind)
    if not exact and not free:
        return StageResult(free_running, Status.NOT_COMPARED, message("free_running.none"))
    result = drifting(ladder, free_running, terms(parts), exact, free)
    return (
        replace(result, status=Status.INCOMPLETE, summary=sentences(result.summary, gaps[0]))
        if gaps and result.status is Status.SAME
        else result
    )
