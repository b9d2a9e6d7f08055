"""The numbers of a pair that have a band: long runs with repeats of the reference, judged over all their steps."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from align_hooks.comparison.control_band.detector import FALSE_ALARMS, Excursion, leaves
from align_hooks.comparison.control_band.drift import LEAST, DriftingSegment, drifts, is_installed
from align_hooks.comparison.control_band.level import Honest, honest
from align_hooks.comparison.control_band.series import NUMBERS, PARTS_OF_ROUNDING, Series, differences, of_rounding
from align_hooks.comparison.noise import Noise
from align_hooks.comparison.pair import Pair


@dataclass(frozen=True)
class Banded:
    """One number's differences, with the model of honest ones."""

    series: Series
    model: Honest
    rounding: float
    """The most that the number's own rounding makes, relative."""

    @cached_property
    def steps(self) -> frozenset[int]:
        """Return the steps that the band judges: those on which rounding has settled."""
        return frozenset(self.series.steps[self.model.settled :].tolist())

    @cached_property
    def alarm(self) -> Excursion | None:
        """Return where the candidate leaves the band; None where it never does."""
        return leaves(self.series.candidate, self.model, FALSE_ALARMS / len(NUMBERS))

    @cached_property
    def drifts(self) -> tuple[DriftingSegment, ...]:
        """Return the run's parts, with mean difference and limit; empty where the library ``arch`` is not installed."""
        if not is_installed():
            return ()
        differences = self.series.candidate, self.series.repeats
        return tuple(drifts(*differences, self.model.settled, FALSE_ALARMS / len(NUMBERS), self.rounding))

    @property
    def start(self) -> int | None:
        """Return the step from which the candidate is likely off; None where it stays."""
        return None if self.alarm is None else int(self.series.steps[self.alarm.start])

    @property
    def is_jump(self) -> bool:
        """Return whether the candidate leaves in one step, not little by little."""
        if self.alarm is None:
            return False
        index = self.alarm.start
        before = self.series.candidate[index - 1] if index else 0.0
        return bool(abs(self.series.candidate[index] - before) > JUMP * self.model.scale[index])


JUMP = 6.0
"""Times the usual size of an innovation by which a jump is off in one step."""


def banded(pair: Pair, noise: Noise) -> tuple[Banded, ...]:
    """Return the numbers that have a band; none without repeats that differ, or with too few settled steps."""
    if not noise.repeats or noise.problem:
        return ()
    found = []
    for name in NUMBERS:
        steps, apart = differences(name, pair.reference, (pair.candidate, *noise.repeats))
        of_number = Series(name, steps, apart[0], apart[1:])
        rounding = of_rounding(name, pair.limits)
        model = honest(of_number.repeats, rounding / PARTS_OF_ROUNDING)
        if len(of_number.steps) - model.settled >= LEAST:
            found.append(Banded(of_number, model, rounding))
    return tuple(found)
