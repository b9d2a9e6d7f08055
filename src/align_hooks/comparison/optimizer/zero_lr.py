"""Steps at a learning rate of 0: each compares forward and backward pass on one more batch (the guide, "weights not updated").

All steps differ by rounding, or by a fault that the comparison names. A step that differs by far more stands out: its batch holds what
the two sides treat differently."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from align_hooks.comparison.control_band.series import NUMBERS
from align_hooks.comparison.verdict import relative
from align_hooks.record.format.layout import Array
from align_hooks.record.format.rows import ScalarRow

FAR = 10.0
"""Times the usual difference (scaled median absolute deviation) by which a step stands out."""
TO_SIGMA = 1.4826
"""From a median absolute deviation to the standard deviation of normal numbers."""
LEAST = 20
"""Steps from which the usual difference can be estimated."""
ROUNDING = {"loss": 2.0**-22, "grad_norm": 2.0**-19}
"""Relative differences by which no step stands out: of a loss in fp32, and of a norm of many squares."""


@dataclass(frozen=True, slots=True)
class Unmoved:
    """One number over all steps at a rate of 0."""

    name: str
    steps: int
    """How many."""
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
        lost = [pair for pair in known if not np.isfinite(pair[1])]
        if not known:
            continue
        differences = np.array([difference for _, difference in finite])
        far = [finite[index] for index in outliers(differences, ROUNDING[name])]
        at, largest = max(finite, key=lambda pair: abs(pair[1]), default=(known[0][0], np.nan))
        median = float(np.median(np.abs(differences))) if finite else np.nan
        out = (*lost, *sorted(far, key=lambda pair: -abs(pair[1])))
        found.append(Unmoved(name, len(known), median, abs(largest), at, out))
    return found


def outliers(differences: Array, least: float) -> list[int]:
    """Return the indices of differences, fp64 ``[steps]``, that stand out; none of fewer than :data:`LEAST`."""
    if len(differences) < LEAST:
        return []
    middle = np.median(differences)
    usual = TO_SIGMA * float(np.median(np.abs(differences - middle)))
    far = np.abs(differences - middle) > max(FAR * usual, least)
    return [int(index) for index in np.flatnonzero(far)]
