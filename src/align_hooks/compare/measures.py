"""How far two arrays are apart, in fp64, holding no more than the two arrays and one block of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
BLOCK = 1 << 20


def relative_error(reference: Array, candidate: Array) -> float:
    """Relative Frobenius error ``|candidate - reference| / |reference|``; NaN where either holds NaN or infinity.

    0 where both are zero, infinity where only the reference is. Cosine similarity is not used: it hides error (at equal
    norms 0.9999 is 1.4 %).
    """
    distance, size, _ = distances(reference, candidate)
    return ratio(distance, size)


def distances(reference: Array, candidate: Array) -> tuple[float, float, float]:
    """``|candidate - reference|``, ``|reference|`` and ``|candidate|``, Frobenius, of arrays of one shape."""
    apart = ours = theirs = 0.0
    one, other = reference.reshape(-1), candidate.reshape(-1)
    with np.errstate(invalid="ignore", over="ignore"):
        for start in range(0, one.size, BLOCK):
            block, there = one[start : start + BLOCK].astype(np.float64), other[start : start + BLOCK].astype(np.float64)
            delta = there - block
            apart += float(delta @ delta)
            ours += float(block @ block)
            theirs += float(there @ there)
    return math.sqrt(apart), math.sqrt(ours), math.sqrt(theirs)


def relative_difference(reference: float, candidate: float) -> float:
    """``|candidate - reference| / |reference|`` of two numbers, with the same corner cases."""
    return ratio(abs(candidate - reference), abs(reference))


def ratio(distance: float, size: float) -> float:
    """Distance over size: NaN where either is not finite, 0 for nothing over nothing, infinity for something over nothing."""
    if not (math.isfinite(distance) and math.isfinite(size)):
        return math.nan
    if size == 0.0:
        return 0.0 if distance == 0.0 else math.inf
    return distance / size
