"""The stages whose steps stand on the same weights in both runs: one finding a tensor, by tight limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from align_hooks.compare.findings import judged, steps_text
from align_hooks.compare.ladder import Ladder
from align_hooks.compare.sharding import explanation
from align_hooks.compare.stages.stage import Stage
from align_hooks.compare.verdict import Quantity, StageResult, Status
from align_hooks.messages import Message, message, sentences


def exact_stage(ladder: Ladder, stage: Stage, kind: Quantity, wanted: Callable[[int], bool], default: float) -> StageResult:
    """One finding a tensor, of all wanted steps; what those of the first step have in common is told."""
    pair, gaps = ladder.pair, ladder.pair.gaps(kind)
    known = pair.known(kind)
    steps = [step for step in known if wanted(step)]
    norms = kind is Quantity.LOCAL_NORMS
    by_step = {step: ladder.norms(step, default) if norms else ladder.tensors(kind, step, default) for step in steps}
    found = [finding for findings in by_step.values() for finding in findings]
    if found:
        summary = sentences(_tensors(kind, len(found), steps, sketched=steps[0] in pair.sketched(kind)), *gaps[:1])
        result = judged(stage, summary, found, incomplete=bool(gaps), most=None)
        differs = result.status is Status.DIFFERENT
        return result.telling(explanation(pair.both, kind, steps[0], by_step[steps[0]]) if differs else None)
    if gaps or steps:
        return StageResult(stage, Status.INCOMPLETE, gaps[0] if gaps else message("same_weights.no_common_tensor"))
    return StageResult(stage, Status.NOT_COMPARED, message("same_weights.no_exact_step") if known else pair.why_not(kind))


def _tensors(kind: Quantity, count: int, steps: Sequence[int], *, sketched: bool) -> Message:
    """How many tensors were compared, and how."""
    if sketched:
        return message("same_weights.by_sketches", count=count, steps=steps_text(steps))
    if kind is Quantity.WEIGHTS:
        return message("same_weights.to_the_bit", count=count)
    return message("same_weights.at_steps", count=count, steps=steps_text(steps))
