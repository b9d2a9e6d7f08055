"""The numbers of a pair that have a band: long runs with repeats of the reference, judged step by step, and by means of their parts.

A mean's error is estimated by the stationary bootstrap (Politis and Romano 1994) in blocks of the series' own length (Politis and White
2004; Patton, Politis and White 2009), both of the library ``arch``: a test for independent numbers would see a fault in every long pair.
Honest runs also differ by levels that outlast a part (by 16 such errors between repeats in bfloat16), so the repeats' own means count
too, by Student's t. Training is not stationary, so a run is cut into parts, without its unsettled beginning."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from functools import cached_property
from importlib.util import find_spec
from itertools import pairwise

import numpy as np
from msgspec import Struct

from align_hooks.comparison.control_band.noise_model import FALSE_ALARMS, NUMBERS, Excursion, NoiseModel, differences, fit, leaves, rounding
from align_hooks.comparison.metrics.measures import root_mean_square
from align_hooks.comparison.noise import Noise
from align_hooks.comparison.pair import Pair
from align_hooks.record.format.layout import Array

PARTS = 4
"""Parts into which a curve is cut."""
LEAST = 50
"""Steps of a part from which its error can be estimated."""
MOST = 2000
"""Numbers drawn from; a longer part is reduced to means of neighbours, which keep its mean."""
DRAWS = 500
"""Draws of the bootstrap."""
JUMP = 6.0
"""Times the usual size of an innovation by which a jump is off in one step."""


class Banded(Struct, frozen=True, dict=True):
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
        largest = rounding(name, pair.limits)
        model = fit(series[1:], largest)
        if len(steps) - model.settled >= LEAST:
            found.append(Banded(name, steps, series[0], series[1:], model, largest))
    return tuple(found)


class DriftingSegment(Struct, frozen=True):
    """The mean difference of a part of a curve."""

    start: int
    """Index of the first step."""
    stop: int
    """Index behind the last step."""
    mean: float
    limit: float
    """The largest honest size of the mean."""


def drifts(
    candidate: Array, repeats: Array, settled: int, false_alarms: float = FALSE_ALARMS, least: float = 0.0
) -> Iterator[DriftingSegment]:
    """Yield every part of a candidate's signed relative differences, fp64 ``[steps]``, from the index ``settled`` on.

    ``repeats`` is ``[repeats, steps]``. At most ``false_alarms`` of honest runs exceed a limit, which is at least ``least``."""
    from scipy.stats import t as student

    edges = parts(settled, candidate.size)
    means = [repeats[:, start:stop].mean(axis=1) for start, stop in edges]
    usual = root_mean_square(np.concatenate(means)) if means else 0.0  # of all parts: a single one may happen to be small
    for (start, stop), others in zip(edges, means, strict=True):
        within = max(error_of_mean(series[start:stop]) for series in (candidate, *repeats))
        times = float(student.isf(false_alarms / len(edges) / 2, 2 * len(others)))
        limit = max(times * max(root_mean_square(others), usual, within), least)
        yield DriftingSegment(start, stop, float(candidate[start:stop].mean()), limit)


def is_installed() -> bool:
    """Return whether the library that estimates a mean's error is installed."""
    return find_spec("arch") is not None


def parts(start: int, stop: int) -> list[tuple[int, int]]:
    """Return the parts of steps [start, stop): fewer than :data:`PARTS` where they would be too short."""
    count = min(PARTS, (stop - start) // LEAST)
    return list(pairwise(np.linspace(start, stop, count + 1).astype(int).tolist())) if count else []


def error_of_mean(series: Array) -> float:
    """Return the standard error of the mean of an autocorrelated series."""
    from arch.bootstrap import StationaryBootstrap, optimal_block_length

    together = -(-len(series) // MOST)
    series = series[: len(series) // together * together].reshape(-1, together).mean(axis=1)
    if not series.std() > 0:
        return 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a series without correlation
        block = float(optimal_block_length(series)["stationary"].iloc[0])
    block = min(max(block, 1.0), len(series) / 3) if math.isfinite(block) else len(series) / 3
    drawn = StationaryBootstrap(block, series, seed=0).apply(np.mean, DRAWS)
    return float(drawn.std(ddof=1))
