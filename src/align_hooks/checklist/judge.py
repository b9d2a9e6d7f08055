"""Two configurations compared by every row of the CheckList."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from msgspec import Struct
from msgspec.structs import replace

from align_hooks.checklist.canonical_values import UNSET, ValueOrigin, same
from align_hooks.checklist.edits import SuggestedEdit, named
from align_hooks.checklist.lookup import MODEL
from align_hooks.checklist.resolver import ODD, Edits
from align_hooks.checklist.row import BatchPair, CheckRow, Effect, Recommendation, SideValue
from align_hooks.checklist.suggest_edits import Values, answer, applied, has_meaning, missing, suggest_edits, usable
from align_hooks.checklist.tables import ROWS
from align_hooks.configuration.values import MINDFORMERS, Configuration, Setting
from align_hooks.messages import Argument, Side, message

LENGTH, BATCH = "train-iters", "global_batch_size"
"""The rows of a run's length, and of the batch that its samples may be divided by."""


class RowOutcome(Enum):
    """How a row came out."""

    DIFFERENT = "different"
    UNKNOWN = "not_told"
    ROUNDING = "rounding"
    HARMLESS = "harmless"
    SAME = "same"
    ALONE = "alone"
    BY_HAND = "by_hand"
    UNUSED = "unused"


class JudgedRow(Struct, frozen=True):
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
    silent: Side | None = None
    """The side that merely does not set the row; None where something else makes the outcome."""

    @property
    def by_hand(self) -> Argument:
        """How to check the row by hand, in general or because of these two sides; None where nothing is known."""
        return self.row.by_hand or (self.why if self.outcome is RowOutcome.BY_HAND else None)


def judge(
    reference: Configuration,
    candidate: Configuration,
    rows: Sequence[CheckRow] = ROWS,
    statistics: BatchPair = (None, None),
    *,
    weigh_alike: bool | None = None,
    repairs: Edits | None = None,
) -> tuple[JudgedRow, ...]:
    """Return every row judged, in the order of the CheckList, by the batches on record too.

    ``weigh_alike``: whether both runs weigh the tokens of these alike, None where that is not known; ``repairs``: what the
    candidate needs to be accepted at all.
    """
    values = {row.id: (row.read(reference), row.read(candidate)) for row in rows}
    checked = [weighed(_judge(row, reference, candidate, values, statistics), weigh_alike) for row in rows]
    known = [row for row in checked if UNSET not in (row.reference.canonical, row.candidate.canonical)]
    differing = [row.row for row in known if row.outcome in (RowOutcome.DIFFERENT, RowOutcome.ROUNDING)]
    changes = suggest_edits(reference, applied(candidate, repairs or {}), values, differing)
    edited = applied(candidate, {edit.key: edit.value for change in changes.values() if change.is_safe for edit in change.edits})
    further = suggest_edits(reference, edited, values, [row.row for row in checked if _may_be_added(row, candidate)])
    added = {name: (change, message("why.untold", side=Side.CANDIDATE)) for name, change in further.items() if change.is_safe}
    both = [(row, *added.get(row.row.id, (changes.get(row.row.id), row.why))) for row in checked]
    advised = tuple(replace(row, change=change, why=why) for row, change, why in both)
    batch = next((row for row in advised if row.row.id == BATCH and row.outcome is RowOutcome.UNKNOWN), None)
    return tuple(_length(row, batch, reference, candidate, edited, values) if row.row.id == LENGTH else row for row in advised)


def _length(
    checked: JudgedRow, batch: JudgedRow | None, reference: Configuration, candidate: Configuration, edited: Configuration, values: Values
) -> JudgedRow:
    """Return the row of a run's length, judged by the length that the candidate's other changes lead to."""
    # a larger batch leaves fewer steps of as many samples; how many a batch that is not known leaves is not known either
    length = checked.row.read(edited)
    wanted, before, after = checked.reference.canonical, checked.candidate.canonical, length.canonical
    if candidate.facts is not None or UNSET in (wanted, before, after):
        return checked
    if batch is not None and checked.outcome is RowOutcome.SAME and not length.keys.isdisjoint(batch.row.spec(candidate).keys):
        return replace(checked, outcome=RowOutcome.HARMLESS, why=batch.why)
    if same(before, after) or same(wanted, after):
        return checked
    change = suggest_edits(reference, edited, values, [checked.row])[LENGTH]
    why = message("why.length", before=before, after=after, wanted=wanted)  # type: ignore[arg-type]
    return replace(checked, outcome=RowOutcome.DIFFERENT, why=why, change=change)


def _may_be_added(checked: JudgedRow, candidate: Configuration) -> bool:
    """Return whether a MindFormers candidate merely lacks what the reference says, and has a key for it."""
    # the class of a model may say its structure
    keys = checked.row.mindformers.keys
    structure = any(key.startswith((MODEL, "moe_config.")) for key in keys)
    return checked.silent is Side.CANDIDATE and candidate.side == MINDFORMERS and not structure and bool(usable(keys, candidate))


def _judge(row: CheckRow, reference: Configuration, candidate: Configuration, values: Values, statistics: BatchPair) -> JudgedRow:
    ours, theirs = values[row.id]
    asked = has_meaning(row, values[row.depends_on]) if row.depends_on else True
    judged = JudgedRow(row, RowOutcome.UNUSED, ours, theirs)
    if asked is False:
        return judged
    known = [value.canonical for value in (ours, theirs) if value.canonical is not UNSET]
    kept = answer(row.advice.kept_by, reference, candidate) if row.advice is not None else None
    advised = (
        () if kept else tuple(side for side, value in zip(Side, (ours, theirs), strict=True) if not _keeps(row.advice, value.canonical))
    )
    judged = replace(judged, outcome=RowOutcome.SAME, advised=advised)
    if row.one_sided and reference.side != candidate.side:
        by_hand = row.by_hand and known[:1] in ([], [None])
        return replace(judged, outcome=RowOutcome.BY_HAND if by_hand else RowOutcome.ALONE if known else RowOutcome.UNUSED)
    if len(known) == 2 and same(*known):
        return judged
    differing = _judge_difference(judged, reference, candidate, statistics)
    if asked is None and differing.outcome in (RowOutcome.DIFFERENT, RowOutcome.ROUNDING, RowOutcome.UNKNOWN):
        return _undecided(judged, next(value.why for value in values[row.depends_on] if value.why))
    return differing


def weighed(checked: JudgedRow, alike: bool | None) -> JudgedRow:
    """Return a row judged by whether recorded batches weigh ``alike``, where the row says how tokens weigh."""
    if checked.row.weighs and alike is True and checked.outcome is RowOutcome.DIFFERENT:
        return replace(checked, outcome=RowOutcome.HARMLESS, why=message("why.weighed_alike"))
    if checked.row.weighs and alike is False and checked.outcome is RowOutcome.ROUNDING:
        return replace(checked, outcome=RowOutcome.DIFFERENT, why=message("why.weighed_otherwise"))
    return checked


def _judge_difference(judged: JudgedRow, reference: Configuration, candidate: Configuration, statistics: BatchPair) -> JudgedRow:
    """Return a row judged whose values are not the same."""
    row, one, other = judged.row, judged.reference, judged.candidate
    seen = answer(row.batches, statistics, reference, candidate) if any(statistics) else None
    if why := answer(row.harmless_if, reference, candidate) or (seen.words if seen is not None and seen.harmless else None):
        return replace(judged, outcome=RowOutcome.HARMLESS, why=why)
    if UNSET in (one.canonical, other.canonical):
        implied_by = answer(row.implied_by, reference, candidate)
        if implied_by is not None:
            return replace(judged, outcome=RowOutcome.DIFFERENT, why=implied_by)
        return _judge_unknown(judged, reference, candidate)
    if row.effect is Effect.NOTHING:
        return replace(judged, outcome=RowOutcome.HARMLESS, why=message("why.no_number"))
    if (unknown := missing(row, reference, candidate)) is not None:
        return _undecided(judged, unknown)
    words = row.describe(one.canonical, other.canonical) if row.describe is not None else None
    if row.effect is Effect.ROUNDING:
        return replace(judged, outcome=RowOutcome.ROUNDING, why=words)
    if (gap := _gap(row, (reference, one), (candidate, other))) is not None:
        return replace(judged, outcome=RowOutcome.UNKNOWN, why=message("why.gap", gap=gap))
    if doubt := answer(row.uncertain_if, reference, candidate):
        return replace(judged, outcome=RowOutcome.BY_HAND, why=doubt)
    return replace(judged, outcome=RowOutcome.DIFFERENT, why=words or (seen.words if seen is not None else None))


def _gap(row: CheckRow, *sides: tuple[Configuration, SideValue]) -> Argument:
    """Return the place that was not followed and may set a side's default otherwise; None without one."""
    for configuration, value in sides:
        spec, bounded = row.spec(configuration), configuration.bounded
        names = {*spec.keys, *spec.beside}
        for gap in configuration.gaps if value.place is ValueOrigin.DEFAULT else ():
            if gap not in bounded or bounded[gap] & names:
                return gap
    return None


def _judge_unknown(judged: JudgedRow, *sides: Configuration) -> JudgedRow:
    """Return a row judged that a side does not say."""
    row, values = judged.row, (judged.reference, judged.candidate)
    why = next((value.why for value in values if value.why), None)
    silent = [(side, c) for side, c, value in zip(Side, sides, values, strict=True) if value.canonical is UNSET]
    if not why and len(silent) == 2:
        return replace(judged, outcome=RowOutcome.BY_HAND if row.by_hand else RowOutcome.UNUSED)
    if why or row.by_hand or row.effect is not Effect.RESULT:
        return _undecided(judged, why)
    side, configuration = silent[0]
    keys = row.spec(configuration).keys
    fit = usable(keys, configuration)
    if (key := next((key for key in keys if key in fit), None)) is None:
        return replace(judged, outcome=RowOutcome.UNKNOWN, why=message("why.untold", side=side), silent=side)
    name = named(key, configuration.side).removeprefix(MODEL)
    return replace(judged, outcome=RowOutcome.UNKNOWN, why=message("why.untold_would", side=side, name=name), silent=side)


def _undecided(judged: JudgedRow, why: Argument) -> JudgedRow:
    """Return a row judged where something that decides is not known."""
    if judged.row.by_hand:
        return replace(judged, outcome=RowOutcome.BY_HAND, why=why)
    if judged.row.effect is Effect.RESULT:
        return replace(judged, outcome=RowOutcome.UNKNOWN, why=why)
    return replace(judged, outcome=RowOutcome.HARMLESS, why=why or message("why.no_result"))


def _keeps(advice: Recommendation | None, canonical: Setting) -> bool:
    """Return whether a side keeps to the recommendation, as also without one, or where nothing is known."""
    try:
        return advice is None or canonical is UNSET or bool(advice.keeps(canonical))
    except ODD:
        return False
