"""The frameworks' names of curves, in ``tags.txt``.

Megatron-LM (``training_log``) logs the learning rate of the next step, and to TensorBoard and W&B the loss of the step itself, where its
text log has the mean since the line before. MindFormers logs in ``MFLossMonitor``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from align_hooks.data_file import sections

Names: TypeAlias = Mapping[str, tuple[str, ...]]
"""A quantity of a row to its names, the best first."""


@dataclass(frozen=True, slots=True)
class Tags:
    """The names that a framework gives to the quantities of a row."""

    side: str
    names: Names
    rate_of_next: bool = False
    """Whether a learning rate stands at the step before the one that uses it."""


def _names(head: str) -> Names:
    lines = (line.partition(": ") for line in SECTIONS[head])
    return {quantity: tuple(names.split(", ")) for quantity, _, names in lines}


SECTIONS = sections(Path(__file__).with_name("tags.txt"))
MEGATRON, MINDFORMERS = Tags("torch", _names("torch"), rate_of_next=True), Tags("ms", _names("ms"))
BY_HAND = _names("by hand")
"""Names in tables that people make."""
STEPS = _names("steps")["step"]
"""Columns that number the rows of a table."""
OF_SAMPLES = " vs samples"
"""Suffix, in both frameworks, of a curve over consumed samples."""
