"""How far two numbers of a record that state one fact may differ, relative to the larger."""

from __future__ import annotations

import math

SAME = 2e-6
"""A norm and its recomputation: both sums of the ranks' parts are fp32, in different orders."""
EXACT = 1e-6
"""Two sums of the same squares: chunks are summed in fp32, and the pieces of a gradient are cut differently."""
UNKNOWN = 1e-4
"""A framework's norm and ours where the framework's cannot be recomputed (compiled graphs)."""
MEAN = 1e-4
"""A loss and the mean of its tokens' losses: both are sums in fp32 of the same fp32 numbers."""
COPY = {"float32": 1e-5}
"""The norms of two copies, by compute type; :data:`HALF` for any other type."""
HALF = 1e-3
WEIGHT = 1e-4
"""Two tokens' weights in the loss, where these should be equal."""


def relative_distance(a: float, b: float) -> float:
    """Return the distance of two numbers relative to the larger; infinite where only one is finite."""
    if a == b or (math.isnan(a) and math.isnan(b)):
        return 0.0
    if not (math.isfinite(a) and math.isfinite(b)):
        return math.inf
    return abs(a - b) / max(abs(a), abs(b))
