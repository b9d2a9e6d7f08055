"""Tensors whose gradients are nothing but rounding, such as a bias of all keys without rotary positions: softmax cancels it.

Adam divides a gradient by its own size, so it updates them too, in directions that no two layouts share, and their weights diverge."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from align_hooks.record.reader import Run

TIMES = 3.0
"""Times by which the sizes of two honest updates may differ, beside their gradients' norms."""


def norms(reference: Run, run: Run, step: int, eps: float) -> dict[str, tuple[float, float]]:
    """Return :func:`among` of the gradient norms (L2) of both sides; empty where a side recorded none."""
    known = all(each.has("local_norms", step) for each in (reference, run))
    return among(reference.local_norms(step), run.local_norms(step), eps) if known else {}


def among(ours: Mapping[str, float], theirs: Mapping[str, float], eps: float) -> dict[str, tuple[float, float]]:
    """Return both norms of each tensor that rounding made: both below ``eps`` times the reference's largest, and not both 0."""
    least = eps * max(ours.values(), default=0.0)
    return {name: (ours[name], theirs[name]) for name in ours.keys() & theirs.keys() if 0 < max(ours[name], theirs[name]) < least}


def alike(gradients: tuple[float, float], updates: tuple[float, float]) -> bool:
    """Return whether Adam makes updates of such sizes of gradients of such norms."""
    # from the whole rate, which has one size, to proportional, below Adam's epsilon; no tensor that is not updated
    (small, least), (large, most) = sorted(zip(gradients, updates, strict=True))
    return least <= TIMES * most and most * small <= TIMES * least * large


def drift(reference: Run, run: Run, step: int, eps: float) -> dict[str, float]:
    """Return the distance (L2) by which the sides may have moved each tensor whose gradient was rounding at every known step before."""
    found: set[str] | None = None
    rates = 0.0  # each element moves by the whole learning rate at a step, either way
    for row in reference.rows:
        if row.step >= step or found == set():
            break
        rates += 0.0 if row.learning_rate is None else float(np.max(row.learning_rate))
        if all(each.has("local_norms", row.step) for each in (reference, run)):
            names = norms(reference, run, row.step, eps).keys()
            found = set(names) if found is None else found & names
    sizes = {shard.name: math.prod(shard.shape) for rank in reference.manifests for shard in reference.shards(rank)} if found else {}
    return {name: 2 * rates * math.sqrt(sizes[name]) for name in found or () if name in sizes}
