"""The stages before any number: what can be laid side by side at all, what each record says of itself, settings, and the data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from align_hooks.compare import settings
from align_hooks.compare.batches import differences, weights_of_tokens
from align_hooks.compare.findings import WORST, contradictions, copies_alike, rates_equal
from align_hooks.compare.ladder import Ladder
from align_hooks.compare.limits import SETTING
from align_hooks.compare.pair import Pair
from align_hooks.compare.settings import as_written, by_parameter, presence, show
from align_hooks.compare.verdict import Finding, Quantity, Reason, Stage, Status, Words, at_step
from align_hooks.messages import Message, Side, both, message, sentences, terms


def match(ladder: Ladder) -> Stage:
    """How much of the two runs can be laid side by side."""
    problems = [
        Finding(problem.message, side, step=problem.step, rank=problem.rank, quantity=Quantity.WHOLENESS)
        for side, run in ladder.pair.sides
        for problem in run.problems
    ]
    if unfit := _unfit(ladder):
        reason, why = unfit
        return Stage("match", Status.NOT_COMPARABLE, why, tuple(problems) if reason is not Reason.NO_REPEAT else (), reason=reason)
    nameless = any(side in ladder.pair.converted and not ladder.pair.pieces(run) for side, run in ladder.pair.sides)
    ours, theirs = ({}, {}) if nameless else map(ladder.pair.pieces, ladder.pair.both)
    summary = _laid_out(ladder, None if nameless else (ours, theirs))
    padding = sorted(name for name in ours.keys() | theirs.keys() if name.endswith("#padding") and ours.get(name) != theirs.get(name))
    if padding:
        why = sentences(message("match.other_padding", names=terms(padding)), summary)
        return Stage("match", Status.NOT_COMPARABLE, why, tuple(problems), reason=Reason.OTHER_PADDING)
    if apart := _unlike_parameters(ours, theirs, ladder.allow_missing):
        why = sentences(message("match.other_model"), summary)
        return Stage("match", Status.NOT_COMPARABLE, why, (*apart, *problems), reason=Reason.OTHER_MODEL)
    if not ladder.pair.rows:
        why = sentences(message("match.no_common_step"), summary)
        return Stage("match", Status.NOT_COMPARABLE, why, tuple(problems), reason=Reason.NO_COMMON_STEP)
    return Stage("match", Status.INCOMPLETE if problems else Status.SAME, summary, tuple(problems))


def _unfit(ladder: Ladder) -> tuple[Reason, Words] | None:
    """Why a run cannot be compared with any other."""
    for side, run in ladder.pair.sides:
        if not run.steps:
            return Reason.NO_WHOLE_STEP, message("match.no_whole_step", side=side)
        if ladder.noise.problem:
            return Reason.NO_REPEAT, ladder.noise.problem
        if (run.manifest.get("settings") or {}).get("perturb"):
            return Reason.MOVED_WEIGHTS, message("match.moved_weights", side=side)
        if run.missing is not None:
            return Reason.RANKS_MISSING, message("match.ranks_missing", side=side, missing=run.missing.message)
    return None


Shapes = Mapping[str, tuple[int, ...]]
"""Canonical name to shape."""


def _laid_out(ladder: Ladder, shapes: tuple[Shapes, Shapes] | None) -> Words:
    """How many steps, parameters and elements both runs have in common; of a log there are steps alone."""
    steps, expected = len(ladder.pair.rows), max(len(run.steps) for run in ladder.pair.both)
    if shapes is None:
        return message("match.log", steps=steps, expected=expected)
    ours, theirs = shapes
    shared = [shape for name, shape in ours.items() if shape == theirs.get(name)]
    elements, total = (sum(map(math.prod, shapes)) for shapes in (shared, {**theirs, **ours}.values()))
    names, every = len(ours.keys() & theirs.keys()), len(ours.keys() | theirs.keys())
    return message("match.laid_out", steps=steps, expected=expected, names=names, all=every, elements=elements, total=total)


def _unlike_parameters(ours: Shapes, theirs: Shapes, allow_missing: Sequence[str]) -> list[Finding]:
    """Parameters of other shapes, and parameters that one side lacks."""
    unlike = [name for name in sorted(ours.keys() & theirs.keys()) if ours[name] != theirs[name]]
    missing = [name for name in sorted(ours.keys() ^ theirs.keys()) if not any(fnmatchcase(name, one) for one in allow_missing)]
    kind = Quantity.SHAPE
    return [
        *(
            Finding(message("match.shape", name=name), show(list(ours[name])), show(list(theirs[name])), name=name, quantity=kind)
            for name in unlike
        ),
        *(Finding(message("match.missing", name=name), *presence(name in ours), name=name, quantity=kind) for name in missing),
    ]


def self_check(ladder: Ladder) -> Stage:
    """Whether each record holds every element once, by the norm that its framework took, and copies that are copies."""
    checks = {side: run.self_check for side, run in ladder.pair.sides if run.manifests}
    findings = [finding for side, check in checks.items() for finding in contradictions(check.of_layout, side)]
    if findings:
        return Stage("self-check", Status.DIFFERENT, message("self_check.contradictions", count=len(findings)), tuple(findings[:WORST]))
    copies = sum(check.copies for check in checks.values())
    known = [check for check in checks.values() if check.steps or check.unchecked]
    if not known or not all(check.steps for check in known):
        alike = copies_alike(copies) if copies else None
        return Stage("self-check", Status.NOT_COMPARED, sentences(_unchecked(ladder, checks), alike))
    steps = both(
        *(
            message("self_check.steps", checked=len(check.steps), all=len(check.steps) + len(check.unchecked), side=side)
            for side, check in checks.items()
            if check.steps or check.unchecked
        )
    )
    inexact = max(check.inexact for check in checks.values())
    return Stage("self-check", Status.SAME, message("self_check.norms", steps=steps, inexact=inexact, copies=copies_alike(copies)))


def _unchecked(ladder: Ladder, checks: Mapping[Side, Any]) -> Message:
    """Why no norm of a framework is known to hold a record against."""
    bare = [side for side, check in checks.items() if not check.steps]
    injected = bare and all(run.manifest.get("injected") for side, run in ladder.pair.sides if side in bare)
    if len(bare) == 1:
        return message("self_check.injected_of_side" if injected else "self_check.no_norms_of_side", side=bare[0])
    return message("self_check.injected" if injected else "self_check.no_norms")


def hyper_parameters(ladder: Ladder) -> Stage:
    """What the optimizers were built with, and the learning rate of every step."""
    name = "hyper-parameters"
    one, other = (run.manifest.get("optimizer") for run in ladder.pair.both)
    rates, steps = learning_rates(ladder.pair)
    if not one or not other:  # a log has the rates alone
        if not steps:
            return Stage(name, Status.NOT_COMPARED, message("settings.not_on_record"))
        status = Status.DIFFERENT if rates else Status.SAME
        return Stage(name, status, message("hyper_parameters.rates_alone", count=steps), tuple(rates))
    shared = by_parameter(one).keys() & by_parameter(other).keys()
    together = ladder.pair.reference.steps[:1] == ladder.pair.candidate.steps[:1]  # a resumed run begins in the middle of its schedule
    findings = [*settings.hyper_parameters(one, other, rates=together), *rates]
    status = Status.DIFFERENT if findings else Status.SAME if shared else Status.INCOMPLETE
    return Stage(name, status, message("hyper_parameters.compared", count=len(shared), steps=steps), tuple(findings))


def learning_rates(pair: Pair) -> tuple[list[Finding], int]:
    """Where the learning rates of the common steps first differ, and of how many steps both are known; those of a log to its digits."""
    known = [row for row in pair.rows if all(one["learning_rate"] is not None for one in row)]
    within = SETTING + pair.resolution_of("learning_rate")
    apart = [(ours, theirs) for ours, theirs in known if not rates_equal(ours["learning_rate"], theirs["learning_rate"], within)]
    if not apart:
        return [], len(known)
    step, later = apart[0][0]["step"], len(apart) - 1
    what = at_step(Quantity.LEARNING_RATE, step)
    if later:
        what = message("hyper_parameters.rate_and_later", step=step, iteration=step + 1, count=later)
    ours, theirs = (as_written(row["learning_rate"]) for row in apart[0])
    return [Finding(what, ours, theirs, name="learning rate", step=step, quantity=Quantity.LEARNING_RATE)], len(known)


def batches(ladder: Ladder) -> Stage:
    """What the models consumed, element by element, and the number of tokens that count."""
    steps, gaps = ladder.pair.steps("batches"), ladder.pair.gaps("batches")
    findings: list[Finding] = []
    agreed = (ladder.pair.first or 0) - 1
    for index, step in enumerate(steps):
        ladder.progress(f"batch of step {step}", index, len(steps))
        ours, theirs = ladder.batches(step)
        unlike, alone = differences(ours, theirs, step)
        findings += [replace(one, since=agreed + 1) for one in unlike]  # batches between two that were recorded are not known
        agreed = agreed if unlike else step
        gaps += [message("batches.in_one_run_only", name=name, step=step, iteration=step + 1) for name in alone]
    counted, counts = _valid_tokens(ladder.pair)
    findings += counts
    if not findings and ladder.pair.first in steps and _weighs_otherwise(ladder):
        return Stage("batches", Status.NOT_COMPARABLE, message("batches.normalisation"), reason=Reason.LOSS_NORMALISATION)
    numbers_alone = message("batches.valid_tokens_alone") if counted else None
    compared = message("batches.compared", count=len(steps)) if steps else sentences(ladder.pair.why_not("batches"), numbers_alone)
    status = Status.DIFFERENT if findings else Status.INCOMPLETE if gaps else Status.SAME if steps else Status.NOT_COMPARED
    return Stage("batches", status, sentences(compared, *gaps[:1]), tuple(findings[:WORST]))


def _valid_tokens(pair: Pair) -> tuple[int, list[Finding]]:
    """Of how many steps both sides counted the tokens that count, and where their numbers differ."""
    counts = [(ours["step"], ours["valid_tokens"], theirs["valid_tokens"]) for ours, theirs in pair.rows]
    known = [row for row in counts if None not in row]
    kind = Quantity.VALID_TOKENS
    return len(known), [
        Finding(at_step(kind, step), ours, theirs, step=step, quantity=kind) for step, ours, theirs in known if ours != theirs
    ]


def _weighs_otherwise(ladder: Ladder) -> bool:
    """Whether the two sides weigh the same tokens differently in what they differentiate."""
    per_token = [bool(run.manifest.get("training", {}).get("per_token_loss")) for run in ladder.pair.both]
    one, other = (weights_of_tokens(batch, whole) for batch, whole in zip(ladder.first_batches, per_token, strict=True))
    return one is not None and other is not None and one.shape == other.shape and not np.allclose(one, other, rtol=1e-9, atol=0)
