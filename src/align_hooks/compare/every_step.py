"""The stages of every step, and of what came later: free-running steps only drift, so their limits are wide or measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from align_hooks.compare.findings import WORST, furthest, judged, labelled, losses
from align_hooks.compare.ladder import Ladder
from align_hooks.compare.limits import CLIPPING
from align_hooks.compare.measures import relative_difference
from align_hooks.compare.verdict import Finding, Quantity, Stage, Status, Words, at_step
from align_hooks.messages import message, sentences, terms

CURVE = 10
"""Steps that make a curve."""


def clipping(ladder: Ladder) -> Stage:
    """The global norm that each framework clipped by, its coefficient, and skipped updates, at every step."""
    findings, skipped = [], []
    for ours, theirs in ladder.pair.rows:
        for key in ("grad_norm", "clip_coefficient") if ours["step"] not in ladder.pair.skipped else ():
            if ours[key] is not None and theirs[key] is not None:
                error, step = relative_difference(ours[key], theirs[key]), ours["step"]
                findings.append(
                    Finding(at_step(Quantity(key), step), ours[key], theirs[key], error, CLIPPING, step=step, quantity=Quantity(key))
                )
        if ours["skipped"] != theirs["skipped"]:
            step = ours["step"]
            what = at_step(Quantity.SKIPPED, step)
            skipped.append(Finding(what, ours["skipped"], theirs["skipped"], step=step, quantity=Quantity.SKIPPED))
    summary = message("clipping.compared", count=len(ladder.pair.rows))
    if skipped:
        said = sentences(message("clipping.skipped_on_one_side"), summary)
        return Stage("clipping", Status.DIFFERENT, said, tuple(skipped[:WORST]))
    if not findings:
        return Stage("clipping", Status.NOT_COMPARED, message("clipping.no_norm"))
    exact = [finding for finding in findings[:2] if ladder.pair.first is not None]
    stage = judged("clipping", summary, exact)
    return stage if stage.status is not Status.SAME else _drifting(ladder, "clipping", summary, [], findings)


def later_losses(ladder: Ladder) -> Stage:
    """Losses after the first."""
    exact: list[Finding] = []
    free: list[Finding] = []
    for ours, theirs in ladder.pair.rows[1:]:
        still = ladder.pair.is_exact(ours["step"])
        (exact if still else free).extend(losses(ours, theirs, ladder.loss_limit(ours["step"]))[:1])
    if not exact and not free:
        status = Status.INCOMPLETE if len(ladder.pair.rows) > 1 else Status.NOT_COMPARED
        return Stage("later losses", status, message("later_losses.none"))
    out = next((finding for finding in [*exact, *free] if finding.excess > 1), None)
    beyond = message("later_losses.first_beyond", what=out.what) if out is not None else None
    summary = sentences(message("steps.count", count=len(exact) + len(free)), beyond)
    lost = len(ladder.pair.rows) - 1 - len(exact) - len(free)
    stage = _drifting(ladder, "later losses", summary, exact, free)
    second = ladder.pair.rows[1][0]["step"]
    if any(finding.excess > 1 and finding.name == "loss" and finding.step == second for finding in [*exact, *free]):
        stage = stage.telling(message("later_losses.second_parts"))
    return (
        replace(stage, status=Status.INCOMPLETE, summary=sentences(summary, message("later_losses.lost", count=lost)))
        if lost and stage.status is Status.SAME
        else stage
    )


def curve(ladder: Ladder) -> Stage:
    """The mean of all relative differences of the loss, with their signs: a bias too small for any one step adds up here.

    Honest differences stand on both sides of zero, or drift within half of what one step may. The guide's "around the 0-axis" asks for
    the same of a run with a learning rate of 0; with another one neighbouring steps go together, so signs are told and not judged.
    """
    both = [(ours["loss"], theirs["loss"]) for ours, theirs in ladder.pair.rows if None not in (ours["loss"], theirs["loss"])]
    if len(both) < CURVE:
        return Stage("curve", Status.NOT_COMPARED, message("curve.too_few", count=len(both), needed=CURVE))
    if not all(math.isfinite(loss) for pair in both for loss in pair):
        return Stage("curve", Status.NOT_COMPARED, message("curve.not_finite"))
    differences = [(theirs - ours) / abs(ours) if ours else theirs - ours for ours, theirs in both]
    drift, above = math.fsum(differences) / len(differences), sum(one > 0 for one in differences)
    still = all(ladder.pair.is_exact(ours["step"]) for ours, _ in ladder.pair.rows)
    limits = [ladder.loss_limit(ours["step"])("loss") for ours, _ in ladder.pair.rows]
    limit = math.fsum(limits) / len(limits) / 2
    found = Finding(message("curve.mean_difference"), drift, None, abs(drift), limit, quantity=Quantity.LOSS)
    summary = message("curve.compared", count=len(both), above=above)
    return _drifting(ladder, "curve", summary, [found] if still else [], [] if still else [found])


def later_tensors(ladder: Ladder) -> Stage:
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
        return Stage("free-running steps", Status.NOT_COMPARED, message("free_running.none"))
    stage = _drifting(ladder, "free-running steps", terms(parts), exact, free)
    return (
        replace(stage, status=Status.INCOMPLETE, summary=sentences(stage.summary, gaps[0]))
        if gaps and stage.status is Status.SAME
        else stage
    )


def model_settings(ladder: Ladder) -> Stage:
    """Settings of the model that differ although nothing recorded shows it: some faults hide from losses for long, and one that is smaller
    than the rounding of the coarser compute type hides for good."""
    found = ladder.settings
    if not found and not all(run.manifest.get("model") for run in ladder.pair.both):
        return Stage("model settings", Status.NOT_COMPARED, message("settings.not_on_record"))
    status = Status.INCONCLUSIVE if found else Status.SAME
    return Stage("model settings", status, message("model_settings.compared"), tuple(found))


def _drifting(ladder: Ladder, name: str, summary: Words, exact: Sequence[Finding], free: Sequence[Finding]) -> Stage:
    """Exact findings are in or out; free ones drift, and between limit and ``clear`` only measured noise could tell."""
    found = [*exact, *free]
    bad = max((finding.excess for finding in exact), default=0.0) > 1
    worst = max((finding.excess for finding in free), default=0.0)
    if worst <= 1 and not bad:
        return Stage(name, Status.SAME, summary, furthest(found))
    if bad or worst > ladder.pair.limits.clear:
        return judged(name, summary, found)
    return Stage(name, Status.INCONCLUSIVE, summary, furthest(found))
