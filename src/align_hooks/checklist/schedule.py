"""A schedule: the rate of every step's update, from a configuration only; and how two schedules differ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from align_hooks.checklist.readings.lookup import Unstated, value_of
from align_hooks.configuration.values import Configuration
from align_hooks.messages import Argument, message

Floats = NDArray[np.float64]
MOST = 20_000
"""Steps of a schedule that are compared; of a longer one so many, evenly, and every one of its first thousand."""
FIRST = 1_000
RATE = 1e-6
"""Relative difference of two rates that count as one: MindFormers works them out in float32."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """The rate of every step."""

    rate: Callable[[Floats], Floats]
    """Step numbers to the rates that these steps' updates use, float64."""
    steps: int | None
    """The steps of the run; None where only its data has that."""
    text: Argument

    def at(self, steps: NDArray[np.int64]) -> Floats:
        """Return the rate of each of ``steps``; not finite where the formula gives no number, as the framework's own would not."""
        with np.errstate(all="ignore"):
            return self.rate(steps.astype(np.float64))


def sampled(steps: int) -> NDArray[np.int64]:
    """Return the steps at which schedules are compared."""
    if steps <= MOST:
        return np.arange(steps, dtype=np.int64)
    even: NDArray[np.int64] = np.linspace(0, steps - 1, MOST - FIRST).astype(np.int64)
    return np.union1d(np.arange(FIRST, dtype=np.int64), even)


def differences(reference: Schedule, candidate: Schedule) -> tuple[NDArray[np.int64], Floats]:
    """Return the steps that both make, and the :func:`relative_differences` of the two rates at these."""
    lengths = [schedule.steps for schedule in (reference, candidate) if schedule.steps]
    steps = sampled(min(lengths) if lengths else FIRST)
    return steps, relative_differences(reference.at(steps), candidate.at(steps))


def relative_differences(ours: Floats, theirs: Floats) -> Floats:
    """Return the relative difference of two rates of each step, ``[steps]``: 0 where both are 0, inf where either is no number."""
    numbers = np.isfinite(ours) & np.isfinite(theirs)
    ours, theirs = np.where(numbers, ours, 0.0), np.where(numbers, theirs, 0.0)
    scale = np.maximum(np.maximum(np.abs(ours), np.abs(theirs)), np.finfo(np.float64).tiny)
    peak = max(float(np.abs(ours).max(initial=0.0)), float(np.abs(theirs).max(initial=0.0)))
    error = np.abs(ours - theirs)
    return np.where(numbers, np.where(error <= peak * 1e-12, 0.0, error / scale), np.inf)


def needed(configuration: Configuration, key: str) -> float:
    """Return an argument of Megatron-LM that a schedule cannot do without.

    :raises Unknown: it is not set.
    """
    if (value := value_of(configuration, (key,), None)) is None:
        raise Unstated(message("untold.not_set", name="--" + key.replace("_", "-")))
    return float(value)
