"""Signed relative differences from the reference, step by step: of the candidate, and of repeats of the reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from align_hooks.comparison.finding import Metric
from align_hooks.comparison.metrics.limits import Limits
from align_hooks.record.format.layout import Array
from align_hooks.record.reader import Run

NUMBERS = {"loss": Metric.LOSS, "grad_norm": Metric.GRAD_NORM}
"""What has a band: numbers of a step that no setting gives, by their names in a row."""
PARTS_OF_ROUNDING = 3.0
"""What rounding makes at most, over what it usually makes."""


def of_rounding(name: str, limits: Limits) -> float:
    """What the rounding of a number itself makes of it at most, relative: its limit on equal weights. Two frameworks may be apart by it at
    every step, where repeats of one are not."""
    return limits.loss if name == "loss" else limits.norm


@dataclass(frozen=True, slots=True)
class Series:
    """One number's differences from the reference. ``steps`` int64 ``[steps]``; ``candidate`` fp64 ``[steps]``; ``repeats`` fp64
    ``[repeats, steps]``; all finite."""

    name: str
    steps: Array
    candidate: Array
    repeats: Array


def differences(name: str, reference: Run, others: Sequence[Run]) -> tuple[Array, Array]:
    """The steps at which all have a number finite, and the reference not 0, int64 ``[steps]``; and each other run's relative difference
    there, signed, fp64 ``[others, steps]``."""
    ours, *theirs = (values(run, name) for run in (reference, *others))
    steps = sorted(step for step, value in ours.items() if value and all(step in other for other in theirs))
    base = np.array([ours[step] for step in steps], np.float64)
    apart = [(np.array([other[step] for step in steps], np.float64) - base) / np.abs(base) for other in theirs]
    return np.array(steps, np.int64), np.array(apart, np.float64).reshape(len(theirs), len(steps))


def values(run: Run, name: str) -> Mapping[int, float]:
    """Step to a number of a run, where that is finite."""
    read = ((row.step, getattr(row, name)) for row in run.rows)
    return {step: value for step, value in read if value is not None and np.isfinite(value)}
