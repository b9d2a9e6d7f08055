"""Means of signed relative differences between the numbers of two runs.

Rounding has no sign, so its mean goes to 0 with more numbers. A mean that stays is a bias: gradients of one kind of parameter that are
always a little larger, a loss that is always a little lower."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import fmean

from msgspec import Struct

from align_hooks.comparison.control_band.noise_model import NUMBERS
from align_hooks.comparison.finding import Metric
from align_hooks.comparison.metrics.model_positions import place
from align_hooks.comparison.pair import Pair
from align_hooks.comparison.verdict import relative
from align_hooks.record.reader import Run

STEPS = 50
"""The most steps of which local norms are read, evenly spread."""


class SignedDrift(Struct, frozen=True):
    """The signed relative differences of one quantity, candidate less reference."""

    quantity: Metric
    mean: float
    largest: float
    """The difference of the largest size."""
    count: int
    steps: int
    kind: str = ""
    """Kind of parameter; empty for other quantities than local norms."""


def drifts(reference: Run, candidate: Run, eps: float) -> list[SignedDrift]:
    """Return the drifts of losses, global norms, and local norms by kind of parameter in the order of a forward pass.

    A local norm below ``eps`` (of the compute type) times its step's largest is rounding, and left out."""
    pair, found = Pair(reference, candidate), list[SignedDrift]()
    for name, quantity in NUMBERS.items():
        differences = [relative(ours, theirs) for _, ours, theirs in pair.numbers(name)]
        found += _drift(quantity, differences, len(differences))
    kinds: dict[tuple[int, str], list[float]] = {}
    steps = _spread(sorted({*reference.local_norm_steps()}.intersection(candidate.local_norm_steps())))
    for step in steps:
        ours, theirs = reference.local_norms(step), candidate.local_norms(step)
        floor = eps * max(ours.values(), default=0.0)
        for name in ours.keys() & theirs.keys():
            if ours[name] and max(ours[name], theirs[name]) >= floor:
                where = place(name)
                kinds.setdefault((where.order, where.kind), []).append(relative(ours[name], theirs[name]))
    for (_, kind), differences in sorted(kinds.items()):
        found += _drift(Metric.LOCAL_NORMS, differences, len(steps), kind)
    return found


def _drift(quantity: Metric, differences: Iterable[float], steps: int, kind: str = "") -> list[SignedDrift]:
    """Return the drift of the finite differences; empty where there are none."""
    finite = [difference for difference in differences if math.isfinite(difference)]
    return [SignedDrift(quantity, fmean(finite), max(finite, key=abs), len(finite), steps, kind)] if finite else []


def _spread(steps: Sequence[int]) -> Sequence[int]:
    """Return at most :data:`STEPS` steps, evenly spread, with the first and the last."""
    last = len(steps) - 1
    return steps if last < STEPS else [steps[round(index * last / (STEPS - 1))] for index in range(STEPS)]
