"""Signed relative differences from the reference, step by step, of the candidate and of repeats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from align_hooks.comparison.finding import Metric
from align_hooks.comparison.metrics.limits import Limits
from align_hooks.record.format.layout import Array
from align_hooks.record.reader import Run

NUMBERS = {"loss": Metric.LOSS, "grad_norm": Metric.GRAD_NORM}
"""Name in a row to metric of the numbers that have a band: those that no setting gives."""
PARTS_OF_ROUNDING = 3.0
"""The most that rounding makes, over what it usually makes."""


def of_rounding(name: str, limits: Limits) -> float:
    """Return the most that rounding makes of a number, relative: its limit on equal weights, by which two frameworks may differ at every
    step."""
    return limits.loss if name == "loss" else limits.norm


@dataclass(frozen=True, slots=True)
class Series:
    """One number's differences from the reference, all finite."""

    name: str
    steps: Array
    """int64 ``[steps]``"""
    candidate: Array
    """fp64 ``[steps]``"""
    repeats: Array
    """fp64 ``[repeats, steps]``"""


def differences(name: str, reference: Run, others: Sequence[Run]) -> tuple[Array, Array]:
    """Return the steps, int64 ``[steps]``, and each other run's signed relative differences, fp64 ``[others, steps]``.

    Only steps at which all runs have a finite number, and the reference one that is not 0."""
    ours, *theirs = (values(run, name) for run in (reference, *others))
    steps = sorted(step for step, value in ours.items() if value and all(step in other for other in theirs))
    base = np.array([ours[step] for step in steps], np.float64)
    apart = [(np.array([other[step] for step in steps], np.float64) - base) / np.abs(base) for other in theirs]
    return np.array(steps, np.int64), np.array(apart, np.float64).reshape(len(theirs), len(steps))


def values(run: Run, name: str) -> Mapping[int, float]:
    """Return step to number of a run, where it is finite."""
    read = ((row.step, getattr(row, name)) for row in run.rows)
    return {step: value for step, value in read if value is not None and np.isfinite(value)}
