"""Signed relative differences from the reference, step by step, and the model of honest ones under both tests of a band.

Two honest runs diverge by rounding: a difference has a part that comes with each batch, and a level that wanders and lasts for hundreds
of steps. That is the local level model (Durbin and Koopman, *Time Series Analysis by State Space Methods*, chapter 2). Its Kalman filter,
once settled, is exponential smoothing with one ``gain``; an innovation is a step's difference less the level before. In bfloat16 the
differences of repeats' losses are correlated by 0.14 from one step to the next and by 0.12 ten steps later, their innovations by 0.03 and
less (``python tests/longrun/judge.py``, last table)."""

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
"""The most that rounding makes, over its usual size."""
GAINS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5)
CUT = 5.0
"""Times their usual size at which innovations are cut."""
AROUND = 15
"""Steps on either side whose innovations estimate the size of a step's: some batches are harder than others."""
SETTLED = 0.25
"""Part of the usual size of innovations before which rounding still grows, sooner in one honest run than in another."""


def of_rounding(name: str, limits: Limits) -> float:
    """Return the largest relative rounding of a number: its limit on equal weights, for two frameworks round differently at every step."""
    return limits.loss if name == "loss" else limits.norm


def differences(name: str, reference: Run, others: Sequence[Run]) -> tuple[Array, Array]:
    """Return the steps, int64 ``[steps]``, and each other run's signed relative differences, fp64 ``[others, steps]``.

    Only steps at which all runs have a finite number, and the reference one that is not 0."""
    ours, *theirs = (values(run, name) for run in (reference, *others))
    steps = sorted(step for step, value in ours.items() if value and all(step in other for other in theirs))
    base = np.array([ours[step] for step in steps], np.float64)
    numbers = np.array([[other[step] for step in steps] for other in theirs], np.float64).reshape(len(theirs), len(steps))
    return np.array(steps, np.int64), (numbers - base) / np.abs(base)


def values(run: Run, name: str) -> Mapping[int, float]:
    """Return step to number of a run, where it is finite."""
    read = ((row.step, getattr(row, name)) for row in run.rows)
    return {step: value for step, value in read if value is not None and np.isfinite(value)}


@dataclass(slots=True)
class NoiseLevel:
    """The current level of differences."""

    gain: float
    level: float = 0.0

    def innovation(self, difference: float, scale: float) -> float:
        """Return a step's difference less the level before it, and update the level."""
        new, most = difference - self.level, CUT * scale
        self.level += self.gain * max(-most, min(most, new))  # cut: one odd batch is no level
        return new


@dataclass(frozen=True, slots=True)
class NoiseModel:
    """Honest differences, estimated from repeats."""

    gain: float
    """Of their level."""
    scale: Array
    """Root mean square of the innovations around each step, fp64 ``[steps]``."""
    settled: int
    """Index of the first settled step."""
    repeats: int


def fit(repeats: Array, least: float = 0.0) -> NoiseModel:
    """Fit the model to differences of repeats, fp64 ``[repeats, steps]``, by the gain with the smallest innovations.

    ``least`` is the smallest scale: the rounding of the number itself."""
    steps = repeats.shape[1]
    if not steps or not repeats.any():
        return NoiseModel(GAINS[0], np.zeros(steps), steps, len(repeats))
    size = _around(np.square(repeats).mean(axis=0))
    tried = {gain: np.stack([innovations(repeat, gain, np.sqrt(size)) for repeat in repeats]) for gain in GAINS}
    settled = int(np.argmax(np.sqrt(size) >= SETTLED * np.sqrt(np.median(size))))
    usual = np.maximum(size[settled:], np.finfo(float).tiny)
    gain = min(GAINS, key=lambda each: float((np.square(tried[each][:, settled:]) / usual).mean()))
    scale = np.sqrt(_around(np.square(tried[gain]).mean(axis=0)))
    return NoiseModel(gain, np.maximum(scale, least), settled, len(repeats))


def innovations(differences: Array, gain: float, scale: Array) -> Array:
    """Return the innovations of one run's differences, fp64 ``[steps]``, of the usual ``scale`` ``[steps]``."""
    level = NoiseLevel(gain)
    return np.array([level.innovation(*pair) for pair in zip(differences.tolist(), scale.tolist(), strict=True)])


def _around(squares: Array) -> Array:
    """Return the mean of each step and its neighbours, fp64 ``[steps]``."""
    padded = np.pad(squares, AROUND, mode="reflect" if len(squares) > AROUND else "edge")
    return np.asarray(np.lib.stride_tricks.sliding_window_view(padded, 2 * AROUND + 1).mean(axis=1))
