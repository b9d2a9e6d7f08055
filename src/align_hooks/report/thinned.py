"""Which steps of a long curve a page draws: a browser takes seconds over a hundred thousand.

Steps are put into buckets, and of each those are drawn that an eye would miss: the first, the lowest and the highest of the reference (the
M4 aggregation of Jugel et al., 2014, without its last), and the one at which the two sides differ most.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from align_hooks.comparison.verdict import Curve
from align_hooks.record.format.layout import Array

MOST = 10_000
"""Steps of a curve that are all drawn, and no more of a longer one."""
OF_BUCKET = 4
"""Steps that are drawn of each bucket."""


def drawn(curve: Curve, most: int = MOST) -> list[int]:
    """The indices of the steps that are drawn, ascending; all where there are no more than ``most``."""
    count = len(curve.steps)
    if count <= most:
        return list(range(count))
    reference, apart = numbers(curve.reference), np.abs(numbers(curve.differences or curve.reference))
    kept = {0, count - 1}
    for bucket in np.array_split(np.arange(count), most // OF_BUCKET):
        values = reference[bucket]
        low, high = np.where(np.isfinite(values), values, np.inf), np.where(np.isfinite(values), values, -np.inf)
        far = np.where(np.isnan(apart[bucket]), np.inf, apart[bucket])
        kept |= {int(bucket[0]), *(int(bucket[each.argmax()]) for each in (-low, high, far))}
    return sorted(kept)


def numbers(values: Sequence[float | None]) -> Array:
    """Values as fp64 ``[steps]``, NaN where there is none."""
    return np.array([np.nan if value is None else value for value in values], np.float64)
