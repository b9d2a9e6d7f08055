"""Rows of scalars that were made of another tool's file, whichever tool that was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

Row: TypeAlias = dict[str, float | bool | None]
"""A row of scalars by the keys of a record."""
REQUIRED = ("loss", "objective_loss", "valid_tokens", "grad_norm", "clip_coefficient", "learning_rate", "skipped")
"""Keys of a row that a record always has, None where they are unknown."""


def row_of(step: int, **said: float | bool | None) -> Row:
    """Return the row of a step with what was ``said`` of it: whatever a record has beside that is unknown."""
    return {"step": step, **dict.fromkeys(REQUIRED), **said}


@dataclass(frozen=True)
class Scalars:
    """``side`` is ``torch`` or ``ms``. ``rows`` are as a record keeps them, ascending.

    ``resolution`` is half of the last digit of ``loss`` and ``grad_norm``, the largest of all rows, and that of ``learning_rate`` relative
    to each. ``notes`` say what a reader should know.
    """

    side: str
    rows: list[Row]
    resolution: Mapping[str, float]
    notes: list[str] = field(default_factory=list)
