"""A stage with the function that compares."""

from __future__ import annotations

from collections.abc import Callable

from align_hooks.comparison.context import ComparisonContext
from align_hooks.comparison.stage_result import Phase, StageInfo, StageResult

Compare = Callable[[ComparisonContext], StageResult | None]
"""Compares one stage; returns None where neither model has anything of its kind."""


class Stage(StageInfo, frozen=True, kw_only=True):
    """A stage with the function that compares."""

    compare: Compare


def stage(name: str, phase: Phase = Phase.BEFORE_ALL, **facts: object) -> Callable[[Compare], Stage]:
    """Make a stage of a function that compares; ``facts`` are fields of :class:`.stage_result.StageInfo`."""
    return lambda compare: Stage(name, phase, compare=compare, **facts)  # type: ignore[arg-type]
