"""Two configurations held against every row of the CheckList."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeAlias

from align_hooks.checklist.change import SuggestedEdit, named
from align_hooks.checklist.meaning import ValueOrigin
from align_hooks.checklist.mend import Values, answer, applied, is_asked, mend, missing
from align_hooks.checklist.row import MODEL, UNSET, CheckRow, Edits, Effect, Looks, Recommendation
from align_hooks.checklist.side_value import ODD, SideValue, read_row, same
from align_hooks.checklist.tables import ROWS
from align_hooks.checklist.writable import usable
from align_hooks.configuration.values import MINDFORMERS, Configuration, Setting
from align_hooks.messages import Argument, Message, Side, message

LENGTH, BATCH = "train-iters", "global_batch_size"
"""The rows of the length of a run, and of what its samples may be divided by."""
Held: TypeAlias = tuple[Configuration, SideValue]
"""A side, and what it holds of a row."""


class RowOutcome(Enum):
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
class JudgedRow:
    """One row, both sides, and how it came out. ``why`` says what makes a difference harmless, or what is not told. ``change`` says what
    to set where. ``advised`` are the sides that do not keep to the guide's recommendation."""

    row: CheckRow
    outcome: RowOutcome
    reference: SideValue
    candidate: SideValue
    why: Argument = None
    change: SuggestedEdit | None = None
    advised: tuple[Side, ...] = ()

    @property
    def by_hand(self) -> Argument:
        """How to check the row by hand, in general or because of these two sides; None where there is nothing to say."""
        return self.row.by_hand or (self.why if self.outcome is RowOutcome.BY_HAND else None)


def judge(
    reference: Configuration,
    candidate: Configuration,
    rows: Sequence[CheckRow] = ROWS,
    looks: Looks = (None, None),
    *,
    weigh_alike: bool | None = None,
    repairs: Edits | None = None,
) -> tuple[JudgedRow, ...]:
    """Every row, in the order of the CheckList; ``looks`` are at the recorded batches of both sides. ``weigh_alike`` says whether both runs
    weigh the tokens of these alike, None where nobody looked; ``repairs`` are what the candidate needs to be taken at all."""
    values = {row.id: (read_row(row, reference), read_row(row, candidate)) for row in rows}
    checked = [weighed(_judge(row, reference, candidate, values, looks), weigh_alike) for row in rows]
    told = [row for row in checked if UNSET not in (row.reference.meaning, row.candidate.meaning)]
    apart = [row.row for row in told if row.outcome in (RowOutcome.DIFFERENT, RowOutcome.ROUNDING)]
    changes = mend(reference, applied(candidate, repairs or {}), values, apart)
    mended = applied(candidate, {edit.key: edit.value for change in changes.values() if change.keeps for edit in change.edits})
    further = mend(reference, mended, values, [row.row for row in checked if may_be_told(row, candidate)])
    told_now = {name: (change, message("why.untold", side=Side.CANDIDATE)) for name, change in further.items() if change.keeps}
    both = [(row, *told_now.get(row.row.id, (changes.get(row.row.id), row.why))) for row in checked]
    advised = tuple(replace(row, change=change, why=why) for row, change, why in both)
    batch = next((row for row in advised if row.row.id == BATCH and row.outcome is RowOutcome.NOT_TOLD), None)
    return tuple(_length(row, batch, reference, candidate, mended, values) if row.row.id == LENGTH else row for row in advised)


def _length(
    checked: JudgedRow, batch: JudgedRow | None, reference: Configuration, candidate: Configuration, mended: Configuration, values: Values
) -> JudgedRow:
    """Return the row of a run's length, which differs where the candidate's other changes take it to another length than the reference's:
    a larger batch leaves fewer steps of as many samples. What a ``batch`` that is not told makes of these is not known."""
    mended = replace(mended, used=set())
    wanted, before, after = checked.reference.meaning, checked.candidate.meaning, read_row(checked.row, mended).meaning
    if candidate.facts is not None or UNSET in (wanted, before, after):
        return checked
    if batch is not None and checked.outcome is RowOutcome.SAME and not mended.used.isdisjoint(batch.row.says(candidate).keys):
        return replace(checked, outcome=RowOutcome.HARMLESS, why=batch.why)
    if same(before, after) or same(wanted, after):
        return checked
    change = mend(reference, mended, values, [checked.row])[LENGTH]
    why = message("why.length", before=before, after=after, wanted=wanted)  # type: ignore[arg-type]
    return replace(checked, outcome=RowOutcome.DIFFERENT, why=why, change=change)


def may_be_told(checked: JudgedRow, candidate: Configuration) -> bool:
    """Whether a MindFormers candidate merely lacks what the reference says. Of a model's structure its class may say it."""
    why, structure = checked.why, any(key.startswith((MODEL, "moe_config.")) for key in checked.row.mindformers.keys)
    silent = isinstance(why, Message) and why.id == "why.untold_would" and why.arguments["side"] is Side.CANDIDATE
    return checked.outcome is RowOutcome.NOT_TOLD and silent and candidate.side == MINDFORMERS and not structure


def _judge(row: CheckRow, reference: Configuration, candidate: Configuration, values: Values, looks: Looks) -> JudgedRow:
    ours, theirs = values[row.id]
    asked = is_asked(row, values[row.depends_on]) if row.depends_on else True
    if asked is False:
        return JudgedRow(row, RowOutcome.UNUSED, ours, theirs)
    known = [value.meaning for value in (ours, theirs) if value.meaning is not UNSET]
    kept = answer(row.advice.kept_by, reference, candidate) if row.advice is not None else None
    advised = () if kept else tuple(side for side, value in zip(Side, (ours, theirs), strict=True) if not _keeps(row.advice, value.meaning))
    outcome = RowOutcome.SAME
    why: Argument = None
    if row.alone and reference.side != candidate.side:
        outcome = RowOutcome.BY_HAND if row.by_hand and known[:1] in ([], [None]) else RowOutcome.ALONE if known else RowOutcome.UNUSED
    elif len(known) < 2 or not same(*known):
        outcome, why = _apart(row, (reference, ours), (candidate, theirs), looks)
    if asked is None and outcome in (RowOutcome.DIFFERENT, RowOutcome.ROUNDING, RowOutcome.NOT_TOLD):
        outcome, why = _undecided(row, next(value.why for value in values[row.depends_on] if value.why))
    return JudgedRow(row, outcome, ours, theirs, why, advised=advised)


def weighed(checked: JudgedRow, alike: bool | None) -> JudgedRow:
    """The same of a row that says how tokens weigh, by what recorded batches show: it does no harm where these weigh alike, and is more
    than rounding where they do not."""
    if not checked.row.weighs or alike is None:
        return checked
    if alike and checked.outcome is RowOutcome.DIFFERENT:
        return replace(checked, outcome=RowOutcome.HARMLESS, why=message("why.weighed_alike"))
    if not alike and checked.outcome is RowOutcome.ROUNDING:
        return replace(checked, outcome=RowOutcome.DIFFERENT, why=message("why.weighed_otherwise"))
    return checked


def _apart(row: CheckRow, ours: Held, theirs: Held, looks: Looks) -> tuple[RowOutcome, Argument]:
    """How a row comes out of which the two sides do not say the same, and why."""
    (reference, one), (candidate, other) = ours, theirs
    seen = answer(row.batches, looks, reference, candidate) if any(looks) else None
    why = answer(row.unless, reference, candidate) or (seen.words if seen is not None and seen.harmless else None)
    if why:
        return RowOutcome.HARMLESS, why
    if UNSET in (one.meaning, other.meaning):
        proof = answer(row.proof, reference, candidate)
        return (RowOutcome.DIFFERENT, proof) if proof is not None else _untold(row, ours, theirs)
    if row.effect is Effect.NOTHING:
        return RowOutcome.HARMLESS, message("why.no_number")
    if (unknown := missing(row, reference, candidate)) is not None:
        return _undecided(row, unknown)
    told = row.tell(one.meaning, other.meaning) if row.tell is not None else None
    if row.effect is Effect.ROUNDING:
        return RowOutcome.ROUNDING, told
    gap = _gap(row, ours, theirs)
    if gap is not None:
        return RowOutcome.NOT_TOLD, message("why.gap", gap=gap)
    if doubt := answer(row.unsure, reference, candidate):
        return RowOutcome.BY_HAND, doubt
    return RowOutcome.DIFFERENT, told or (seen.words if seen is not None else None)


def _gap(row: CheckRow, *sides: Held) -> Argument:
    """Where a side that is at its default may say otherwise, which was not followed; None where nothing of it may."""
    for configuration, value in sides:
        says, bounded = row.says(configuration), configuration.bounded
        names = {*says.keys, *says.beside}
        for gap in configuration.gaps if value.place is ValueOrigin.DEFAULT else ():
            if gap not in bounded or bounded[gap] & names:
                return gap
    return None


def _untold(row: CheckRow, *sides: Held) -> tuple[RowOutcome, Argument]:
    """How a row comes out of which a side says nothing, and why."""
    why = next((value.why for _, value in sides if value.why), None)
    silent = [(side, configuration) for side, (configuration, value) in zip(Side, sides, strict=True) if value.meaning is UNSET]
    if not why and len(silent) == 2:
        return RowOutcome.BY_HAND if row.by_hand else RowOutcome.UNUSED, None
    if why or row.by_hand or row.effect is not Effect.RESULT:
        return _undecided(row, why)
    side, configuration = silent[0]
    can_be_given = usable(row.says(configuration).keys, configuration)
    keys = [key for key in row.says(configuration).keys if key in can_be_given]
    name = named(keys[0], configuration.side).removeprefix(MODEL) if keys else None
    return RowOutcome.NOT_TOLD, message("why.untold_would", side=side, name=name) if name else message("why.untold", side=side)


def _undecided(row: CheckRow, why: Argument) -> tuple[RowOutcome, Argument]:
    """Return how a row comes out of which something that decides is not known, and why."""
    if row.by_hand:
        return RowOutcome.BY_HAND, why
    return (RowOutcome.NOT_TOLD, why) if row.effect is Effect.RESULT else (RowOutcome.HARMLESS, why or message("why.no_result"))


def _keeps(advice: Recommendation | None, meaning: Setting) -> bool:
    """Whether a side keeps to the recommendation: also where there is none, or nothing is known."""
    try:
        return advice is None or meaning is UNSET or bool(advice.keeps(meaning))
    except ODD:
        return False
