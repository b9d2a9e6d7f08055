"""A schedule: what an update uses at every step, from what a side was told, with nothing trained; and how two of them differ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from align_hooks.configuration.values import Configuration
from align_hooks.messages import Argument, message

Floats = NDArray[np.float64]
MOST = 20_000
"""Steps of a schedule that are compared; of a longer one so many, evenly, and every one of its first thousand."""
FIRST = 1_000
RATE = 1e-6
"""Relative difference of two rates that count as one: MindFormers works them out in float32."""


class NotTold(Exception):
    """A schedule needs something that the configuration does not say; ``why`` says what."""

    def __init__(self, why: Argument) -> None:
        super().__init__(why)
        self.why = why


@dataclass(frozen=True, slots=True)
class Schedule:
    """A rate a step: ``rate`` takes step numbers (int64) and gives the rate used by each step's update (float64).

    ``steps`` is how many the run makes, None where only its data tells; ``text`` says the schedule.
    """

    rate: Callable[[Floats], Floats]
    steps: int | None
    text: Argument

    def at(self, steps: NDArray[np.int64]) -> Floats:
        """The rate of each of ``steps``; not finite where the formula gives no number, as the framework's own would not."""
        with np.errstate(all="ignore"):
            return self.rate(steps.astype(np.float64))


def sampled(steps: int) -> NDArray[np.int64]:
    """The steps at which schedules are compared."""
    if steps <= MOST:
        return np.arange(steps, dtype=np.int64)
    found: NDArray[np.int64] = np.unique(np.concatenate([np.arange(FIRST), np.linspace(0, steps - 1, MOST - FIRST).astype(np.int64)]))
    return found


def differences(one: Schedule, other: Schedule) -> tuple[NDArray[np.int64], Floats]:
    """The steps that both make, and the relative difference of the two rates at each: 0 where both are 0, inf where one is no number."""
    lengths = [schedule.steps for schedule in (one, other) if schedule.steps]
    steps = sampled(min(lengths) if lengths else FIRST)
    ours, theirs = one.at(steps), other.at(steps)
    numbers = np.isfinite(ours) & np.isfinite(theirs)
    ours, theirs = np.where(numbers, ours, 0.0), np.where(numbers, theirs, 0.0)
    scale = np.maximum(np.maximum(np.abs(ours), np.abs(theirs)), np.finfo(np.float64).tiny)
    peak = max(float(np.abs(ours).max(initial=0.0)), float(np.abs(theirs).max(initial=0.0)))
    apart = np.abs(ours - theirs)
    return steps, np.where(numbers, np.where(apart <= peak * 1e-12, 0.0, apart / scale), np.inf)


def value_of(configuration: Configuration, keys: tuple[str, ...], default: Any = None) -> Any:
    """The value of the first key that is set, as a number where it is one.

    :raises NotTold: it is set, and only a run knows it.
    """
    found = configuration.find(keys)
    if found is None:
        return default
    if found.unknown:
        raise NotTold(found.unknown)
    if isinstance(found.value, str):
        try:
            return float(found.value)
        except ValueError:
            return found.value
    return found.value


def needed(configuration: Configuration, key: str, shown: str) -> Any:
    """A value that a schedule cannot do without.

    :raises NotTold: it is not set.
    """
    value = value_of(configuration, (key,))
    if value is None:
        raise NotTold(message("untold.not_set", name=shown))
    return value
