"""A stage of the ladder: what it compares, and the function that does its work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from align_hooks.comparison.context import ComparisonContext
from align_hooks.comparison.stage_result import Phase, StageInfo, StageResult

Compare = Callable[[ComparisonContext], StageResult | None]
"""The work of a stage; None where there is nothing of its kind in either model."""


@dataclass(frozen=True, kw_only=True)
class Stage(StageInfo):
    """A stage of the ladder, with the function that does its work."""

    compare: Compare


def stage(name: str, phase: Phase = Phase.BEFORE_ALL, **facts: object) -> Callable[[Compare], Stage]:
    """Make a stage of the function that compares; ``facts`` are those of :class:`.stage_result.StageInfo`."""
    return lambda compare: Stage(name, phase, compare=compare, **facts)  # type: ignore[arg-type]
