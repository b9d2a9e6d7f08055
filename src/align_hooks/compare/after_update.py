"""The stage "weights after an update": what the two optimizers made of their gradients.

Two questions. Where both runs were handed the same gradients, do weights and moments agree within rounding? And does each
run's update follow AdamW with the hyper-parameters on record, whatever gradients went in? The second one names the term
(:mod:`align_hooks.compare.updates`), also where nothing was injected.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from align_hooks.compare.adam import Array
from align_hooks.compare.evidence import OnRecord, gather
from align_hooks.compare.findings import furthest, judged, moment_errors, tensor_errors
from align_hooks.compare.formula import FITS, Settings
from align_hooks.compare.ladder import Ladder
from align_hooks.compare.limits import UPDATE, weights_eps
from align_hooks.compare.measures import relative_difference
from align_hooks.compare.pair import Pair
from align_hooks.compare.settings import listed, show
from align_hooks.compare.updates import MOVED, Explanation, blind, explain
from align_hooks.compare.verdict import Finding, Stage, Status
from align_hooks.progress import Progress

NAME = "weights after an update"
DECOUPLED = {True: "apart from the gradient", False: "added to the gradient"}
CORRECTED = {True: "made", False: "not made"}
FAR = 1e6
"""Roundings."""


@dataclass(frozen=True)
class Checked:
    """One side's updates beside the formula. ``known`` says whether the formula is theirs, with some settings or others.

    ``known`` is None where they could not be checked.
    """

    note: str
    known: bool | None = None
    findings: tuple[Finding, ...] = ()


def weights_after_update(ladder: Ladder) -> Stage:
    """Both questions; a term that is found wrong comes first among the findings."""
    pair, progress = ladder.pair, ladder.progress
    equal = after_equal_gradients(pair, progress)
    sides = [check(side, pair, progress) for side in ("reference", "candidate")]
    gaps = pair.gaps("optimizer_state")
    summary = "; ".join([*([f"{len(pair.handed)} injected updates"] if pair.handed else []), *(one.note for one in sides), *gaps[:1]])
    stage = judged(NAME, summary, equal, incomplete=bool(gaps))
    wrong = [finding for one in sides for finding in one.findings]
    if stage.status is Status.NOT_COMPARABLE:
        return stage
    if any(one.known for one in sides) and wrong:
        return Stage(NAME, Status.DIFFERENT, summary, (*wrong, *(furthest(equal) if stage.status is Status.DIFFERENT else ())))
    if stage.status is Status.DIFFERENT and all(one.known for one in sides):
        return replace(stage, summary=f"{summary}; each does as its own settings say, so it is these that differ")
    if stage.status is Status.DIFFERENT or equal or all(one.known for one in sides):
        return stage
    if wrong and any(one.known is None for one in sides):  # nobody says whether the formula or the optimizer is the odd one
        return Stage(NAME, Status.INCONCLUSIVE, summary, tuple(wrong))
    judges = "; neither run's updates follow AdamW, so its formula judges neither" if wrong else ""
    return Stage(NAME, Status.INCOMPLETE if gaps else Status.NOT_COMPARED, summary + judges)


def after_equal_gradients(pair: Pair, progress: Progress) -> list[Finding]:
    """Weights and moments after updates that both made from the same gradients."""
    limit = max(UPDATE, *map(weights_eps, pair.both))
    found = [finding for step in pair.handed for finding in tensor_errors(pair, "weights", step, lambda name: limit, progress)]
    coefficients = [(ours["clip_coefficient"], theirs["clip_coefficient"]) for ours, theirs in pair.rows]
    clipped = max((relative_difference(*both) for both in coefficients if None not in both), default=0.0)
    for step in set(pair.handed) & set(pair.steps("optimizer_state")):
        found += moment_errors(pair, step, UPDATE + 2 * clipped, progress)
    return found


def check(side: str, pair: Pair, progress: Progress) -> Checked:
    """Lay one side's recorded updates beside the formula."""
    run, other = pair.both if side == "reference" else pair.both[::-1]
    progress(f"updates of the {side}")
    gathered = gather(run, other, candidate=side == "candidate")
    if isinstance(gathered, str):
        return Checked(f"the {side}'s updates were not checked: {gathered}")
    found = explain(gathered.evidence, gathered.settings)
    steps = f"{len(gathered.evidence.updates)} of the {side}'s updates"
    if found.follows:
        unseen = blind(gathered.evidence, gathered.settings)
        but = f", too small to show: {', '.join(unseen)}" if unseen else ""
        return Checked(f"{steps} follow AdamW ({found.rest:.1g} roundings{but})", known=True)
    note = f"{steps} do not follow AdamW as recorded ({roundings(found.rest)}, limit {FITS:g})"
    wrong = tuple(findings(side, found, gathered, known=bool(run.manifest.get("optimizer"))))
    return Checked(note, known=found.complete, findings=wrong)


def findings(side: str, explanation: Explanation, record: OnRecord, *, known: bool) -> list[Finding]:
    """What an explanation says, a finding a term: the value on record and the one that the updates were made with.

    ``known`` is False where the run's own settings are not on record and the reference's were expected.
    """
    found = [Finding(f"{listed(explanation.still)} of the {side}", "updated", "never updated")] if explanation.still else []
    changed = list(_changed(explanation.found, record)) if explanation.found is not None else []
    others = {what for one in explanation.instead for what, _, _ in _changed(one, record)} - {what for what, *_ in changed}
    unclear = f" (or alone: {', '.join(sorted(others))})" if others else ""
    left = f"; it does not explain all of {listed(explanation.left)}" if explanation.left else ""
    kept = "on record" if known else "expected"
    found += [Finding(f"{what} of the {side}'s updates{unclear}{left}", f"{one} {kept}", f"{other} found") for what, one, other in changed]
    if not changed and (explanation.left or not explanation.still):
        of = f" of {listed(explanation.left)}" if explanation.left else ""
        what = f"the {side}'s updates{of} are no AdamW with some of its terms changed"
        found.append(Finding(what, roundings(explanation.rest), f"{roundings(explanation.explained)} at best"))
    return found


def _changed(found: Settings, record: OnRecord) -> Iterator[tuple[str, str, str]]:
    """Name of each term that was changed, as recorded, as found."""
    recorded = record.settings
    if abs(found.rate - recorded.rate) > MOVED:
        yield "learning rate", show(record.learning_rate), _found(record.learning_rate * found.rate)
    betas = (recorded.beta1, recorded.beta2), (found.beta1, found.beta2)
    if any(abs(one - other) > MOVED * (1 - one) for one, other in zip(*betas, strict=True)):
        yield "betas", show(betas[0]), f"[{_found(found.beta1)}, {_found(found.beta2)}]"
    if abs(found.eps - recorded.eps) > MOVED * recorded.eps:
        yield "eps", show(recorded.eps), _found(found.eps)
    yield from _decay(found.decay, recorded.decay, record.evidence.names)
    if found.bias_correction != recorded.bias_correction:
        yield "bias correction", CORRECTED[recorded.bias_correction], CORRECTED[found.bias_correction]
    if found.decoupled != recorded.decoupled:
        yield "decoupled weight decay", DECOUPLED[recorded.decoupled], DECOUPLED[found.decoupled]
    if found.clip is not None:
        yield "clip coefficient", f"that of clipping to {show(record.clip_grad)}", f"that of clipping to {_found(found.clip)}"
    if abs(found.scale - recorded.scale) > MOVED:
        yield "gradient scale", show(recorded.scale), _found(found.scale)
    if found.count != recorded.count:
        first = record.evidence.updates[0].count
        yield "count", show(first), show(max(1, first + found.count))


def _decay(found: Array, recorded: Array, names: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Tensors that decay and should not, those that should and do not, and another decay of the others."""
    for switched, was, now in (
        ((found > 0) & (recorded == 0), "not decayed", "decayed"),
        ((found == 0) & (recorded > 0), "decayed", "not decayed"),
    ):
        if switched.any() and recorded.any():
            yield f"decay grouping ({listed([names[at] for at in np.flatnonzero(switched)])})", was, now
    both = (found > 0) & ((recorded > 0) | ~recorded.any())
    highest = float(recorded.max(initial=0.0))
    if both.any() and np.abs(found - recorded)[both].max() > MOVED * highest:
        yield "weight decay", show(highest), _found(float(found[both].max()))


def roundings(rest: float) -> str:
    """How far updates are from a formula, in roundings of the weights; beyond a million the number says nothing."""
    return f"{rest:.2g} roundings" if rest < FAR else "over a million roundings"


def _found(value: float) -> str:
    """A fitted value, to the digits that a fit to fp32 numbers can have."""
    return f"{value:.4g}"
