"""How far two arrays are apart, in fp64, with no more memory than the two arrays and a block of each.

Cosine similarity is not used: it hides error (at equal norms 0.9999 is 1.4 %).
"""

from __future__ import annotations

import math

import numpy as np

from align_hooks.record.layout import Array

BLOCK = 1 << 20


def distances(reference: Array, candidate: Array) -> tuple[float, float, float]:
    """``|candidate - reference|``, ``|reference|`` and ``|candidate|``, Frobenius, of arrays of one shape; NaN where NaN or infinity is."""
    apart = ours = theirs = 0.0
    flat = reference.reshape(-1), candidate.reshape(-1)
    with np.errstate(invalid="ignore", over="ignore"):
        for start in range(0, reference.size, BLOCK):
            a, b = (array[start : start + BLOCK].astype(np.float64) for array in flat)
            delta = b - a
            apart += float(delta @ delta)
            ours += float(a @ a)
            theirs += float(b @ b)
    return math.sqrt(apart), math.sqrt(ours), math.sqrt(theirs)


def relative_difference(reference: float, candidate: float) -> float:
    """``|candidate - reference| / |reference|`` of two numbers."""
    return ratio(abs(candidate - reference), abs(reference))


def ratio(distance: float, size: float) -> float:
    """Distance over size: NaN where either is not finite, 0 for nothing over nothing, infinity for something over nothing."""
    if not (math.isfinite(distance) and math.isfinite(size)):
        return math.nan
    if size == 0.0:
        return 0.0 if distance == 0.0 else math.inf
    return distance / size
