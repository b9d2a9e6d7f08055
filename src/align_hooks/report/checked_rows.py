"""Rows of a check as the pages show them: of a check itself, and of a comparison beside its own configurations."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from align_hooks.checklist.judge import Checked, Outcome
from align_hooks.checklist.result import Checklist
from align_hooks.report.check_text import FIRST, HEADS, place
from align_hooks.report.text import plain


@dataclass(frozen=True, slots=True)
class Shown:
    """A row as a page shows it."""

    name: str
    values: tuple[str, str]
    places: tuple[str, str]
    change: str
    sources: str


Group = tuple[str, str, list[Shown]]
"""A head, the end of its address, and its rows."""


def first_rows(checklist: Checklist) -> list[Group]:
    """What a reader must see: what differs, and what is not told."""
    return groups(checklist, FIRST)


def other_rows(checklist: Checklist) -> list[Group]:
    """The rest; what is to be checked by hand has a place of its own."""
    return groups(checklist, (outcome for outcome in Outcome if outcome not in (*FIRST, Outcome.BY_HAND)))


def groups(checklist: Checklist, outcomes: Iterable[Outcome]) -> list[Group]:
    """Rows by how they came out, those outcomes that there are."""
    found = ((outcome, [shown(one, checklist) for one in checklist.of(outcome)]) for outcome in outcomes)
    return [(HEADS[outcome], outcome.name.lower(), rows) for outcome, rows in found if rows]


def shown(one: Checked, checklist: Checklist) -> Shown:
    """A row with both values and their places."""
    held = (one.reference, one.candidate)
    return Shown(
        plain(one.row.name),
        (plain(held[0].shown), plain(held[1].shown)),
        (plain(place(held[0].where, checklist.sides[0])), plain(place(held[1].where, checklist.sides[1]))),
        plain("; ".join(filter(None, (one.why, one.change)))),
        "; ".join(one.row.sources),
    )
