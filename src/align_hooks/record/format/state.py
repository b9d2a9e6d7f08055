"""What a step starts from beside weights, moments and generators: a row of scalars has a number or a digest of each.

A resumed run goes on as the unbroken one only where all of it was restored. Imports no framework; ``torch_side/state.py`` and
``ms_side/state.py`` list what there is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

StepState: TypeAlias = Mapping[str, float | str]
"""Name to a number, or to the digest of what has many."""

SAMPLES = "consumed samples"
SCHEDULER = "scheduler's steps"
UPDATES = "optimizer's updates"
GROWTH, HYSTERESIS = "steps towards a larger loss scale", "overflows left before a smaller loss scale"
BUFFER = "buffer "
"""Before the name of a buffer, whose digest it is."""
