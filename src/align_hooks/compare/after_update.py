"""The stage "weights after an update": what the two optimizers made of their gradients.

Two questions. Where one run was handed the other's gradients, do the weights agree within rounding? And does each run's
update follow AdamW with the hyper-parameters on record, whatever gradients went in? The second one names the term
(:mod:`align_hooks.compare.updates`), also where nothing was injected.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from align_hooks.compare.evidence import OnRecord, gather
from align_hooks.compare.findings import Progress, furthest, judged, tensor_errors
from align_hooks.compare.limits import UPDATE
from align_hooks.compare.pair import Pair
from align_hooks.compare.settings import show
from align_hooks.compare.updates import FITS, MOVED, Explanation, Settings, explain
from align_hooks.compare.verdict import Finding, Stage, Status

NAME = "weights after an update"


def weights_after_update(pair: Pair, progress: Progress) -> Stage:
    """Both questions; a term that is found wrong comes first among the findings."""
    injected = [finding for step in pair.handed for finding in tensor_errors(pair, "weights", step, UPDATE, progress)]
    named, followed, notes = _formulas(pair, progress)
    parts = [f"{len(pair.handed)} injected updates"] if pair.handed else []
    stage = judged(NAME, "; ".join([*parts, *notes]), injected)
    if stage.status is Status.NOT_COMPARABLE:
        return stage
    if named:
        return Stage(NAME, Status.DIFFERENT, stage.summary, (*named, *(furthest(injected) if stage.status is Status.DIFFERENT else ())))
    if not injected and not followed:
        return Stage(NAME, Status.NOT_COMPARED, "; ".join(notes))
    return stage


def _formulas(pair: Pair, progress: Progress) -> tuple[list[Finding], list[str], list[str]]:
    """Terms that a run's updates contradict, the sides whose updates follow theirs, and in words what was checked or why not."""
    named: dict[str, list[Finding]] = {}
    followed: list[str] = []
    notes: list[str] = []
    for side, run, other in (("reference", *pair.both), ("candidate", *reversed(pair.both))):
        progress(f"updates of the {side}")
        gathered = gather(run, other, candidate=side == "candidate")
        if isinstance(gathered, str):
            notes.append(f"the {side}'s updates were not checked: {gathered}")
            continue
        found = explain(gathered.evidence, gathered.settings)
        steps = f"{len(gathered.evidence.updates)} of the {side}'s updates"
        if found.follows:
            followed.append(side)
            notes.append(f"{steps} follow AdamW ({found.rest:.1g} roundings)")
        else:
            notes.append(f"{steps} do not follow AdamW as recorded ({found.rest:.2g} roundings, limit {FITS:g})")
            named[side] = findings(side, found, gathered, known=bool(run.manifest.get("optimizer")))
    if named and not followed:  # with nothing that follows it the formula itself may be what does not fit
        return [], followed, [*notes, "no run's updates follow AdamW as recorded, so its formula judges neither"]
    return [finding for found in named.values() for finding in found], followed, notes


def findings(side: str, explanation: Explanation, record: OnRecord, *, known: bool) -> list[Finding]:
    """What an explanation says, a finding a term: the value on record and the one that the updates were made with.

    ``known`` is False where the run's own settings are not on record and the reference's were expected.
    """
    if explanation.found is None:
        what = f"the {side}'s updates of {_listed(explanation.left)} are no AdamW with some of its terms changed"
        return [Finding(what, f"{explanation.rest:.3g} roundings", f"{explanation.explained:.3g} at best")]
    changed = list(_changed(explanation.found, record))
    others = {what for one in explanation.instead for what, _, _ in _changed(one, record)} - {what for what, _, _ in changed}
    unclear = f" (or alone: {', '.join(sorted(others))})" if others else ""
    left = f"; {explanation.explained:.2g} roundings of {_listed(explanation.left)} are left unexplained" if explanation.left else ""
    kept = "on record" if known else "expected"
    return [Finding(f"{what} of the {side}'s updates{unclear}{left}", f"{one} {kept}", f"{other} found") for what, one, other in changed]


def _changed(found: Settings, record: OnRecord) -> Iterable[tuple[str, str, str]]:
    """Name of each term that was changed, as recorded, as found."""
    recorded, names = record.settings, record.evidence.names
    if abs(found.rate - recorded.rate) > MOVED:
        yield "learning rate", show(record.learning_rate), _found(record.learning_rate * found.rate)
    betas = (recorded.beta1, recorded.beta2), (found.beta1, found.beta2)
    if any(abs(one - other) > MOVED * (1 - one) for one, other in zip(*betas, strict=True)):
        yield "betas", show(betas[0]), f"[{_found(found.beta1)}, {_found(found.beta2)}]"
    if abs(found.eps - recorded.eps) > MOVED * recorded.eps:
        yield "eps", show(recorded.eps), _found(found.eps)
    switched = np.flatnonzero((found.decay > 0) != (recorded.decay > 0))
    if switched.size:
        was, now = ("decayed", "not decayed") if recorded.decay[switched[0]] else ("not decayed", "decayed")
        yield f"decay grouping ({_listed([names[at] for at in switched])})", was, now
    elif np.abs(found.decay - recorded.decay).max(initial=0.0) > MOVED * recorded.decay.max(initial=0.0):
        yield "weight decay", show(float(recorded.decay.max())), _found(float(found.decay.max()))
    if found.bias_correction != recorded.bias_correction:
        yield "bias correction", _switch(recorded.bias_correction), _switch(found.bias_correction)
    if found.decoupled != recorded.decoupled:
        yield "decoupled weight decay", _switch(recorded.decoupled), _switch(found.decoupled)
    if found.clip is not None:
        yield "clip coefficient", f"that of clipping to {show(record.clip_grad)}", f"that of clipping to {_found(found.clip)}"


def _listed(names: Sequence[str]) -> str:
    return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")


def _switch(on: bool) -> str:
    return "on" if on else "off"


def _found(value: float) -> str:
    """A fitted value, to the digits that a fit to fp32 numbers can have."""
    return f"{value:.4g}"
