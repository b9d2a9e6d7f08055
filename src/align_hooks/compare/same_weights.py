"""The stages where both runs stand on the same weights: the forward passes and the gradients of exact steps. Limits are tight."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from align_hooks.compare import conversion
from align_hooks.compare import token_losses as tokens
from align_hooks.compare.findings import judged, losses, moment_errors, steps_text
from align_hooks.compare.ladder import Ladder
from align_hooks.compare.limits import limits_for
from align_hooks.compare.sharding import SHOWN, explanation, objective_alone
from align_hooks.compare.verdict import Finding, Quantity, Stage, Status, Words, at_step
from align_hooks.messages import Message, message, sentences


def initial_weights(ladder: Ladder) -> Stage:
    """The weights that both runs start from; equal to the bit where they were handed over, or within rounding by their sketches."""
    stage = _exact_stage(ladder, "initial weights", Quantity.WEIGHTS, lambda step: step == ladder.pair.first, 0.0)
    stage = stage if stage.told or stage.status is not Status.DIFFERENT else stage.telling(_converted(ladder, stage))
    if stage.status is Status.DIFFERENT and not (ladder.pair.candidate.manifest.get("settings") or {}).get("load_weights"):
        return replace(stage, summary=sentences(stage.summary, message("initial_weights.none_loaded")))
    return stage


def _converted(ladder: Ladder, stage: Stage) -> Words | None:
    """What became of the weights that differ most, where it is a known mistake of a conversion."""
    step = ladder.pair.first or 0
    wrong = [finding.name for finding in stage.findings if finding.excess > 1][:SHOWN]
    if step in ladder.pair.steps("weights"):
        ours, theirs = (run.weights(step) for run in ladder.pair.both)
        sizes = {name: math.sqrt(one[0]) for name, one in ladder.pair.reference.sketches("weights", step).items()}
        mistakes = [conversion.mistake(ours, theirs, name, sizes) for name in wrong]
    else:
        sums, others = (run.sketches("weights", step) for run in ladder.pair.both)
        shapes = ladder.pair.pieces(ladder.pair.reference)
        mistakes = [conversion.mistake_by_sketches(sums, others, name, shapes) for name in wrong]
    known = conversion.exchanged([mistake for mistake in mistakes if mistake is not None])
    return sentences(*known) if known else None


def initial_optimizer_state(ladder: Ladder) -> Stage:
    """What the optimizers start from where updates were made before: of a resumed run, or one whose state was loaded. To the bit, or within
    the rounding of the type that either keeps moments in."""
    name, first = "initial optimizer state", ladder.pair.first
    if first is None or first not in ladder.pair.steps("optimizer_state"):
        if first == 0 and not ladder.pair.converted and all(run.manifests for run in ladder.pair.both):
            return Stage(name, Status.SAME, message("optimizer_state.no_update"))
        return Stage(name, Status.NOT_COMPARED, ladder.pair.why_not("optimizer_state"))
    counts = [run.optimizer_state(first).updates for run in ladder.pair.both]
    if not any(counts):
        return Stage(name, Status.SAME, message("optimizer_state.no_update"))
    types = {kind for run in ladder.pair.both for kind in run.optimizer_state(first).dtypes.values()}
    rounding = limits_for(*types)[1].eps if types - {"float32"} else 0.0
    found = moment_errors(ladder.pair, first, rounding, ladder.progress)
    if counts[0] != counts[1]:
        count = message("optimizer_state.count")
        found.insert(0, Finding(count, counts[0], counts[1], step=first, quantity=Quantity.OPTIMIZER_STATE))
    compared = message("optimizer_state.within_rounding" if rounding else "optimizer_state.to_the_bit", count=len(found))
    stage = judged(name, compared, found)
    lost = [side for side, run in ladder.pair.sides if is_empty(run, first)]
    return stage.telling(message("optimizer_state.not_restored", side=lost[0]) if len(lost) == 1 else None)


def is_empty(run: Any, step: int) -> bool:
    """Whether all moments of an optimizer are zero."""
    return not any(tensor.any() for moments in run.optimizer_state(step).moments.values() for tensor in moments.values())


def token_losses(ladder: Ladder) -> Stage:
    """Each token's loss, before the mask, at every step that stands on equal weights: the forward computation alone.

    The first step that differs is shown: where along the sequence, and in which rows. What differs at a later step alone did not come with
    the weights on record.
    """
    name, pair = "token losses", ladder.pair
    recorded = pair.steps("batches")
    steps = [step for step in recorded if pair.is_exact(step) and step not in pair.skipped]
    if not steps:
        return Stage(name, Status.NOT_COMPARED, message("same_weights.no_exact_step") if recorded else pair.why_not("batches"))
    found: dict[int, tuple[Finding, Finding]] = {}
    sizes: list[int] = []
    for step in steps:
        batches = ladder.batches(step)
        losses = tokens.compared(*batches)
        if losses is None:
            continue
        limit = ladder.noise.limit("token_losses", step, "token losses", pair.limits.tokens)
        together, _ = tokens.finding(losses, step, limit)
        mean = tokens.mean(losses, step, ladder.noise.limit("losses", step, "loss", pair.limits.loss))
        if together.excess > 1 and ladder.parted.step is None:
            ladder.parted = tokens.parted(losses, batches, step, limit, later=bool(found))
        found[step] = (together, mean)
        sizes.append(losses[0].size)
        if together.excess > 1 or mean.excess > 1:  # what comes after follows from it
            break
    if not found:
        return Stage(name, Status.NOT_COMPARED, message("token_losses.none"))
    stage = judged(name, _tokens(sizes, list(found)), [one for both in found.values() for one in both])
    shown = list(found.values())[-1 if stage.status is not Status.SAME else 0]
    stage = replace(stage, findings=shown if shown[0].excess > 1 else shown[::-1])  # all of a step show where
    return stage.telling(ladder.parted.told(pair.both)) if stage.status is Status.DIFFERENT else stage


def _tokens(sizes: Sequence[int], steps: Sequence[int]) -> Message:
    """How many tokens were compared, ``sizes`` a step."""
    if len(steps) == 1:
        return message("token_losses.at_one_step", count=sizes[0], step=steps_text(steps))
    if len(set(sizes)) == 1:
        return message("token_losses.at_steps", count=sizes[0], steps=steps_text(steps))
    return message("token_losses.of_unequal_steps", fewest=min(sizes), most=max(sizes), steps=steps_text(steps))


def first_loss(ladder: Ladder) -> Stage:
    """The loss of the first common step: the forward computation."""
    rows = ladder.pair.rows[:1]
    name = "step-0 loss" if ladder.pair.first in (0, None) else f"first loss (step {ladder.pair.first})"
    findings = [
        finding
        for ours, theirs in rows
        for finding in losses(ours, theirs, ladder.noise.limits("losses", ours["step"], ladder.pair.limits.loss))
    ]
    if not findings:
        return Stage(name, Status.INCOMPLETE, message("first_loss.none"))
    stage = judged(name, at_step(message("first_loss.loss_and_objective"), rows[0][0]["step"]), findings)
    if stage.status is not Status.DIFFERENT:
        return stage
    if ladder.pair.converted:  # and nothing else tells what they started from
        summary = sentences(stage.summary, message("first_loss.of_a_log"))
        return Stage(name, Status.INCONCLUSIVE, summary, stage.findings, open=True)
    return stage.telling(objective_alone(ladder.pair.both, findings) or weighed_otherwise(ladder))


def weighed_otherwise(ladder: Ladder) -> Message | None:
    """Whose first loss is not the mean of its own tokens' losses; None where both are."""
    odd = {side: one for side, run in ladder.pair.sides for one in run.self_check.of_losses if one.step == ladder.pair.first}
    if len(odd) != 1:
        return None
    ((side, contradiction),) = odd.items()
    loss, mean = contradiction.first.value, contradiction.second.value
    return message("first_loss.not_the_mean", side=side, loss=loss, mean=mean)


def local_norms(ladder: Ladder) -> Stage:
    """Norms of exact steps."""
    return _exact_stage(ladder, "local norms", Quantity.LOCAL_NORMS, ladder.pair.is_exact, ladder.pair.limits.norm)


def gradients(ladder: Ladder) -> Stage:
    """Gradients of exact steps, tensor by tensor, stored or sketched."""
    return _exact_stage(ladder, "gradients", Quantity.GRADIENTS, ladder.pair.is_exact, ladder.pair.limits.gradient)


def _exact_stage(ladder: Ladder, name: str, kind: Quantity, wanted: Callable[[int], bool], default: float) -> Stage:
    """One finding a tensor, of all wanted steps; what those of the first step have in common is told."""
    pair, gaps = ladder.pair, ladder.pair.gaps(kind)
    known = pair.known(kind)
    steps = [step for step in known if wanted(step)]
    norms = kind is Quantity.LOCAL_NORMS
    by_step = {step: ladder.norms(step, default) if norms else ladder.tensors(kind, step, default) for step in steps}
    found = [finding for findings in by_step.values() for finding in findings]
    if found:
        summary = sentences(_tensors(kind, len(found), steps, sketched=steps[0] in pair.sketched(kind)), *gaps[:1])
        stage = judged(name, summary, found, incomplete=bool(gaps), most=None)
        differs = stage.status is Status.DIFFERENT
        return stage.telling(explanation(pair.both, kind, steps[0], by_step[steps[0]]) if differs else None)
    if gaps or steps:
        return Stage(name, Status.INCOMPLETE, gaps[0] if gaps else message("same_weights.no_common_tensor"))
    return Stage(name, Status.NOT_COMPARED, message("same_weights.no_exact_step") if known else pair.why_not(kind))


def _tensors(kind: Quantity, count: int, steps: Sequence[int], *, sketched: bool) -> Message:
    """How many tensors were compared, and how."""
    if sketched:
        return message("same_weights.by_sketches", count=count, steps=steps_text(steps))
    if kind is Quantity.WEIGHTS:
        return message("same_weights.to_the_bit", count=count)
    return message("same_weights.at_steps", count=count, steps=steps_text(steps))
