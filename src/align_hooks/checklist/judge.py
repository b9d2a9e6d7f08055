"""Two configurations held against every row of the CheckList."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from align_hooks.checklist.change import Change, change, harmless, named, usable
from align_hooks.checklist.held import ODD, Held, hold, same
from align_hooks.checklist.row import UNSET, Effect, Row
from align_hooks.checklist.tables import ROWS
from align_hooks.configuration.values import Configuration
from align_hooks.messages import Argument, Side, message

NOT_WORTH = ("", None, False, 0, "none", UNSET)


class Outcome(Enum):
    """How a row came out."""

    DIFFERENT = "different"
    NOT_TOLD = "not_told"
    ROUNDING = "rounding"
    HARMLESS = "harmless"
    SAME = "same"
    ALONE = "alone"
    BY_HAND = "by_hand"
    UNUSED = "unused"


@dataclass(frozen=True, slots=True)
class Checked:
    """One row, both sides, and how it came out. ``why`` says what makes a difference harmless, or what is not told; ``change`` what to
    set where; ``advised`` are the sides that do not keep to the guide's recommendation."""

    row: Row
    outcome: Outcome
    reference: Held
    candidate: Held
    why: Argument = None
    change: Change | None = None
    advised: tuple[Side, ...] = ()


def judge(reference: Configuration, candidate: Configuration, rows: Sequence[Row] = ROWS) -> tuple[Checked, ...]:
    """Every row, in the order of the CheckList."""
    held = {row.id: (hold(row, reference), hold(row, candidate)) for row in rows}
    return tuple(_judge(row, reference, candidate, held) for row in rows)


def _judge(row: Row, reference: Configuration, candidate: Configuration, held: Mapping[str, tuple[Held, Held]]) -> Checked:
    one, other = held[row.id]
    if not _used(row, held):
        return Checked(row, Outcome.UNUSED, one, other)
    advised = _advised(row, (reference, one), (candidate, other))
    if row.alone and reference.side != candidate.side:
        spoken = next((side for side in (one, other) if side.meaning is not UNSET), None)
        outcome = (
            Outcome.BY_HAND if row.by_hand and (spoken is None or spoken.meaning is None) else Outcome.ALONE if spoken else Outcome.UNUSED
        )
        return Checked(row, outcome, one, other, advised=advised)
    told = UNSET not in (one.meaning, other.meaning)
    if told and same(one.meaning, other.meaning):
        return Checked(row, Outcome.SAME, one, other, advised=advised)
    why = harmless(row, reference, candidate)
    if not told and not why:
        return _untold(row, (reference, one), (candidate, other), advised)
    if why or row.effect is Effect.NOTHING:
        return Checked(row, Outcome.HARMLESS, one, other, why or message("why.no_number"), None, advised)
    told_apart = row.tell(one.meaning, other.meaning) if row.tell is not None else None
    outcome = Outcome.ROUNDING if row.effect is Effect.ROUNDING else Outcome.DIFFERENT
    return Checked(row, outcome, one, other, told_apart, change(row, reference, candidate, held), advised)


def _untold(row: Row, left: tuple[Configuration, Held], right: tuple[Configuration, Held], advised: tuple[Side, ...]) -> Checked:
    (reference, one), (candidate, other) = left, right
    why = one.why or other.why
    if not why and one.meaning is UNSET and other.meaning is UNSET:
        return Checked(row, Outcome.BY_HAND if row.by_hand else Outcome.UNUSED, one, other, advised=advised)
    if row.by_hand:
        return Checked(row, Outcome.BY_HAND, one, other, why, advised=advised)
    if row.effect is not Effect.RESULT:
        return Checked(row, Outcome.HARMLESS, one, other, why or message("why.no_result"), advised=advised)
    side, silent = (Side.REFERENCE, reference) if one.meaning is UNSET else (Side.CANDIDATE, candidate)
    names = usable(row.says(silent).keys, silent)
    if not why:
        name = named(names[0], silent) if names else None
        why = message("why.untold_would", side=side, name=name) if name else message("why.untold", side=side)
    return Checked(row, Outcome.NOT_TOLD, one, other, why, advised=advised)


def _used(row: Row, held: Mapping[str, tuple[Held, Held]]) -> bool:
    name, _, wanted = row.when.partition("=")
    if not name:
        return True
    meanings = [one.meaning for one in held[name]]
    if wanted:
        return wanted in meanings
    return any(one not in NOT_WORTH for one in meanings)


def _advised(row: Row, *sides: tuple[Configuration, Held]) -> tuple[Side, ...]:
    """Who does not keep to the recommendation; none where there is none, or nothing is known."""
    if row.advice is None:
        return ()
    each = zip(Side, sides, strict=True)
    return tuple(side for side, (_, held) in each if held.meaning is not UNSET and not _keeps(row, held.meaning))


def _keeps(row: Row, meaning: Any) -> bool:
    assert row.advice is not None
    try:
        return bool(row.advice.keeps(meaning))
    except ODD:
        return False
