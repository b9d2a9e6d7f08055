"""Steps at a learning rate of 0: each compares forward and backward pass on one more batch (the guide, "weights not updated").

All steps differ by rounding, or by a fault that the comparison names. A step that differs by far more stands out: its batch holds what
the two sides treat differently, perhaps an id that all such batches share: another special token, or another row of the vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
from msgspec import Struct

from align_hooks.comparison.control_band.noise_model import NUMBERS
from align_hooks.comparison.pair import Pair
from align_hooks.comparison.verdict import relative
from align_hooks.record.format.layout import Array
from align_hooks.record.format.rows import ScalarRow
from align_hooks.record.reader import Run

FAR = 10.0
"""Times the usual difference (scaled median absolute deviation) by which a step stands out."""
TO_SIGMA = 1.4826
"""From a median absolute deviation to the standard deviation of normal numbers."""
LEAST = 20
"""Steps from which the usual difference can be estimated."""
ROUNDING = {"loss": 2.0**-22, "grad_norm": 2.0**-19}
"""Relative differences by which no step stands out: of a loss in fp32, and of a norm of many squares."""
FEWEST = 3
"""Steps that can share an id by more than chance."""
CHANCE = 0.01
"""Ids shared by chance, expected at most, if each step held an id independently."""
LARGEST = 1 << 20
"""Ids below this, or the number of tokens more, are counted; larger ones are sorted."""
MOST = 3
"""Ids that are reported; where more fit equally well, none says anything."""


class Unmoved(Struct, frozen=True):
    """One number over all steps at a rate of 0."""

    name: str
    steps: int
    median: float
    """Of the absolute relative differences."""
    largest: float
    at: int
    """The step of the largest difference."""
    out: tuple[tuple[int, float], ...]
    """Steps that stand out with their differences, the furthest first."""


def unmoved(pairs: Sequence[tuple[ScalarRow, ScalarRow]]) -> list[Unmoved]:
    """Return every number that both sides have, of rows at a rate of 0."""
    found = []
    for name in NUMBERS:
        values = [(ours.step, getattr(ours, name), getattr(theirs, name)) for ours, theirs in pairs]
        known = [(step, relative(a, b)) for step, a, b in values if a is not None and b is not None]
        finite = [pair for pair in known if np.isfinite(pair[1])]
        if known:
            differences = np.array([difference for _, difference in finite])
            far = [finite[index] for index in outliers(differences, ROUNDING[name])]
            at, largest = max(finite, key=lambda pair: abs(pair[1]), default=(known[0][0], np.nan))
            median = float(np.median(np.abs(differences))) if finite else np.nan
            lost = [pair for pair in known if not np.isfinite(pair[1])]
            found.append(Unmoved(name, len(known), median, abs(largest), at, (*lost, *sorted(far, key=lambda pair: -abs(pair[1])))))
    return found


def outliers(differences: Array, least: float) -> list[int]:
    """Return the indices of differences, fp64 ``[steps]``, that stand out; none of fewer than :data:`LEAST`."""
    if len(differences) < LEAST:
        return []
    deviations = np.abs(differences - np.median(differences))
    usual = TO_SIGMA * float(np.median(deviations))
    return [*map(int, np.flatnonzero(deviations > max(FAR * usual, least)))]


class Shared(Struct, frozen=True):
    """An id in the batches of all steps that stand out."""

    id: int
    steps: int
    """Number of these steps."""
    elsewhere: int
    """Number of other steps that hold the id."""


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
