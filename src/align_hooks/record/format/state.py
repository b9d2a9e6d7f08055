"""Training state besides weights, moments and generators, as numbers or digests in a row of scalars.

A resumed run equals the uninterrupted one only where all of this state was restored. Imports no framework;
``torch_side/state.py`` and ``ms_side/state.py`` list the state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

StepState: TypeAlias = Mapping[str, float | str]
"""Name to a number, or to the digest of a tensor."""

SAMPLES = "consumed samples"
SCHEDULER = "scheduler's steps"
UPDATES = "optimizer's updates"
GROWTH, HYSTERESIS = "steps towards a larger loss scale", "overflows left before a smaller loss scale"
BUFFER = "buffer "
"""Before the name of a buffer, or of FP8's scales and largest values, whose digest it is."""
EXPERT_BIAS = ".expert_bias"
"""Suffix of the name of an expert's bias among buffers."""
ABSENT = "absent"
"""In the place of a digest: the module has no scales yet."""
