"""The stages where both runs stand on the same weights: the forward passes and the gradients of exact steps. Limits are tight."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from align_hooks.compare import conversion
from align_hooks.compare import token_losses as tokens
from align_hooks.compare.findings import judged, losses, moment_errors, steps_text
from align_hooks.compare.ladder import Ladder
from align_hooks.compare.limits import limits_for
from align_hooks.compare.sharding import SHOWN, explanation, objective_alone
from align_hooks.compare.verdict import Finding, Stage, Status, when

NO_EXACT_STEP = "no recorded step stands on equal weights in both runs"


def initial_weights(ladder: Ladder) -> Stage:
    """The weights that both runs start from; equal to the bit where they were handed over, or within rounding by their sketches."""
    stage = _exact_stage(ladder, "initial weights", "weights", lambda step: step == ladder.pair.first, 0.0)
    stage = stage if stage.told or stage.status is not Status.DIFFERENT else stage.telling(_converted(ladder, stage))
    if stage.status is Status.DIFFERENT and not (ladder.pair.candidate.manifest.get("settings") or {}).get("load_weights"):
        return replace(stage, summary=f"{stage.summary}; the candidate loaded none: set ALIGN_HOOKS_LOAD_WEIGHTS")
    return stage


def _converted(ladder: Ladder, stage: Stage) -> str:
    """What became of the weights that differ most, in words, where it is a known mistake of a conversion."""
    step = ladder.pair.first or 0
    wrong = [finding.name for finding in stage.findings if finding.excess > 1][:SHOWN]
    if step in ladder.pair.steps("weights"):
        ours, theirs = (run.weights(step) for run in ladder.pair.both)
        sizes = {name: math.sqrt(one[0]) for name, one in ladder.pair.reference.sketches("weights", step).items()}
        found = [conversion.told(ours, theirs, name, sizes) for name in wrong]
    else:
        sums, others = (run.sketches("weights", step) for run in ladder.pair.both)
        shapes = ladder.pair.pieces(ladder.pair.reference)
        found = [conversion.told_of_sketches(sums, others, name, shapes) for name in wrong]
    return "; ".join(conversion.exchanged([one for one in found if one]))


def initial_optimizer_state(ladder: Ladder) -> Stage:
    """What the optimizers start from where updates were made before: of a resumed run, or one whose state was loaded. To the bit, or within
    the rounding of the type that either keeps moments in."""
    name, first = "initial optimizer state", ladder.pair.first
    if first is None or first not in ladder.pair.steps("optimizer_state"):
        if first == 0 and not ladder.pair.converted and all(run.manifests for run in ladder.pair.both):
            return Stage(name, Status.SAME, "neither run had made an update")
        return Stage(name, Status.NOT_COMPARED, ladder.pair.why_not("optimizer_state"))
    counts = [run.optimizer_state(first).updates for run in ladder.pair.both]
    if not any(counts):
        return Stage(name, Status.SAME, "neither run had made an update")
    types = {kind for run in ladder.pair.both for kind in run.optimizer_state(first).dtypes.values()}
    rounding = limits_for(*types)[1].eps if types - {"float32"} else 0.0
    found = moment_errors(ladder.pair, first, rounding, ladder.progress)
    if counts[0] != counts[1]:
        found.insert(0, Finding("count of updates at the start", str(counts[0]), str(counts[1]), step=first))
    how = "within their rounding" if rounding else "to the bit"
    stage = judged(name, f"count of updates and {len(found)} moments, {how}", found)
    lost = [f"the {side}'s" for side, run in ladder.pair.sides if is_empty(run, first)]
    return stage.telling(f"the moments of the optimizer are not restored: {' and '.join(lost)} are zero" if len(lost) == 1 else "")


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
        return Stage(name, Status.NOT_COMPARED, NO_EXACT_STEP if recorded else pair.why_not("batches"))
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
        return Stage(name, Status.NOT_COMPARED, "a run shows none: its script or loss keeps them to itself")
    many = f"{sizes[0]} tokens" if len(set(sizes)) == 1 else f"{min(sizes)} to {max(sizes)} tokens"
    means = "their mean" if len(found) == 1 else "their means"
    stage = judged(name, f"{many} at {steps_text(list(found))}, and {means}", [one for both in found.values() for one in both])
    shown = list(found.values())[-1 if stage.status is not Status.SAME else 0]
    stage = replace(stage, findings=shown if shown[0].excess > 1 else shown[::-1])  # all of a step show where
    return stage.telling(ladder.parted.told(pair.both)) if stage.status is Status.DIFFERENT else stage


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
        return Stage(name, Status.INCOMPLETE, "a run has no loss at its first step")
    stage = judged(name, f"loss and objective at {when(rows[0][0]['step'])}", findings)
    if stage.status is not Status.DIFFERENT:
        return stage
    if ladder.pair.converted:  # and nothing else tells what they started from
        unknown = "a log does not say which weights and data it is of, so this may be a fault or other weights or data"
        return Stage(name, Status.INCONCLUSIVE, f"{stage.summary}; {unknown}", stage.findings, open=True)
    return stage.telling(objective_alone(ladder.pair.both, findings) or weighed_otherwise(ladder))


def weighed_otherwise(ladder: Ladder) -> str:
    """Whose first loss is not the mean of its own tokens' losses, in words; empty where both are."""
    odd = {side: one for side, run in ladder.pair.sides for one in run.self_check.of_losses if one.step == ladder.pair.first}
    if len(odd) != 1:
        return ""
    ((side, one),) = odd.items()
    return f"the loss of the {side} is not the mean of its token losses: {one.first.words}, {one.second.words}"


def local_norms(ladder: Ladder) -> Stage:
    """Norms of exact steps."""
    return _exact_stage(ladder, "local norms", "local_norms", ladder.pair.is_exact, ladder.pair.limits.norm)


def gradients(ladder: Ladder) -> Stage:
    """Gradients of exact steps, tensor by tensor, stored or sketched."""
    return _exact_stage(ladder, "gradients", "gradients", ladder.pair.is_exact, ladder.pair.limits.gradient)


def _exact_stage(ladder: Ladder, name: str, kind: str, wanted: Callable[[int], bool], default: float) -> Stage:
    """One finding a tensor, of all wanted steps; what those of the first step have in common is told."""
    pair, gaps = ladder.pair, ladder.pair.gaps(kind)
    known = pair.known(kind)
    steps = [step for step in known if wanted(step)]
    by_step = {step: ladder.norms(step, default) if kind == "local_norms" else ladder.tensors(kind, step, default) for step in steps}
    found = [finding for one in by_step.values() for finding in one]
    if found:
        how = ", by their sketches" if steps[0] in pair.sketched(kind) else ""
        exact = "to the bit" if kind == "weights" and not how else f"at {steps_text(steps)}"
        stage = judged(name, "; ".join([f"{len(found)} tensors{how}, {exact}", *gaps[:1]]), found, incomplete=bool(gaps), most=None)
        why = explanation(pair.both, kind, steps[0], by_step[steps[0]]) if stage.status is Status.DIFFERENT else ""
        return stage.telling(why)
    if gaps or steps:
        return Stage(name, Status.INCOMPLETE, gaps[0] if gaps else "the two runs have no tensor in common")
    return Stage(name, Status.NOT_COMPARED, NO_EXACT_STEP if known else pair.why_not(kind))
