"""The steps of a long curve that a page draws: a browser takes seconds over a hundred thousand.

Of each bucket of steps are drawn the first, the lowest and the highest of the reference (the M4 aggregation of
Jugel et al., 2014, without its last), and the step with the largest difference.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from align_hooks.comparison.verdict import Curve
from align_hooks.record.format.layout import Array

MOST = 10_000
"""The most steps of a curve that are drawn."""
OF_BUCKET = 4
"""Steps drawn of each bucket."""


def drawn(curve: Curve, most: int = MOST) -> list[int]:
    """Return the indices of the steps to draw, ascending; all where there are no more than ``most``."""
    count = len(curve.steps)
    if count <= most:
        return list(range(count))
    reference, differences = numbers(curve.reference), np.abs(numbers(curve.differences or curve.reference))
    kept = {0, count - 1}
    for bucket in np.array_split(np.arange(count), most // OF_BUCKET):
        values = reference[bucket]
        low, high = np.where(np.isfinite(values), values, np.inf), np.where(np.isfinite(values), values, -np.inf)
        difference = np.where(np.isnan(differences[bucket]), np.inf, differences[bucket])
        kept |= {int(bucket[0]), *(int(bucket[each.argmax()]) for each in (-low, high, difference))}
    return sorted(kept)


def numbers(values: Sequence[float | None]) -> Array:
    """Return values as fp64 ``[steps]``, NaN where there is none."""
    return np.array([np.nan if value is None else value for value in values], np.float64)
