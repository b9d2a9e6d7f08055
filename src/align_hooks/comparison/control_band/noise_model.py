"""Signed relative differences from the reference, the model of honest ones, and the detector of others, of constant work a step.

Two honest runs diverge by rounding: a difference has a part that comes with each batch, and a level that wanders and lasts for hundreds
of steps. That is the local level model (Durbin and Koopman, *Time Series Analysis by State Space Methods*, chapter 2). Its Kalman filter,
once settled, is exponential smoothing with one ``gain``; an innovation is a step's difference less the level before. In bfloat16 the
differences of repeats' losses are correlated by 0.14 from one step to the next and by 0.12 ten steps later, their innovations by 0.03 and
less (``python tests/longrun/judge.py``, last table).

Under the local level model an honest innovation is symmetric around 0, of the size that repeats show. It is cut at ``CUT`` sizes, and
then assumed no wider than a normal number whose variance is :func:`mean_square` times that of the repeats. So for each ``slope`` of
either sign ``exp(slope z - mean_square slope**2 / 2)`` is at most 1 on average. The Shiryaev-Roberts sum of their products over every
possible start is at most n on average after n steps, whatever the training does (e-detector: Shin, Ramdas and Rinaldo, *E-detectors: a
nonparametric framework for sequential change detection*, 2023). By Doob's inequality it reaches ``threshold`` within n steps with a
probability of at most n / threshold. ``tests/longrun/judge.py`` measures how many honest runs are called off."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from align_hooks.comparison.finding import Metric
from align_hooks.comparison.metrics.limits import Limits
from align_hooks.record.format.layout import Array
from align_hooks.record.reader import Run

NUMBERS = {"loss": Metric.LOSS, "grad_norm": Metric.GRAD_NORM}
"""Name in a row to metric of the numbers that have a band: those that no setting gives."""
PARTS_OF_ROUNDING = 3.0
"""The largest rounding over its usual size."""
GAINS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5)
CUT = 5.0
"""Times their usual size at which innovations are cut."""
AROUND = 15
"""Steps on either side whose innovations estimate the size of a step's: some batches are harder than others."""
SETTLED = 0.25
"""Part of the usual size of innovations before which rounding still grows, sooner in one honest run than in another."""
SLOPES = tuple(sign * slope for slope in (0.1, 0.2, 0.35, 0.5) for sign in (1, -1))
"""Small slopes find a small lasting drift, large ones a jump."""
FALSE_ALARMS = 0.01
"""Share of honest runs, as long as the reference, that may raise an alarm."""


def rounding(name: str, limits: Limits) -> float:
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


class NoiseLevel(Struct):
    """The current level of differences."""

    gain: float
    level: float = 0.0

    def innovation(self, difference: float, scale: float) -> float:
        """Return a step's difference less the level before it, and update the level."""
        new, most = difference - self.level, CUT * scale
        self.level += self.gain * max(-most, min(most, new))  # cut: one odd batch is no level
        return new


class NoiseModel(Struct, frozen=True):
    """Honest differences, estimated from repeats."""

    gain: float
    """Of their level."""
    scale: Array
    """Root mean square of the innovations around each step, fp64 ``[steps]``."""
    settled: int
    """Index of the first settled step."""
    repeats: int


def fit(repeats: Array, rounding: float = 0.0) -> NoiseModel:
    """Fit the model to differences of repeats, fp64 ``[repeats, steps]``, by the gain with the smallest innovations.

    ``rounding`` is the largest relative rounding of the number itself, whose usual size is the smallest scale."""
    steps = repeats.shape[1]
    if not steps or not repeats.any():
        return NoiseModel(GAINS[0], np.zeros(steps), steps, len(repeats))
    size = _around(np.square(repeats).mean(axis=0))
    tried = {gain: np.stack([innovations(repeat, gain, np.sqrt(size)) for repeat in repeats]) for gain in GAINS}
    settled = int(np.argmax(np.sqrt(size) >= SETTLED * np.sqrt(np.median(size))))
    usual = np.maximum(size[settled:], np.finfo(float).tiny)
    gain = min(GAINS, key=lambda each: float((np.square(tried[each][:, settled:]) / usual).mean()))
    scale = np.sqrt(_around(np.square(tried[gain]).mean(axis=0)))
    return NoiseModel(gain, np.maximum(scale, rounding / PARTS_OF_ROUNDING), settled, len(repeats))


def innovations(differences: Array, gain: float, scale: Array) -> Array:
    """Return the innovations of one run's differences, fp64 ``[steps]``, of the usual ``scale`` ``[steps]``."""
    level = NoiseLevel(gain)
    return np.array([level.innovation(*pair) for pair in zip(differences.tolist(), scale.tolist(), strict=True)])


def _around(squares: Array) -> Array:
    """Return the mean of each step and its neighbours, fp64 ``[steps]``."""
    padded = np.pad(squares, AROUND, mode="reflect" if len(squares) > AROUND else "edge")
    return np.asarray(np.lib.stride_tricks.sliding_window_view(padded, 2 * AROUND + 1).mean(axis=1))


def far(steps: int) -> float:
    """Return the size of a single innovation that is an alarm by itself, in a run of so many steps."""
    # as of tails that fall with the third power: where gradients explode, honest bfloat16 runs were up to 51 sizes off in 400 steps
    return 15 * math.exp(math.log(max(steps, 1)) / 3)


def mean_square(repeats: int) -> float:
    """Return the mean square of honest innovations, in units of the size that so many repeats show."""
    return 1.5 + 3.5 / repeats


def cost(slope: float, square: float) -> float:
    """Return what a step subtracts from a slope's exponent, where innovations have this mean square."""
    return square * slope**2 / 2


class Detector:
    """The evidence of a run's differences, step by step, that they are no honest ones."""

    def __init__(self, model: NoiseModel, false_alarms: float = FALSE_ALARMS) -> None:
        self.model = model
        self.evidence, self.enough = -math.inf, math.log(max(len(model.scale), 1) / false_alarms)
        """Logarithm of the sum of products, and that of an alarm."""
        self.start: int | None = None
        """The step from which a drift is likely; None before any sign."""
        self._level = NoiseLevel(model.gain)
        self._far = deque[int](maxlen=20)
        """The last steps with an innovation of the largest size."""
        self._costs = [cost(slope, mean_square(model.repeats)) for slope in SLOPES]
        """Subtracted from each slope's exponent at a step."""
        self._sums, self._runs = [-math.inf] * len(SLOPES), [0.0] * len(SLOPES)
        self._starts: list[int | None] = [None] * len(SLOPES)

    def see(self, step: int, place: int, difference: float) -> bool:
        """Add the difference of a step at index ``place`` of the model; return whether it raises an alarm, which unsettled steps do not."""
        scale = float(self.model.scale[place])
        new = self._level.innovation(difference, scale)
        if place < self.model.settled:
            return False
        size = max(-CUT, min(CUT, new / scale)) if scale > 0 else math.copysign(CUT, new) if new else 0.0
        for index, (slope, subtracted) in enumerate(zip(SLOPES, self._costs, strict=True)):
            gained = slope * size - subtracted
            self._sums[index] = float(np.logaddexp(self._sums[index], 0.0)) + gained
            if self._runs[index] <= 0:
                self._runs[index], self._starts[index] = 0.0, step
            self._runs[index] += gained
        best = max(range(len(SLOPES)), key=self._sums.__getitem__)
        mean = math.fsum(math.exp(each - self._sums[best]) for each in self._sums) / len(SLOPES)
        self.evidence, self.start = self._sums[best] + math.log(mean), self._starts[best]
        if abs(new) > far(len(self.model.scale)) * scale:
            self.evidence, self.start = max(self.evidence, self.enough), step
        self._far.extend([step] if abs(size) == CUT else [])
        while self.start is not None and self.start - 1 in self._far:  # far to the other side: a batch that spoilt what comes after it
            self.start -= 1
        return self.evidence >= self.enough


class Excursion(Struct, frozen=True):
    """Where differences left the band, by index."""

    start: int
    """First step that is off."""
    seen: int
    """Step of the alarm."""


def leaves(differences: Array, model: NoiseModel, false_alarms: float = FALSE_ALARMS) -> Excursion | None:
    """Return where a run's differences, fp64 ``[steps]``, leave the band; None where they never do."""
    detector = Detector(model, false_alarms)
    for index, difference in enumerate(differences.tolist()):
        if detector.see(index, index, difference):
            return Excursion(index if detector.start is None else detector.start, index)
    return None
