"""Steps at a learning rate of 0: both sides stand on the same weights all along, so that every step measures the forward and the backward
pass on one more batch (the guide, "weights not updated").

What all steps differ by is rounding, or a fault that the comparison names. A step that differs by far more than the others stands out: its
batch holds what the two sides treat otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from align_hooks.comparison.control_band.series import NUMBERS
from align_hooks.comparison.verdict import relative
from align_hooks.record.format.layout import Array
from align_hooks.record.format.schema import ScalarRow

FAR = 10.0
"""Times the usual difference (scaled median absolute deviation) that a step must be off to stand out."""
TO_SIGMA = 1.4826
"""Brings a median absolute deviation to the standard deviation of normal numbers."""
LEAST = 20
"""Steps from which the usual difference can be told."""
ROUNDING = {"loss": 2.0**-22, "grad_norm": 2.0**-19}
"""Relative differences that no step stands out by: of a loss in fp32, and of a norm of many squares in it."""


@dataclass(frozen=True, slots=True)
class Unmoved:
    """One number over all steps: how many, the median of its absolute relative differences, the largest and its step, and the steps that
    stand out with their differences, the furthest first."""

    name: str
    steps: int
    median: float
    largest: float
    at: int
    out: tuple[tuple[int, float], ...]


def unmoved(pairs: Sequence[tuple[ScalarRow, ScalarRow]]) -> list[Unmoved]:
    """Every number that both sides have, of rows at a rate of 0."""
    found = []
    for name in NUMBERS:
        values = [(ours.step, getattr(ours, name), getattr(theirs, name)) for ours, theirs in pairs]
        apart = [(step, relative(a, b)) for step, a, b in values if a is not None and b is not None]
        finite = [pair for pair in apart if np.isfinite(pair[1])]
        lost = [pair for pair in apart if not np.isfinite(pair[1])]
        if not apart:
            continue
        differences = np.array([difference for _, difference in finite])
        far = [finite[index] for index in outliers(differences, ROUNDING[name])]
        at, largest = max(finite, key=lambda pair: abs(pair[1]), default=(apart[0][0], np.nan))
        median = float(np.median(np.abs(differences))) if finite else np.nan
        out = (*lost, *sorted(far, key=lambda pair: -abs(pair[1])))
        found.append(Unmoved(name, len(apart), median, abs(largest), at, out))
    return found


def outliers(differences: Array, least: float) -> list[int]:
    """The indices of differences, fp64 ``[steps]``, that stand out; none of so few that nobody knows what is usual."""
    if len(differences) < LEAST:
        return []
    middle = np.median(differences)
    usual = TO_SIGMA * float(np.median(np.abs(differences - middle)))
    far = np.abs(differences - middle) > max(FAR * usual, least)
    return [int(index) for index in np.flatnonzero(far)]
