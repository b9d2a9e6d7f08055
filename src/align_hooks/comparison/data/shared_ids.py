"""Find ids that every batch of some steps holds, and few other batches do.

Where just these steps stand out, the sides may treat such an id differently: another special token, another row of the vocabulary,
another mask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from align_hooks.comparison.optimizer.zero_lr import Unmoved
from align_hooks.comparison.pair import Pair
from align_hooks.record.format.layout import Array
from align_hooks.record.reader import Run

FEWEST = 3
"""Steps that can share an id by more than chance."""
CHANCE = 0.01
"""Ids shared by chance, expected at most, if each step held an id independently."""
LARGEST = 1 << 20
"""Ids below this, or the number of tokens more, are counted; larger ones are sorted."""
MOST = 3
"""Ids that are reported; where more fit equally well, none says anything."""


@dataclass(frozen=True, slots=True)
class Shared:
    """An id that all steps in question hold."""

    id: int
    steps: int
    """How many these are."""
    elsewhere: int
    """How many other steps hold it."""


def of_standing_out(pair: Pair, numbers: Sequence[Unmoved]) -> list[Shared]:
    """Return the ids that the steps which stand out in a number share."""
    recorded = {ours.step for ours, _ in pair.rows if pair.reference.has("batches", ours.step)}
    out = {step for number in numbers for step, _ in number.out} & recorded
    return shared_ids(pair.reference, sorted(out), sorted(recorded - out))


def shared_ids(run: Run, steps: Sequence[int], others: Sequence[int]) -> list[Shared]:
    """Return the ids that the batches of ``steps`` share, and the fewest of ``others``; each step's batch must be on record."""
    if len(steps) < FEWEST:
        return []
    every = [_ids(run, step) for step in steps]
    common = reduce(np.intersect1d, every)
    elsewhere, known = np.zeros(len(common), np.int64), np.unique(np.concatenate(every))
    for step in others if len(common) else ():
        ids = _ids(run, step)
        elsewhere += np.isin(common, ids)
        known = np.union1d(known, ids)
    share = (elsewhere + len(steps)) / (len(others) + len(steps))
    fits = len(known) * share ** len(steps) < CHANCE
    fits &= elsewhere == elsewhere[fits].min(initial=len(others))
    found = [Shared(int(common[index]), len(steps), int(elsewhere[index])) for index in np.flatnonzero(fits)]
    return found if len(found) <= MOST else []


def _ids(run: Run, step: int) -> Array:
    tokens = run.batch(step, ("tokens",)).tokens
    if tokens is None or tokens.size == 0:
        return np.empty(0, np.int64)
    if tokens.min() >= 0 and tokens.max() < tokens.size + LARGEST:
        return np.flatnonzero(np.bincount(tokens.ravel()))
    return np.unique(tokens)
