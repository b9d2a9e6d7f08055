"""Find gradients that are not cleared between two steps, and add up: each has the earlier step's in it, times one number.

The number is 1, or the factor by which the earlier step clipped what it left."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import numpy as np

from align_hooks.comparison.finding import Words, when
from align_hooks.messages import Side, message
from align_hooks.names.blocks import Array
from align_hooks.record.read.tensors import Tensors
from align_hooks.record.reader import Run

SEARCHED = 8
"""The most tensors that are read, each whole at three steps."""
REST = 0.1
"""The largest part of a difference that the earlier gradient leaves unexplained."""
ALIKE = 0.05
"""How far the numbers of two tensors may differ, of their size."""


def kept_gradients(runs: tuple[Run, Run], steps: Sequence[int]) -> Words | None:
    """Say which side's gradients have those of the step before in them, at the first of ``steps`` that shows it; None where none have."""
    reference, candidate = runs
    for step in steps:
        for side, run, other in ((Side.CANDIDATE, candidate, reference), (Side.REFERENCE, reference, candidate)):
            if all(one.has("gradients", at) for one, at in ((run, step - 1), (run, step), (other, step))):
                factor = shared_factor(run.gradients(step), other.gradients(step), run.gradients(step - 1))
                if factor is not None:
                    return message("free_running.kept_gradients", side=side, step=when(step), before=when(step - 1), factor=factor)
    return None


def shared_factor(own: Tensors, other: Tensors, before: Tensors) -> float | None:
    """Return the one number times the earlier gradients by which gradients are off; None where that is not what they are off by."""
    known: list[float] = []
    for name in islice(filter(other.__contains__, own), SEARCHED):
        if (factor := factor_of(own[name], other[name], before[name])) is None:
            return None  # most steps of most pairs: no further tensor is read
        known.append(factor)
    if len(known) < 2 or max(known) - min(known) > ALIKE * max(known):
        return None
    return float(np.median(known))


def factor_of(own: Array, other: Array, before: Array) -> float | None:
    """Return the number times the earlier gradient that is the difference of two, within :data:`REST`; None where none is."""
    left = before.astype(np.float64).reshape(-1)
    off = own.astype(np.float64).reshape(-1) - other.astype(np.float64).reshape(-1)
    factor = float(off @ left / size) if (size := left @ left) else 0.0
    return factor if factor > 0 and np.linalg.norm(off - factor * left) <= REST * np.linalg.norm(off) else None
