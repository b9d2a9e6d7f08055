"""The stages where both runs stand on the same weights: the first forward pass and the gradients of exact steps. Limits are tight."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from align_hooks.compare import conversion
from align_hooks.compare import token_losses as tokens
from align_hooks.compare.findings import judged, losses, steps_text
from align_hooks.compare.ladder import Ladder
from align_hooks.compare.sharding import SHOWN, explanation, objective_alone
from align_hooks.compare.verdict import Stage, Status, when


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


def token_losses(ladder: Ladder) -> Stage:
    """Each token's loss at the first common step, before the mask: the forward computation alone."""
    name, first = "token losses", ladder.pair.first
    if first is None or first not in ladder.pair.steps("batches"):
        return Stage(name, Status.NOT_COMPARED, ladder.pair.why_not("batches"))
    found = tokens.compared(*ladder.first_batches)
    if found is None:
        return Stage(name, Status.NOT_COMPARED, "a run shows none: its script or loss keeps them to itself")
    limit = ladder.noise.limit("token_losses", first, "token losses", ladder.pair.limits.tokens)
    together, ladder.where = tokens.finding(found, first, limit)
    mean = tokens.mean(found, first, ladder.noise.limit("losses", first, "loss", ladder.pair.limits.loss))
    stage = judged(name, f"{found[0].size} tokens at {when(first)}, and their mean", [together, mean])
    return replace(stage, findings=(together, mean) if together.excess > 1 else (mean, together))  # all of them show where


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
    why = objective_alone(ladder.pair.both, findings) if stage.status is Status.DIFFERENT else ""
    return stage.telling(why)


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
    free = "no recorded step stands on equal weights in both runs"
    return Stage(name, Status.NOT_COMPARED, free if known else pair.why_not(kind))
