"""Two configurations held against every row of the CheckList."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from align_hooks.checklist.change import change, harmless, named, usable
from align_hooks.checklist.held import ODD, Held, hold, same
from align_hooks.checklist.row import UNSET, Effect, Row
from align_hooks.checklist.tables import ROWS
from align_hooks.configuration.values import Configuration

NOT_WORTH = ("", None, False, 0, "none", UNSET)


class Outcome(Enum):
    """How a row came out; the value is what people read."""

    DIFFERENT = "differs"
    NOT_TOLD = "not told"
    ROUNDING = "differs in rounding"
    HARMLESS = "differs, without harm"
    SAME = "same"
    ALONE = "one side only"
    BY_HAND = "check by hand"
    UNUSED = "not used"


@dataclass(frozen=True, slots=True)
class Checked:
    """One row, both sides, and how it came out. ``why`` says what makes a difference harmless, or what is not told; ``change`` what to
    set where; ``advised`` is the guide's recommendation that a side does not keep to, with the sides that do not."""

    row: Row
    outcome: Outcome
    reference: Held
    candidate: Held
    why: str = ""
    change: str = ""
    advised: str = ""


def judge(reference: Configuration, candidate: Configuration, rows: Sequence[Row] = ROWS) -> tuple[Checked, ...]:
    """Every row, in the order of the CheckList."""
    held = {row.name: (hold(row, reference), hold(row, candidate)) for row in rows}
    return tuple(_judge(row, reference, candidate, held) for row in rows)


def _judge(row: Row, reference: Configuration, candidate: Configuration, held: Mapping[str, tuple[Held, Held]]) -> Checked:
    one, other = held[row.name]
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
        return Checked(row, Outcome.HARMLESS, one, other, why or "no number depends on it", "", advised)
    told_apart = row.tell(one.meaning, other.meaning) if row.tell is not None else ""
    outcome = Outcome.ROUNDING if row.effect is Effect.ROUNDING else Outcome.DIFFERENT
    return Checked(row, outcome, one, other, told_apart, change(row, reference, candidate, held), advised)


def _untold(row: Row, left: tuple[Configuration, Held], right: tuple[Configuration, Held], advised: str) -> Checked:
    (reference, one), (candidate, other) = left, right
    why = one.why or other.why
    if not why and one.meaning is UNSET and other.meaning is UNSET:
        return Checked(row, Outcome.BY_HAND if row.by_hand else Outcome.UNUSED, one, other, advised=advised)
    if row.by_hand:
        return Checked(row, Outcome.BY_HAND, one, other, why, advised=advised)
    if row.effect is not Effect.RESULT:
        return Checked(row, Outcome.HARMLESS, one, other, why or "one side does not say it, and no result depends on it", advised=advised)
    side, silent = ("reference", reference) if one.meaning is UNSET else ("candidate", candidate)
    names = usable(row.says(silent).keys, silent)
    how = f"; {named(names[0], silent)} would" if names else ""
    return Checked(row, Outcome.NOT_TOLD, one, other, why or f"the {side} does not say it{how}", advised=advised)


def _used(row: Row, held: Mapping[str, tuple[Held, Held]]) -> bool:
    name, _, wanted = row.when.partition("=")
    if not name:
        return True
    meanings = [one.meaning for one in held[name]]
    if wanted:
        return wanted in meanings
    return any(one not in NOT_WORTH for one in meanings)


def _advised(row: Row, *sides: tuple[Configuration, Held]) -> str:
    """The recommendation, and who does not keep to it; empty where all do, or nothing is known."""
    if row.advice is None:
        return ""
    each = zip(("reference", "candidate"), sides, strict=True)
    against = [name for name, (_, held) in each if held.meaning is not UNSET and not _keeps(row, held.meaning)]
    return f"{row.advice.text} (not so: {' and '.join(against)})" if against else ""


def _keeps(row: Row, meaning: Any) -> bool:
    assert row.advice is not None
    try:
        return bool(row.advice.keeps(meaning))
    except ODD:
        return False
