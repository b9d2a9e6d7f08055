"""The stage of the first common step's loss and objective."""

from __future__ import annotations

from msgspec.structs import replace

from align_hooks.comparison.context import ComparisonContext
from align_hooks.comparison.data.empty_micro_batch import divided_by_nothing
from align_hooks.comparison.finding import Pattern, Words, at_step
from align_hooks.comparison.findings import contradicted_by, judged, losses
from align_hooks.comparison.patterns.sharding import objective_alone
from align_hooks.comparison.stage_result import FaultLocation, Phase, StageResult, Status
from align_hooks.comparison.stages.stage import stage
from align_hooks.messages import message, sentences
from align_hooks.record.check.contradictions import OF_LOSS, Contradiction, ContradictionKind
from align_hooks.record.reader import Run


@stage("step-0 loss", Phase.FORWARD, draws=True)
def first_loss(context: ComparisonContext) -> StageResult:
    """Compare the loss of the first common step: the forward computation."""
    step = context.pair.first or 0
    limit = context.noise.limits("losses", step, context.pair.limits.loss)
    findings = [finding for ours, theirs in context.pair.rows[:1] for finding in losses(ours, theirs, limit)]
    title = message("stage.first_loss", step=step) if step else None  # where the first common step is a later one
    if not findings and context.pair.dumped:
        return StageResult(first_loss, Status.NOT_COMPARED, message("first_loss.of_a_dump"), other_title=title)
    if not findings:
        return StageResult(first_loss, Status.INCOMPLETE, message("first_loss.none"), other_title=title)
    short = message("first_loss.loss_and_objective")
    result = replace(judged(first_loss, at_step(short, step), findings, short), other_title=title)
    if result.status is not Status.DIFFERENT:
        return result
    if (empty := divided_by_nothing(context, findings)) is not None:
        return replace(result, place=FaultLocation.NORMALISATION, differs=None).with_common(empty, Pattern.DIVIDED_BY_NOTHING)
    if context.pair.converted:  # and nothing else tells what they started from
        summary = sentences(result.summary, message("first_loss.of_a_log"))
        return replace(result, status=Status.INCONCLUSIVE, summary=summary, open=True, differs=message("first_loss.log_differs"))
    known = sentences(objective_alone(context.pair.runs, findings), weighed_otherwise(context))
    return result.with_common(known if known.parts else None)


def weighed_otherwise(context: ComparisonContext) -> Words | None:
    """Describe the only side whose loss function contradicts its mask, tokens' losses or settings; None where neither or both do."""
    of_sides = {side: of_loss_function(run, context.pair.first) for side, run in context.pair.sides}
    odd = [side for side, claims in of_sides.items() if claims]
    if len(odd) != 1:
        return None
    (side,) = odd
    return sentences(*(contradicted_by(side, claims) for claims in of_sides[side]))


def of_loss_function(run: Run, first: int | None) -> list[Contradiction]:
    """Return what a run's own loss function does at the first step, one contradiction of a kind, causes before consequences."""
    # weights of tokens that follow from no setting may happen to add up at the first step
    known = [claims for claims in run.self_check.of_losses if claims.step == first or claims.kind is ContradictionKind.WEIGHTS_OF_TOKENS]
    by_kind = {claims.kind: claims for claims in reversed(known)}
    return [by_kind[kind] for kind in OF_LOSS if kind in by_kind]
