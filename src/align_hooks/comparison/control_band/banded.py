"""The numbers of a pair that have a band: long runs with repeats of the reference, judged over all their steps."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from align_hooks.comparison.control_band.detector import FALSE_ALARMS, Excursion, leaves
from align_hooks.comparison.control_band.drift import LEAST, DriftingSegment, drifts, is_installed
from align_hooks.comparison.control_band.noise_model import NUMBERS, PARTS_OF_ROUNDING, NoiseModel, differences, fit, of_rounding
from align_hooks.comparison.noise import Noise
from align_hooks.comparison.pair import Pair
from align_hooks.record.format.layout import Array

JUMP = 6.0
"""Times the usual size of an innovation by which a jump is off in one step."""


@dataclass(frozen=True)
class Banded:
    """One number's signed relative differences from the reference, all finite, with the model of honest ones."""

    name: str
    common: Array
    """Steps of all runs, int64 ``[steps]``."""
    candidate: Array
    """fp64 ``[steps]``"""
    repeats: Array
    """fp64 ``[repeats, steps]``"""
    model: NoiseModel
    rounding: float
    """The largest relative rounding of the number itself."""

    @cached_property
    def steps(self) -> frozenset[int]:
        """Return the steps that the band judges: those on which rounding has settled."""
        return frozenset(self.common[self.model.settled :].tolist())

    @cached_property
    def alarm(self) -> Excursion | None:
        """Return where the candidate leaves the band; None where it never does."""
        return leaves(self.candidate, self.model, FALSE_ALARMS / len(NUMBERS))

    @cached_property
    def drifts(self) -> tuple[DriftingSegment, ...]:
        """Return the run's parts, with mean difference and limit; empty where the library ``arch`` is not installed."""
        if not is_installed():
            return ()
        return tuple(drifts(self.candidate, self.repeats, self.model.settled, FALSE_ALARMS / len(NUMBERS), self.rounding))

    @property
    def start(self) -> int | None:
        """Return the step from which the candidate is likely off; None where it stays."""
        return None if self.alarm is None else int(self.common[self.alarm.start])

    @property
    def is_jump(self) -> bool:
        """Return whether the candidate leaves in one step, not little by little."""
        if self.alarm is None:
            return False
        index = self.alarm.start
        before = self.candidate[index - 1] if index else 0.0
        return bool(abs(self.candidate[index] - before) > JUMP * self.model.scale[index])


def banded(pair: Pair, noise: Noise) -> tuple[Banded, ...]:
    """Return the numbers that have a band; none without repeats that differ, or with too few settled steps."""
    if not noise.repeats or noise.problem:
        return ()
    found = []
    for name in NUMBERS:
        steps, series = differences(name, pair.reference, (pair.candidate, *noise.repeats))
        rounding = of_rounding(name, pair.limits)
        model = fit(series[1:], rounding / PARTS_OF_ROUNDING)
        if len(steps) - model.settled >= LEAST:
            found.append(Banded(name, steps, series[0], series[1:], model, rounding))
    return tuple(found)
