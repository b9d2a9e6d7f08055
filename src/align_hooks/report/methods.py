"""How each number was made, a row a stage: what stands behind a report when somebody asks.

Every row says what was taken, of what, by which formula, and what it is held against; ``source`` is where that comes from.
"""

from __future__ import annotations

from dataclasses import dataclass

from align_hooks.compare.stages.registry import LADDER
from align_hooks.messages import Argument, Message, message


@dataclass(frozen=True, slots=True)
class Method:
    """How some numbers were made."""

    name: Argument
    how: Message
    source: Argument = None


METHODS = (
    Method(message("method.name_relative_error"), message("method.relative_error"), "align_hooks.compare.measures"),
    Method(message("method.name_limits"), message("method.limits"), "align_hooks.compare.limits, align_hooks.compare.noise, docs/zoo.md"),
    *(Method(stage.title, stage.method, stage.source) for stage in LADDER),
    Method(message("method.name_noise_band"), message("method.noise_band")),
)
