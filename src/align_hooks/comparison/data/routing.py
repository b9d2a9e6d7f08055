"""Compare the experts of each token.

The choice of experts is discontinuous: where two scores nearly tie, rounding decides, and the token is then computed by other experts in
each run. So neither tokens with other experts, nor later tokens of the same row, which attend to them, say anything of the forward pass.
A fault of a router moves many tokens at once, a near tie a few here and there."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from align_hooks.record.reader import Run

ALWAYS = 2.5
"""Tokens of a layer that may go to other experts however few there are: one of 512 is more than any share of them."""
Flags = NDArray[np.bool_]


def has_choices(*runs: Run, step: int) -> bool:
    """Return whether all runs recorded the experts of each token of a step."""
    return all(run.has("routing", step) for run in runs)


def is_given(reference: Run, run: Run, step: int, kind: str = "routed") -> bool:
    """Return whether a replay gave both runs the same experts (``kind``: or ``injected`` gradients, ``forced`` inputs) at a step."""
    replays = [(each.facts, getattr(each.facts, kind)) for each in (reference, run)]
    ours, theirs = (replay.run_id if step in replay.steps else facts.run_id for facts, replay in replays)
    return ours is not None and ours == theirs and any(step in replay.steps for _, replay in replays)


def shares(reference: Run, run: Run, step: int) -> Iterator[tuple[str, float, int]]:
    """Yield for each layer with experts the router's name, the share of tokens with other experts, and the number of tokens.

    By counts the share is the smallest that explains them: tokens that swap two experts do not show."""
    if has_choices(reference, run, step=step):
        for name, other in _others(reference, run, step):
            yield name, float(other.mean()) if other.size else 0.0, other.size
    elif all(each.has("batches", step) and not each.made_by_hand for each in (reference, run)):
        ours, theirs = reference.expert_counts(step), run.expert_counts(step)
        for name, counts in ours.items():
            if name in theirs and counts.shape == theirs[name].shape and counts.sum() == theirs[name].sum() > 0:
                yield name, float(np.abs(counts - theirs[name]).sum()) / 2 / int(counts.sum()), int(counts.sum())


def one_sided(reference: Run, run: Run, step: int) -> str | None:
    """Return the first router whose choices one run lacks, or has of other sizes; None where there is none."""
    ours, theirs = reference.routing(step), run.routing(step)
    names = dict.fromkeys((*ours, *theirs))
    return next((name for name in names if name not in ours or name not in theirs or ours.shape(name) != theirs.shape(name)), None)


def apart(reference: Run, run: Run, step: int) -> Flags | None:
    """Return which tokens of a step, ``[rows, sequence]``, had other experts in any layer, or can attend to one that had.

    None where the experts were replayed, are not on record in both runs, or are of other rows."""
    if is_given(reference, run, step) or not has_choices(reference, run, step=step):
        return None
    touched: Flags | None = None
    for _, other in _others(reference, run, step):
        if touched is not None and touched.shape != other.shape:
            return None
        touched = other if touched is None else touched | other
    return None if touched is None else np.logical_or.accumulate(touched, axis=1)


def _others(reference: Run, run: Run, step: int) -> Iterator[tuple[str, Flags]]:
    """Yield each layer that both have in one shape, with the tokens that had other experts."""
    ours, theirs = reference.routing(step), run.routing(step)
    for name in ours:
        if name in theirs:
            mine, other = ours[name], theirs[name]
            if mine.shape == other.shape:
                yield name, (mine != other).any(axis=2)
