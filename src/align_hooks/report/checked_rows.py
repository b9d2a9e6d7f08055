"""Rows of a check as the pages show them: of a check itself, and of a comparison beside its own configurations."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from align_hooks.checklist.judge import Checked, Outcome
from align_hooks.checklist.result import Checklist
from align_hooks.messages import Argument, Message
from align_hooks.report.check_text import FIRST, HEADS, reason


@dataclass(frozen=True, slots=True)
class Shown:
    """A row as a page shows it."""

    name: Argument
    values: tuple[Argument, Argument]
    places: tuple[Argument, Argument]
    change: Argument
    sources: str


Rows: TypeAlias = "tuple[Message, str, list[Shown]]"
"""A head, the end of its address, and its rows."""


def first_rows(checklist: Checklist) -> list[Rows]:
    """What a reader must see: what differs, and what is not told."""
    return groups(checklist, FIRST)


def other_rows(checklist: Checklist) -> list[Rows]:
    """The rest; what is to be checked by hand has a place of its own."""
    return groups(checklist, (outcome for outcome in Outcome if outcome not in (*FIRST, Outcome.BY_HAND)))


def groups(checklist: Checklist, outcomes: Iterable[Outcome]) -> list[Rows]:
    """Rows by how they came out, those outcomes that there are."""
    found = ((outcome, [shown(one, checklist) for one in checklist.of(outcome)]) for outcome in outcomes)
    return [(HEADS[outcome], outcome.name.lower(), rows) for outcome, rows in found if rows]


def shown(one: Checked, checklist: Checklist) -> Shown:
    """A row with both values and their places."""
    (ours, theirs), (one_side, other_side) = (one.reference, one.candidate), checklist.sides
    places = (ours.place_beside(one_side.source), theirs.place_beside(other_side.source))
    return Shown(one.row.name, (ours.shown, theirs.shown), places, reason(one), "; ".join(one.row.sources))
