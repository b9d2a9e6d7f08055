"""The stage of token losses: the forward computation before mask and reduction."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from align_hooks.comparison.context import ComparisonContext
from align_hooks.comparison.data import token_losses as tokens
from align_hooks.comparison.data.routing import apart as routes_apart
from align_hooks.comparison.finding import Finding, Words, when
from align_hooks.comparison.findings import in_short, judged, steps_text
from align_hooks.comparison.stage_result import FaultLocation, Phase, StageResult, Status
from align_hooks.comparison.stages.stage import stage
from align_hooks.messages import Joined, Message, message, sentences


@stage("token losses", Phase.FORWARD, place=FaultLocation.FORWARD, draws=True)
def token_losses(context: ComparisonContext) -> StageResult:
    """Compare each token's loss, before the mask, at every step on equal weights.

    The first step that differs is shown, with positions and rows. A difference only at a later step did not come with the weights on
    record."""
    pair = context.pair
    recorded = pair.steps("batches")
    steps = [step for step in recorded if pair.is_exact(step) and step not in pair.skipped]
    if not steps:
        why = message("same_weights.no_exact_step") if recorded else pair.why_not("batches")
        return StageResult(token_losses, Status.NOT_COMPARED, why)
    by_step: dict[int, tuple[Finding, Finding]] = {}
    sizes: list[int] = []
    left_out, divergence = 0, tokens.LossDivergence()
    for step in steps:
        batches = context.batches(step)
        apart = routes_apart(*pair.runs, step)
        losses = tokens.compared(batches[0], batches[1], apart)
        if losses is None:
            continue
        outside = 0 if apart is None else int(apart.sum())
        left_out += outside
        if apart is not None and not tokens.counts(losses).any():
            continue
        limit = context.noise.limit("token_losses", step, "token losses", pair.limits.tokens)
        together = tokens.finding(losses, step, limit)
        mean = tokens.mean(losses, step, context.noise.limit("losses", step, "loss", pair.limits.loss))
        if together.limit_ratio > 1 and divergence.step is None:
            divergence = tokens.divergence(losses, batches, step, limit, later=bool(by_step))
        sizes.append(losses[0].size - outside)
        within = together.limit_ratio <= 1 and mean.limit_ratio <= 1
        half = tokens.half_type(losses) if within and not by_step else None
        by_step[step] = (together, mean) if half is None else (tokens.finding_of_type(half, step), together)
        if half is not None:  # a difference beyond the limits is more than a rounding, and is told by where it is
            divergence = tokens.LossDivergence(step, half=half)
        if not within or half is not None:  # later differences follow from it
            break
    if not by_step:
        return StageResult(token_losses, Status.NOT_COMPARED, message("token_losses.all_apart" if left_out else "token_losses.none"))
    without = message("token_losses.without", count=left_out) if left_out else None
    summary = sentences(_tokens(sizes, list(by_step)), without)
    short = message("short.tokens", count=max(sizes), steps=in_short(list(by_step)))
    result = judged(token_losses, summary, [finding for findings in by_step.values() for finding in findings], short)
    shown = list(by_step.values())[-1 if result.status is not Status.SAME else 0]
    result = replace(result, findings=shown if shown[0].limit_ratio > 1 else shown[::-1])  # all of a step show where
    if result.status is not Status.DIFFERENT:
        return result
    common = divergence.words(pair.runs)
    return replace(result, differs=_differ(divergence, result.findings[0], common), evidence=divergence).with_common(common)


def _differ(divergence: tokens.LossDivergence, first: Finding, common: Words | None) -> Message:
    """Say at which step token losses first differ, and at which positions or what else is known of them."""
    step = when(first.step or 0)
    if divergence.step is None:
        return message("token_losses.mean_differs", step=step)
    known = common.parts[0] if isinstance(common, Joined) else common
    return message("token_losses.differ", step=step, where=known or divergence.where)


def _tokens(sizes: Sequence[int], steps: Sequence[int]) -> Message:
    """Say how many tokens were compared, ``sizes`` a step."""
    if len(steps) == 1:
        return message("token_losses.at_one_step", count=sizes[0], step=steps_text(steps))
    if len(set(sizes)) == 1:
        return message("token_losses.at_steps", count=sizes[0], steps=steps_text(steps))
    return message("token_losses.of_unequal_steps", fewest=min(sizes), most=max(sizes), steps=steps_text(steps))
