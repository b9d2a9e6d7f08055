"""How honest differences go on: the model that both tests of a band rest on.

Two honest runs part by rounding, and go on apart: a difference has a part that comes with each batch, and a level that wanders and lasts
for hundreds of steps. That is the local level model (Durbin and Koopman, *Time Series Analysis by State Space Methods*, chapter 2). Its
Kalman filter, once settled, is exponential smoothing with one ``gain``; what is left of a step after the level before it is its innovation.
In bfloat16 the differences of repeats' losses are correlated by 0.14 from one step to the next and by 0.12 ten steps apart, their
innovations by 0.03 and less (``python tests/longrun/judge.py``, last table).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from align_hooks.record.format.layout import Array

GAINS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5)
CUT = 5.0
"""Times their usual size; innovations count no further."""
AROUND = 15
"""Steps on either side whose innovations tell the size of those of a step: some batches are harder than others."""
SETTLED = 0.25
"""Of the usual size of innovations: before they have it, rounding still grows, sooner in one honest run than in another."""


@dataclass(slots=True)
class Level:
    """The level of differences as far as they are known."""

    gain: float
    level: float = 0.0

    def innovation(self, difference: float, scale: float) -> float:
        """What a step's difference adds to what was known before it. The level takes its part of that, of no more than ``CUT`` times the
        usual ``scale``: one odd batch is no level."""
        new, most = difference - self.level, CUT * scale
        self.level += self.gain * max(-most, min(most, new))
        return new


@dataclass(frozen=True, slots=True)
class Honest:
    """What repeats show of honest differences: the ``gain`` of their level, the ``scale`` (root mean square) of the innovations around each
    step, fp64 ``[steps]``, the index of the first step at which they have ``settled``, and how many ``repeats`` show it."""

    gain: float
    scale: Array
    settled: int
    repeats: int


def honest(repeats: Array, floor: float = 0.0) -> Honest:
    """Fit the model to the differences of repeats, fp64 ``[repeats, steps]``: the gain whose innovations are smallest, each beside its
    neighbours. No innovation is taken for smaller than ``floor``, which is what rounding does to the number itself."""
    steps = repeats.shape[1]
    if not steps or not repeats.any():
        return Honest(GAINS[0], np.zeros(steps), steps, len(repeats))
    size = around(np.square(repeats).mean(axis=0))
    tried = {gain: np.stack([innovations(repeat, gain, np.sqrt(size)) for repeat in repeats]) for gain in GAINS}
    settled = int(np.argmax(np.sqrt(size) >= SETTLED * np.sqrt(np.median(size))))
    seen = np.maximum(size[settled:], np.finfo(float).tiny)
    gain = min(GAINS, key=lambda each: float((np.square(tried[each][:, settled:]) / seen).mean()))
    scale = np.sqrt(around(np.square(tried[gain]).mean(axis=0)))
    return Honest(gain, np.maximum(scale, floor), settled, len(repeats))


def innovations(differences: Array, gain: float, scale: Array) -> Array:
    """The innovations of one run's differences, fp64 ``[steps]``, of the usual ``scale`` ``[steps]``."""
    level = Level(gain)
    return np.array([level.innovation(*pair) for pair in zip(differences.tolist(), scale.tolist(), strict=True)])


def around(squares: Array) -> Array:
    """The mean of each step and of its neighbours, fp64 ``[steps]``."""
    padded = np.pad(squares, AROUND, mode="reflect" if len(squares) > AROUND else "edge")
    mean: Array = np.lib.stride_tricks.sliding_window_view(padded, 2 * AROUND + 1).mean(axis=1)
    return mean
