"""What a stage of the ladder is: what it compares, and what a difference means that shows there first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from align_hooks.comparison.verdict import Place, StageResult
from align_hooks.messages import Argument, Message, message

if TYPE_CHECKING:
    from align_hooks.comparison.ladder import Ladder

Compare = Callable[["Ladder"], "StageResult | None"]
"""The work of a stage; None where there is nothing of its kind in either model."""


class Phase(IntEnum):
    """When in its step a stage's difference comes about. The first member is of the whole record, the last of all steps together."""

    BEFORE_ALL = -1
    START = 0
    FORWARD = 1
    BACKWARD = 2
    UPDATE = 3
    AFTER_ALL = 4


@dataclass(frozen=True)
class Stage:
    """One stage of the ladder; ``compare`` does its work.

    ``place`` is where a fault sits that shows in this stage first, None where that takes a second look. ``draws``: the numbers depend on
    random ones. ``is_of_tensors``: there is one finding a tensor. ``is_pictured``: these make a picture of the model.
    ``is_before_numbers``: no number of either model is needed. ``decides`` is False of a stage that alone makes no pair aligned: its
    numbers follow from the others, or drift, or there was nothing yet. ``source`` is where its method is from.
    """

    name: str
    compare: Compare
    phase: Phase = Phase.BEFORE_ALL
    place: Place | None = None
    draws: bool = False
    is_of_tensors: bool = False
    is_pictured: bool = False
    is_before_numbers: bool = False
    decides: bool = True
    source: Argument = ""

    @property
    def id(self) -> str:
        """The end of the ids of its words."""
        return "".join(letter if letter.isalnum() else "_" for letter in self.name)

    @property
    def title(self) -> Message:
        """Its name in words."""
        return message(f"stage.{self.id}")

    @property
    def method(self) -> Message:
        """How its numbers are made."""
        return message(f"method.{self.id}")


def stage(name: str, phase: Phase = Phase.BEFORE_ALL, **facts: object) -> Callable[[Compare], Stage]:
    """Make a stage of the function that compares; ``facts`` are those of :class:`Stage`."""
    return lambda compare: Stage(name, compare, phase, **facts)  # type: ignore[arg-type]
