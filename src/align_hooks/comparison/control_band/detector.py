"""Find the first step from which a run's differences are no honest ones: an e-detector, of constant work a step.

Under the local level model an honest innovation is symmetric around 0, of the size that repeats show. It is cut at ``CUT`` sizes, and
then assumed no wider than a normal number whose variance is :func:`mean_square` times that of the repeats. So for each ``slope`` of
either sign ``exp(slope z - mean_square slope**2 / 2)`` is at most 1 on average. The Shiryaev-Roberts sum of their products over every
possible start is at most n on average after n steps, whatever the training does (e-detector: Shin, Ramdas and Rinaldo, *E-detectors: a
nonparametric framework for sequential change detection*, 2023). By Doob's inequality it reaches ``threshold`` within n steps with a
probability of at most n / threshold. ``tests/longrun/judge.py`` measures how many honest runs are called off."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from align_hooks.comparison.control_band.noise_model import CUT, NoiseLevel, NoiseModel
from align_hooks.record.format.layout import Array

SLOPES = tuple(sign * slope for slope in (0.1, 0.2, 0.35, 0.5) for sign in (1, -1))
"""Small slopes find a small lasting drift, large ones a jump."""
FALSE_ALARMS = 0.01
"""Share of honest runs, as long as the reference, that may raise an alarm."""


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


@dataclass(slots=True)
class Detector:
    """The evidence of a run's differences, step by step, that they are no honest ones."""

    model: NoiseModel
    false_alarms: float = FALSE_ALARMS
    evidence: float = -math.inf
    """Logarithm of the sum of products."""
    start: int | None = None
    """The step from which a drift is likely; None before any sign."""
    enough: float = field(init=False)
    """The evidence of an alarm."""
    _level: NoiseLevel = field(init=False)
    _far: deque[int] = field(default_factory=lambda: deque(maxlen=20))
    """The last steps with an innovation of the largest size."""
    _costs: list[float] = field(init=False)
    """Subtracted from each slope's exponent at a step."""
    _sums: list[float] = field(default_factory=lambda: [-math.inf] * len(SLOPES))
    _runs: list[float] = field(default_factory=lambda: [0.0] * len(SLOPES))
    _starts: list[int | None] = field(default_factory=lambda: [None] * len(SLOPES))

    def __post_init__(self) -> None:
        self._level = NoiseLevel(self.model.gain)
        self._costs = [cost(slope, mean_square(self.model.repeats)) for slope in SLOPES]
        self.enough = math.log(max(len(self.model.scale), 1) / self.false_alarms)

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


@dataclass(frozen=True, slots=True)
class Excursion:
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
