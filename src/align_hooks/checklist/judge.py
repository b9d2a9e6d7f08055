"""Two configurations compared by every row of the CheckList."""

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
"""The rows of a run's length, and of the batch that its samples may be divided by."""
Held: TypeAlias = tuple[Configuration, SideValue]
"""A side and its value of a row."""


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
    """One row, both sides, and how it came out."""

    row: CheckRow
    outcome: RowOutcome
    reference: SideValue
    candidate: SideValue
    why: Argument = None
    """What makes a difference harmless, or what is not known."""
    change: SuggestedEdit | None = None
    """What to set where; None where nothing is to be done."""
    advised: tuple[Side, ...] = ()
    """The sides that do not keep to the guide's recommendation."""

    @property
    def by_hand(self) -> Argument:
        """How to check the row by hand, in general or because of these two sides; None where nothing is known."""
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
    """Return every row judged, in the order of the CheckList, by the batches on record too.

    ``weigh_alike``: whether both runs weigh the tokens of these alike, None where that is not known; ``repairs``: what the
    candidate needs to be accepted at all.
    """
    values = {row.id: (read_row(row, reference), read_row(row, candidate)) for row in rows}
    checked = [weighed(_judge(row, reference, candidate, values, looks), weigh_alike) for row in rows]
    known = [row for row in checked if UNSET not in (row.reference.meaning, row.candidate.meaning)]
    differing = [row.row for row in known if row.outcome in (RowOutcome.DIFFERENT, RowOutcome.ROUNDING)]
    changes = mend(reference, applied(candidate, repairs or {}), values, differing)
    mended = applied(candidate, {edit.key: edit.value for change in changes.values() if change.keeps for edit in change.edits})
    further = mend(reference, mended, values, [row.row for row in checked if merely_lacks(row, candidate)])
    added = {name: (change, message("why.untold", side=Side.CANDIDATE)) for name, change in further.items() if change.keeps}
    both = [(row, *added.get(row.row.id, (changes.get(row.row.id), row.why))) for row in checked]
    advised = tuple(replace(row, change=change, why=why) for row, change, why in both)
    batch = next((row for row in advised if row.row.id == BATCH and row.outcome is RowOutcome.NOT_TOLD), None)
    return tuple(_length(row, batch, reference, candidate, mended, values) if row.row.id == LENGTH else row for row in advised)


def _length(
    checked: JudgedRow, batch: JudgedRow | None, reference: Configuration, candidate: Configuration, mended: Configuration, values: Values
) -> JudgedRow:
    """Return the row of a run's length, judged by the length that the candidate's other changes lead to."""
    # a larger batch leaves fewer steps of as many samples; how many a batch that is not known leaves is not known either
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


def merely_lacks(checked: JudgedRow, candidate: Configuration) -> bool:
    """Return whether a MindFormers candidate merely lacks what the reference says."""
    # the class of a model may say its structure
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
    if row.one_sided and reference.side != candidate.side:
        outcome = RowOutcome.BY_HAND if row.by_hand and known[:1] in ([], [None]) else RowOutcome.ALONE if known else RowOutcome.UNUSED
    elif len(known) < 2 or not same(*known):
        outcome, why = _judge_difference(row, (reference, ours), (candidate, theirs), looks)
    if asked is None and outcome in (RowOutcome.DIFFERENT, RowOutcome.ROUNDING, RowOutcome.NOT_TOLD):
        outcome, why = _undecided(row, next(value.why for value in values[row.depends_on] if value.why))
    return JudgedRow(row, outcome, ours, theirs, why, advised=advised)


def weighed(checked: JudgedRow, alike: bool | None) -> JudgedRow:
    """Return a row judged by whether recorded batches weigh ``alike``, where the row says how tokens weigh."""
    if checked.row.weighs and alike is True and checked.outcome is RowOutcome.DIFFERENT:
        return replace(checked, outcome=RowOutcome.HARMLESS, why=message("why.weighed_alike"))
    if checked.row.weighs and alike is False and checked.outcome is RowOutcome.ROUNDING:
        return replace(checked, outcome=RowOutcome.DIFFERENT, why=message("why.weighed_otherwise"))
    return checked


def _judge_difference(row: CheckRow, ours: Held, theirs: Held, looks: Looks) -> tuple[RowOutcome, Argument]:
    """Return the outcome of a row whose meanings are not the same, and why."""
    (reference, one), (candidate, other) = ours, theirs
    seen = answer(row.batches, looks, reference, candidate) if any(looks) else None
    if why := answer(row.harmless_if, reference, candidate) or (seen.words if seen is not None and seen.harmless else None):
        return RowOutcome.HARMLESS, why
    if UNSET in (one.meaning, other.meaning):
        implied_by = answer(row.implied_by, reference, candidate)
        return (RowOutcome.DIFFERENT, implied_by) if implied_by is not None else _judge_unknown(row, ours, theirs)
    if row.effect is Effect.NOTHING:
        return RowOutcome.HARMLESS, message("why.no_number")
    if (unknown := missing(row, reference, candidate)) is not None:
        return _undecided(row, unknown)
    words = row.describe(one.meaning, other.meaning) if row.describe is not None else None
    if row.effect is Effect.ROUNDING:
        return RowOutcome.ROUNDING, words
    if (gap := _gap(row, ours, theirs)) is not None:
        return RowOutcome.NOT_TOLD, message("why.gap", gap=gap)
    if doubt := answer(row.uncertain_if, reference, candidate):
        return RowOutcome.BY_HAND, doubt
    return RowOutcome.DIFFERENT, words or (seen.words if seen is not None else None)


def _gap(row: CheckRow, *sides: Held) -> Argument:
    """Return the place that was not followed and may set a side's default otherwise; None without one."""
    for configuration, value in sides:
        says, bounded = row.says(configuration), configuration.bounded
        names = {*says.keys, *says.beside}
        for gap in configuration.gaps if value.place is ValueOrigin.DEFAULT else ():
            if gap not in bounded or bounded[gap] & names:
                return gap
    return None


def _judge_unknown(row: CheckRow, *sides: Held) -> tuple[RowOutcome, Argument]:
    """Return the outcome of a row that a side does not say, and why."""
    why = next((value.why for _, value in sides if value.why), None)
    silent = [(side, configuration) for side, (configuration, value) in zip(Side, sides, strict=True) if value.meaning is UNSET]
    if not why and len(silent) == 2:
        return RowOutcome.BY_HAND if row.by_hand else RowOutcome.UNUSED, None
    if why or row.by_hand or row.effect is not Effect.RESULT:
        return _undecided(row, why)
    side, configuration = silent[0]
    keys = row.says(configuration).keys
    fit = usable(keys, configuration)
    if (key := next((key for key in keys if key in fit), None)) is None:
        return RowOutcome.NOT_TOLD, message("why.untold", side=side)
    return RowOutcome.NOT_TOLD, message("why.untold_would", side=side, name=named(key, configuration.side).removeprefix(MODEL))


def _undecided(row: CheckRow, why: Argument) -> tuple[RowOutcome, Argument]:
    """Return the outcome of a row where something that decides is not known, and why."""
    if row.by_hand:
        return RowOutcome.BY_HAND, why
    return (RowOutcome.NOT_TOLD, why) if row.effect is Effect.RESULT else (RowOutcome.HARMLESS, why or message("why.no_result"))


def _keeps(advice: Recommendation | None, meaning: Setting) -> bool:
    """Return whether a side keeps to the recommendation, as also without one, or where nothing is known."""
    try:
        return advice is None or meaning is UNSET or bool(advice.keeps(meaning))
    except ODD:
        return False
