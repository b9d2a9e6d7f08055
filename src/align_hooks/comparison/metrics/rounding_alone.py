"""Tensors whose gradients are rounding alone, such as a bias of all keys where positions are not rotary: no softmax sees it.

Adam divides a gradient by its own size. So it updates them too, in directions that no two layouts have in common, and their weights part.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from align_hooks.record.reader import Run

TIMES = 3.0
"""Of the sizes of two honest updates, beside what their gradients' norms differ by."""


def norms(reference: Run, run: Run, step: int, eps: float) -> dict[str, tuple[float, float]]:
    """Norms (L2) of both sides' gradients of a step, of each tensor in which rounding made both; empty where a side has none on record."""
    if not all(each.has("local_norms", step) for each in (reference, run)):
        return {}
    return among(reference.local_norms(step), run.local_norms(step), eps)


def among(ours: Mapping[str, float], theirs: Mapping[str, float], eps: float) -> dict[str, tuple[float, float]]:
    """Those of both sides' norms (L2) of a step that are below ``eps`` times the reference's largest on both and not both 0, by name."""
    floor = eps * max(ours.values(), default=0.0)
    return {name: (ours[name], theirs[name]) for name in ours.keys() & theirs.keys() if 0 < max(ours[name], theirs[name]) < floor}


def alike(gradients: tuple[float, float], updates: tuple[float, float]) -> bool:
    """Whether Adam makes updates of such sizes of gradients of such norms: between the whole rate, which has one size, and, of gradients
    below its epsilon, in proportion. A tensor that is not updated, or at another rate, is none."""
    (small, least), (large, most) = sorted(zip(gradients, updates, strict=True))
    return least <= TIMES * most and most * small <= TIMES * least * large


def drift(reference: Run, run: Run, step: int, eps: float) -> dict[str, float]:
    """How far apart (L2) the sides may have moved each tensor whose gradient was rounding alone at every step before ``step`` that has
    norms on record: each element by the whole learning rate at a step, either way."""
    found: set[str] | None = None
    rates = 0.0
    for row in reference.rows:
        if row.step >= step or found == set():
            break
        rates += 0.0 if row.learning_rate is None else float(np.max(row.learning_rate))
        if all(each.has("local_norms", row.step) for each in (reference, run)):
            names = norms(reference, run, row.step, eps).keys()
            found = set(names) if found is None else found & names
    sizes = {shard.name: math.prod(shard.shape) for rank in reference.manifests for shard in reference.shards(rank)} if found else {}
    return {name: 2 * rates * math.sqrt(sizes[name]) for name in found or () if name in sizes}
