"""The stages before any number: what can be laid side by side at all, what each record says of itself, settings, and the data."""

from __future__ import annotations

import math
from dataclasses import replace
from fnmatch import fnmatchcase

import numpy as np

from align_hooks.compare import settings
from align_hooks.compare.batches import differences, weights_of_tokens
from align_hooks.compare.findings import WORST, contradictions, copies_alike, rates_equal
from align_hooks.compare.ladder import Ladder
from align_hooks.compare.limits import SETTING
from align_hooks.compare.pair import Pair
from align_hooks.compare.settings import by_parameter, show
from align_hooks.compare.verdict import Finding, Quantity, Stage, Status, when
from align_hooks.messages import message

OTHER_MODEL, OTHER_PADDING = "the models differ in parameters", "vocabulary padding differs"


def match(ladder: Ladder) -> Stage:
    """How much of the two runs can be laid side by side."""
    problems = [
        Finding(one.message, side, step=one.step, rank=one.rank, quantity=Quantity.WHOLENESS)
        for side, run in ladder.pair.sides
        for one in run.problems
    ]
    for side, run in ladder.pair.sides:
        if not run.steps:
            return Stage(
                "match", Status.NOT_COMPARABLE, f"the {side} recorded no whole step; see its log, and record it again", tuple(problems)
            )
        if ladder.noise.problem:
            return Stage("match", Status.NOT_COMPARABLE, ladder.noise.problem)
        if (run.manifest.get("settings") or {}).get("perturb"):
            moved = f"of the {side} every weight was moved by ALIGN_HOOKS_PERTURB: it is for --noise; record the run without"
            return Stage("match", Status.NOT_COMPARABLE, moved, tuple(problems))
        if run.missing is not None:
            lacking = message("run.lacks_ranks", side=side, missing=run.missing.message)
            return Stage("match", Status.NOT_COMPARABLE, lacking, tuple(problems))
    nameless = [side for side, run in ladder.pair.sides if side in ladder.pair.converted and not ladder.pair.pieces(run)]
    ours, theirs = ({}, {}) if nameless else map(ladder.pair.pieces, ladder.pair.both)
    names, shared = ours.keys() & theirs.keys(), {name for name in ours if ours[name] == theirs.get(name)}
    steps, expected = len(ladder.pair.rows), max(len(run.steps) for run in ladder.pair.both)
    elements, total = (sum(map(math.prod, shapes)) for shapes in ([ours[name] for name in shared], (theirs | ours).values()))
    summary = f"steps {steps} of {expected}, names {len(names)} of {len(ours.keys() | theirs.keys())}, elements {elements} of {total}"
    if nameless:
        summary = f"steps {steps} of {expected}; a log names no parameters"
    padding = sorted(name for name in (ours.keys() | theirs.keys()) - shared if name.endswith("#padding"))
    if padding:
        return Stage("match", Status.NOT_COMPARABLE, f"{OTHER_PADDING} ({', '.join(padding)}); {summary}", tuple(problems))
    apart = [Finding(f"shape of {name}", show(list(ours[name])), show(list(theirs[name]))) for name in sorted(names - shared)]
    missing = [name for name in sorted(ours.keys() ^ theirs.keys()) if not any(fnmatchcase(name, one) for one in ladder.allow_missing)]
    apart += [Finding(f"{name} is missing", *(("there", "-") if name in ours else ("-", "there"))) for name in missing]
    if apart:
        return Stage("match", Status.NOT_COMPARABLE, f"{OTHER_MODEL}; {summary}", tuple(apart + problems))
    if not steps:
        return Stage("match", Status.NOT_COMPARABLE, f"no step was completed by both; {summary}", tuple(problems))
    return Stage("match", Status.INCOMPLETE if problems else Status.SAME, summary, tuple(problems))


def self_check(ladder: Ladder) -> Stage:
    """Whether each record holds every element once, by the norm that its framework took, and copies that are copies."""
    checks = {side: run.self_check for side, run in ladder.pair.sides if run.manifests}
    found = [one for side, check in checks.items() for one in contradictions(check.of_layout, f"the {side}'s ")]
    held = [
        f"{len(check.steps)} of {len(check.steps) + len(check.unchecked)} of the {side}"
        for side, check in checks.items()
        if check.steps or check.unchecked
    ]
    copies, inexact = sum(check.copies for check in checks.values()), max((check.inexact for check in checks.values()), default=0.0)
    of_steps = " and ".join(held) or "of none"
    summary = f"norms of steps {of_steps} are the frameworks' own (their rounding {inexact:.1e}), {copies_alike(copies)}"
    if found:
        said = f"a record contradicts itself in {len(found)} ways: its layout loses, repeats or does not reduce something"
        return Stage("self-check", Status.DIFFERENT, said, tuple(found[:WORST]))
    checked = bool(checks) and all(check.steps or not check.unchecked for check in checks.values())
    checked = checked and any(check.steps for check in checks.values())
    bare = [side for side, check in checks.items() if not check.steps]
    handed = [side for side, run in ladder.pair.sides if side in bare and run.manifest.get("injected")]
    none = f"of the {' and the '.join(bare) or 'runs'} no step's norms were recorded beside the framework's own (ALIGN_HOOKS_LOCAL_NORMS)"
    if bare and handed == bare:
        none = f"of the {' and the '.join(bare)} gradients were injected, of which the framework took its norms"
    none += f"; {copies} copies alike" if copies else ""
    return Stage("self-check", Status.SAME if checked else Status.NOT_COMPARED, summary if checked else none)


def hyper_parameters(ladder: Ladder) -> Stage:
    """What the optimizers were built with, and the learning rate of every step."""
    name = "hyper-parameters"
    one, other = (run.manifest.get("optimizer") for run in ladder.pair.both)
    rates, steps = learning_rates(ladder.pair)
    if not one or not other:  # a log has the rates alone
        if not steps:
            return Stage(name, Status.NOT_COMPARED, "a record does not hold them")
        return Stage(
            name, Status.DIFFERENT if rates else Status.SAME, f"learning rate of {steps} steps, which is all that is known", tuple(rates)
        )
    shared = by_parameter(one).keys() & by_parameter(other).keys()
    together = ladder.pair.reference.steps[:1] == ladder.pair.candidate.steps[:1]  # a resumed run begins in the middle of its schedule
    findings = [*settings.hyper_parameters(one, other, rates=together), *rates]
    summary = f"of {len(shared)} parameters, learning rate of {steps} steps"
    status = Status.DIFFERENT if findings else Status.SAME if shared else Status.INCOMPLETE
    return Stage(name, status, summary, tuple(findings))


def learning_rates(pair: Pair) -> tuple[list[Finding], int]:
    """Where the learning rates of the common steps first differ, and of how many steps both are known; those of a log to its digits."""
    known = [row for row in pair.rows if all(one["learning_rate"] is not None for one in row)]
    within = SETTING + pair.resolution_of("learning_rate")
    apart = [(ours, theirs) for ours, theirs in known if not rates_equal(ours["learning_rate"], theirs["learning_rate"], within)]
    if not apart:
        return [], len(known)
    ours, theirs = apart[0]
    more = f" (and at {len(apart) - 1} later steps)" if len(apart) > 1 else ""
    what, step = f"learning rate at {when(ours['step'])}{more}", ours["step"]
    return [Finding(what, show(ours["learning_rate"]), show(theirs["learning_rate"]), name="learning rate", step=step)], len(known)


def batches(ladder: Ladder) -> Stage:
    """What the models consumed, element by element, and the number of tokens that count."""
    counts = [
        Finding(f"valid tokens at {when(ours['step'])}", str(ours["valid_tokens"]), str(theirs["valid_tokens"]), step=ours["step"])
        for ours, theirs in ladder.pair.rows
        if None not in (ours["valid_tokens"], theirs["valid_tokens"]) and ours["valid_tokens"] != theirs["valid_tokens"]
    ]
    steps, gaps = ladder.pair.steps("batches"), ladder.pair.gaps("batches")
    findings: list[Finding] = []
    agreed = (ladder.pair.first or 0) - 1
    for index, step in enumerate(steps):
        ladder.progress(f"batch of step {step}", index, len(steps))
        ours, theirs = ladder.batches(step)
        found, alone = differences(ours, theirs, when(step))
        findings += [replace(one, step=step, since=agreed + 1) for one in found]  # batches between two that were recorded are not known
        agreed = agreed if found else step
        gaps += [f"{what} in one run only" for what in alone]
    findings += counts
    if not findings and ladder.pair.first in steps and (why := _normalisation(ladder)):
        return Stage("batches", Status.NOT_COMPARABLE, why)
    counted = any(None not in (ours["valid_tokens"], theirs["valid_tokens"]) for ours, theirs in ladder.pair.rows)
    without = [ladder.pair.why_not("batches"), *(["numbers of valid tokens compared"] if counted else [])]
    summary = f"{len(steps)} steps, every element" if steps else "; ".join(without)
    status = Status.DIFFERENT if findings else Status.INCOMPLETE if gaps else Status.SAME if steps else Status.NOT_COMPARED
    return Stage("batches", status, "; ".join([summary, *gaps[:1]]), tuple(findings[:WORST]))


def _normalisation(ladder: Ladder) -> str | None:
    """Why the two sides weigh the same tokens differently in what they differentiate, None where they do not."""
    per_token = [bool(run.manifest.get("training", {}).get("per_token_loss")) for run in ladder.pair.both]
    one, other = (weights_of_tokens(batch, whole) for batch, whole in zip(ladder.first_batches, per_token, strict=True))
    if one is None or other is None or one.shape != other.shape or np.allclose(one, other, rtol=1e-9, atol=0):
        return None
    return (
        "loss normalisation differs: tokens of micro-batches with unequal masks weigh differently on the two sides; "
        "train both with the same micro-batches, or with a per-token loss on both"
    )
