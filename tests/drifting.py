"""Losses of long runs as honest runs differ: a level that wanders, and a part that comes with each batch, larger with hard ones."""

from pathlib import Path

import numpy as np

from align_hooks import Run, open_run
from synthetic import Array, scalars_only

STEPS = 400
NOISE, WANDERS, BACK = 1e-3, 1.5e-4, 0.995
"""Relative size of the part of a batch, of a step of the level, and how much of the level the next step keeps: as repeats in bfloat16
show it."""


def differences(seed: int, steps: int = STEPS, hard: Array | None = None) -> Array:
    """Signed relative differences of one honest run; ``hard`` is how hard each batch is, which all runs share."""
    random = np.random.default_rng(seed)
    size = NOISE * (hardness(0, steps) if hard is None else hard)
    levels, level = np.zeros(steps), 0.0
    for step in range(steps):
        level = BACK * level + WANDERS * random.standard_normal()
        levels[step] = level
    return levels + size * random.standard_t(5, steps)


def hardness(seed: int, steps: int = STEPS) -> Array:
    """How hard each batch is: log-normal, the same for all runs of one data."""
    return np.exp(0.5 * np.random.default_rng(10_000 + seed).standard_normal(steps))


def losses(apart: Array) -> list[float]:
    """Losses that are so far from a curve that falls."""
    curve = 2 + 3 * np.exp(-np.arange(len(apart)) / 100)
    return (curve * (1 + apart)).tolist()


def recorded(path: Path, apart: Array) -> Run:
    """A run with those losses, and nothing else."""
    return open_run(scalars_only(losses(apart)).write(path))
