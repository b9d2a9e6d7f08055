"""A check as a document: differences first, each with both values, their places and the change to make."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from align_hooks.checklist.canonical_values import UNSET
from align_hooks.checklist.edits import Edit, Form, SuggestedEdit
from align_hooks.checklist.judge import JudgedRow, RowOutcome
from align_hooks.checklist.lookup import MODEL
from align_hooks.checklist.result import CheckedSide, Checklist, Course, Scheduled, counts
from align_hooks.checklist.row import Occasion, SideValue
from align_hooks.checklist.uncovered import Uncovered
from align_hooks.comparison.verdict import Curve
from align_hooks.messages import Argument, Joined, Message, Side, as_data, message, rendered, sentences, terms
from align_hooks.record.batch_statistics import BatchStatistics
from align_hooks.report import to_change
from align_hooks.report.blocks import (
    STEP,
    Cell,
    Code,
    Data,
    DocumentBlock,
    Fold,
    Heading,
    Items,
    Medium,
    Paragraph,
    Plots,
    Section,
    Special,
    Table,
    fact_text,
)
from align_hooks.report.console import plain
from align_hooks.report.curve_plots import curve_plot
from align_hooks.report.document import Document, Identity
from align_hooks.report.json import Shape, Shapes

HEADS = {outcome: message(f"came_out.{outcome.value}") for outcome in RowOutcome}
SET_UPS = {Occasion.FINDING_A_FAULT: message("heading.finding_a_fault"), Occasion.ACCEPTANCE: message("heading.acceptance")}
FIRST = (RowOutcome.DIFFERENT, RowOutcome.UNKNOWN, RowOutcome.ROUNDING)
"""Outcomes that every reader sees; a row of the last takes a line."""
MATTERING, HARMLESS = (RowOutcome.DIFFERENT, RowOutcome.UNKNOWN), (RowOutcome.ROUNDING, RowOutcome.HARMLESS)
"""Outcomes whose rows stand first, and outcomes whose rows a page folds away."""
OTHERS = tuple(outcome for outcome in RowOutcome if outcome not in (*MATTERING, *HARMLESS, RowOutcome.BY_HAND))
"""Outcomes that only a list of all rows shows; rows to check by hand have a fold of their own."""
PLOTS = {Scheduled.LEARNING_RATE: "plot-learning", Scheduled.WEIGHT_DECAY: "plot-weight"}
"""The place of each schedule on the page."""
LISTED, PITFALLS = 8, 12
"""The most settings and problems in a sentence, and the most lines of a list on a terminal."""
FORMAT = 2
"""The number of the format of JSON; bump it when a meaning changes."""


def document(checklist: Checklist, *, everything: bool = False) -> Document:
    """Return a check; with ``everything``, all of its rows, as a page shows them."""
    sections = {
        "curves": ("heading.schedules", "heading.every_step", schedules(checklist)),
        "data": ("heading.data", "heading.batches", batches(checklist)),
        "guide": ("heading.guide", "heading.traps_and_advice", guide(checklist, everything=everything)),
        "rows": ("heading.every_row", "heading.every_other_row", others(checklist, everything=everything)),
        "uncovered": ("heading.not_covered", "heading.by_no_row", uncovered(checklist, everything=everything)),
    }
    found = [(id, message(nav), message(head), [*blocks]) for id, (nav, head, blocks) in sections.items()]
    return Document(
        checklist.judgement,
        headline(checklist),
        [*differences(checklist, everything=everything)],
        sections=[Section(id, nav, head, blocks) for id, nav, head, blocks in found if blocks],
        title=message("check.title", judgement=checklist.judgement),
        sides=[Identity(role, role, plain(side.source), plain(side.framework)) for role, side in sides(checklist)],
    )


def sides(checklist: Checklist) -> Iterator[tuple[Side, CheckedSide]]:
    """Yield both sides with their names."""
    yield from zip(Side, checklist.sides, strict=True)


def differences(checklist: Checklist, *, everything: bool) -> Iterator[DocumentBlock]:
    """Yield what differs or could not be decided, and what to write."""
    for name, side in sides(checklist):
        yield Code([f"{rendered(name)}  {side.framework:<11}  {side.source}"], STEP, on=Medium.TERMINAL)
    if checklist.of(RowOutcome.DIFFERENT):
        yield to_change.of_checklist(checklist)
    for note in dict.fromkeys(note for side in checklist.sides for note in side.incomplete):
        yield Paragraph(note, "bold", 0)
    yield Items(refused(checklist), message("heading.refused"), PITFALLS)
    in_file = () if everything else in_absent_file(checklist)
    if in_file:
        yield Paragraph(message("check.in_absent_file", count=len(in_file), rows=terms(map(_with_value, in_file))))
    yield from mattering(checklist, in_file)
    if not everything and (rounding := checklist.of(RowOutcome.ROUNDING)):
        lines = [sentences(_both_values(checked), reason(checked)) for checked in rounding]
        yield Items(lines, HEADS[RowOutcome.ROUNDING], PITFALLS)
    first = [checked for outcome in FIRST for checked in checklist.of(outcome)]
    if any(checked.change is not None and checked.change.of_model for checked in first):
        yield Paragraph(message("check.sections"), "dim")
    if checklist.block:
        yield Heading(to_change.over_block(checklist), on=Medium.TERMINAL)
        yield Code(checklist.block.splitlines(), STEP, on=Medium.TERMINAL)
    yield Items(checklist.gaps, message("heading.gaps"), PITFALLS)
    may_matter = [
        message("check.may_matter", name=setting.name, value=setting.value, place=setting.where) for _, setting in checklist.uncovered
    ]
    yield Items(may_matter, message("heading.not_covered_may_matter"), PITFALLS)
    yield Items([message("check.built", name=name, reference=ours, candidate=theirs) for name, ours, theirs in checklist.built])
    if everything:
        yield from harmless(checklist)


def mattering(checklist: Checklist, elsewhere: Sequence[JudgedRow] = ()) -> Iterator[DocumentBlock]:
    """Yield the rows whose difference may change the result, but for those ``elsewhere``."""
    yield from tables(checklist, MATTERING, elsewhere)
    if not any(map(checklist.of, MATTERING)):
        agree = not any(map(checklist.of, HARMLESS))
        yield Paragraph(message("heading.all_agree" if agree else "page.nothing_that_matters"), on=Medium.PAGE)


def harmless(checklist: Checklist) -> Iterator[Fold]:
    """Yield the rows whose difference changes no result, folded."""
    if count := sum(len(checklist.of(outcome)) for outcome in HARMLESS):
        yield Fold(message("page.harmless", count=count), [*tables(checklist, HARMLESS)])


def refused(checklist: Checklist) -> list[Argument]:
    """Return why a framework refuses its configuration."""
    return [refusal.text for side in checklist.sides for refusal in side.refusals]


def schedules(checklist: Checklist) -> Iterator[DocumentBlock]:
    """Yield the schedules of both sides, in words and on a page as plots."""
    drawn = [course for course in checklist.courses if is_worth_drawing(course)]
    for course in checklist.courses:
        yield Paragraph(message("course.text", course=course.name, text=course.text))
        if any(schedule is not None for schedule in course.schedules):
            lines = [fact_text(name, schedule) for name, schedule in zip(Side, course.schedules, strict=True)]
            yield Items(lines, on=Medium.PAGE)
    if drawn:
        yield Special("key", lambda: {"noise": False}, on=Medium.PAGE)
        yield Plots(lambda: [*map(course_plot, drawn)], on=Medium.PAGE)


def is_worth_drawing(course: Course) -> bool:
    """Return whether a schedule is more than a common constant, which a sentence describes."""
    is_constant = len(set(course.reference)) == len(set(course.candidate)) == 1 and course.same
    return len(course.steps) > 0 and not is_constant


def course_plot(course: Course) -> Data:
    """Return the plot of a schedule over the steps."""
    curve = Curve(course.name.value, course.steps, course.reference, course.candidate)
    return curve_plot(curve) | {"id": PLOTS[course.name], "title": course.name, "text": None}


def guide(checklist: Checklist, *, everything: bool) -> Iterator[DocumentBlock]:
    """Yield traps, recommendations that a side does not follow, and the guide's set-ups."""
    above = refused(checklist)
    yield Items(
        [pitfall for side in checklist.sides for pitfall in side.pitfalls if pitfall not in above], message("heading.traps"), PITFALLS
    )
    against = advised(checklist)
    if everything:
        yield Items([*against.values()], message("heading.against_advice"), PITFALLS)
    elif against:
        yield Paragraph(message("check.by_hand", rows=terms(against)), "bold", 0, message("heading.against_advice"))
    if (seed := checklist.seed_that_counts) is not None:
        yield Paragraph(message("check.seed", values=_both_values(seed)), indent=0)
    for head, rows, broken in setups(checklist):
        kept = message("check.set_up", kept=rows - len(broken.parts), rows=rows)
        yield Paragraph(kept if everything or not broken.parts else message("check.all_lists", text=kept), "bold", 0, head)
        if broken.parts and everything:
            yield Paragraph(message("check.not_kept", rows=broken))
    for name, side in sides(checklist):
        for note in (note for note in side.notes if note not in side.incomplete):
            yield Paragraph(note if isinstance(note, Joined) else message("check.of_side", side=name, text=note), "dim")


def others(checklist: Checklist, *, everything: bool) -> Iterator[DocumentBlock]:
    """Yield the rows that agree or do not apply, and rows to check by hand."""
    head, rows = HEADS[RowOutcome.BY_HAND], checklist.of(RowOutcome.BY_HAND)
    if not everything:
        if rows:
            yield Paragraph(message("check.by_hand", rows=terms(checked.row.name for checked in rows)), "bold", 0, head)
        return
    for outcome in OTHERS:
        if checklist.of(outcome):
            yield Fold(HEADS[outcome], [table(checklist, checklist.of(outcome), HEADS[outcome])], len(checklist.of(outcome)))
    if rows:
        lines = [message("check.how", row=checked.row.name, how=checked.by_hand) for checked in rows]
        yield Fold(head, [Items(lines)], len(rows))


def uncovered(checklist: Checklist, *, everything: bool) -> Iterator[DocumentBlock]:
    """Yield the settings that no row covers: those that differ, and all of each side or their number."""
    heads = message("page.setting"), message("heading.value"), message("heading.set_at")
    if checklist.setting_differences and everything:
        caption = message("heading.one_framework")
        yield Heading(caption)
        yield Table((heads[0], *Side), checklist.setting_differences, caption=caption)
    elif checklist.setting_differences:
        first = (
            message("check.values", name=name, reference=ours, candidate=theirs)
            for name, ours, theirs in checklist.setting_differences[:LISTED]
        )
        yield Paragraph(message("check.unlike", count=len(checklist.setting_differences), settings=terms(first)))
    for name, side in sides(checklist):
        above = () if everything or side.recorded else [setting for of, setting in checklist.uncovered if of is side]
        settings = [setting for setting in side.not_covered if setting not in above]
        if settings and everything:
            names = terms(f"{setting.name} {rendered(setting.value)}".strip() for setting in settings)
            yield Paragraph(message("check.not_covered", side=name, names=names), "dim", 0, on=Medium.TERMINAL)
            rows = [(setting.name, setting.value, setting.where) for setting in settings]
            caption = message("check.not_covered_of", framework=side.framework)
            yield Fold(side.framework, [Table(heads, rows, caption=caption)], len(rows), on=Medium.PAGE)
        elif settings:
            yield Paragraph(message("check.not_covered_count", side=name, count=len(settings)), "dim", 0)
    if not everything:
        counts = [message("check.same", count=len(checklist.of(RowOutcome.SAME)))]
        if checklist.of(RowOutcome.HARMLESS):
            counts.append(message("check.harmless", count=len(checklist.of(RowOutcome.HARMLESS))))
        yield Paragraph(message("check.also", rows=terms(counts)), "dim", 0)


def in_absent_file(checklist: Checklist) -> tuple[JudgedRow, ...]:
    """Return the rows without a value on one side because its model's ``config.json`` is absent: one cause, one paragraph."""
    absent = [name for name, side in sides(checklist) if side.without_model_file]
    silent = [(checked, checked.row.mindformers) for checked in checklist.of(RowOutcome.UNKNOWN) if checked.silent in absent]
    return tuple(
        checked
        for checked, spec in silent  # of the structure of the model, which that file may hold
        if any(key.startswith(MODEL) for key in (*spec.keys, *spec.beside)) and checked.row.id != "seq_length"
    )


def _with_value(checked: JudgedRow) -> Message:
    """Return the name of a row with the value of the side that has one."""
    known = checked.candidate if checked.reference.canonical is UNSET else checked.reference
    return message("check.value", name=checked.row.name, value=known.shown)


def tables(checklist: Checklist, outcomes: Iterable[RowOutcome], elsewhere: Sequence[JudgedRow] = ()) -> Iterator[DocumentBlock]:
    """Yield a table of the rows of each outcome, but for those ``elsewhere``."""
    for outcome in outcomes:
        if rows := [checked for checked in checklist.of(outcome) if checked not in elsewhere]:
            yield Heading(HEADS[outcome], outcome.value, len(rows))
            yield table(checklist, rows, HEADS[outcome])


def table(checklist: Checklist, rows: Iterable[JudgedRow], caption: Message) -> Table:
    """Return a table of rows: both values, each above the place where it was set, and what to change."""
    heads: list[Argument | Cell] = [
        message("page.setting"),
        *(Cell(name, aside=side.framework) for name, side in sides(checklist)),
        message("heading.change"),
    ]
    return Table(heads, [row(checklist, checked) for checked in rows], is_fitted=True, caption=caption, look="checked")


def row(checklist: Checklist, checked: JudgedRow) -> Sequence[Argument | Cell]:
    """Return a row of the CheckList as a table shows it; a page adds where the guides ask for it."""
    values = zip((checked.reference, checked.candidate), checklist.sides, strict=True)
    cells = (Cell(value.shown, note=value.place_beside(side.source) or "") for value, side in values)
    return (Cell(checked.row.name, aside="; ".join(checked.row.sources)), *cells, reason(checked))


def headline(checklist: Checklist) -> Joined:
    """Return the text behind the verdict: what differs, and counts of everything else."""
    differing = len(checklist.of(RowOutcome.DIFFERENT))
    unknown = len(checklist.of(RowOutcome.UNKNOWN)) + len(checklist.gaps) + sum(course.same is None for course in checklist.courses)
    counts = {
        "headline.refused": sum(len(side.refusals) for side in checklist.sides),
        "headline.problems": len(checklist.problems),
        "headline.untold": unknown,
        "headline.not_covered": len(checklist.uncovered),
        "headline.rounding": len(checklist.of(RowOutcome.ROUNDING)),
    }
    parts = [message("headline.settings", count=differing)] if differing else []
    parts += [message("headline.course", course=course.name) for course in checklist.courses if course.same is False]
    parts += [message("headline.batches")] if checklist.same_batches is False else []
    parts += [message("headline.built", names=terms(name for name, *_ in checklist.built))] if checklist.built else []
    return sentences(
        *(parts or [message("headline.nothing")]),
        *(message(id, count=count) for id, count in counts.items() if count),
        message("headline.same", count=len(checklist.of(RowOutcome.SAME))),
    )


def reason(checked: JudgedRow) -> Joined:
    """Return why a row has its outcome, and what to change."""
    return sentences(checked.why, checked.change.words if checked.change is not None else None)


def batches(checklist: Checklist) -> Iterator[DocumentBlock]:
    """Yield a paragraph on the recorded batches of each side, and its lines."""
    if checklist.data is not None:
        yield Paragraph(checklist.data)
    for name, side in sides(checklist):
        if (seen := side.statistics) is None:
            continue
        bounds = {key: "–" if value is None else value for key, value in (("smallest", seen.smallest), ("largest", seen.largest))}
        numbers = {key: getattr(seen, key) for key in ("rows", "counted", "tokens", "shifted", "pairs")}
        special = [
            message("data.special", name=token, id=id, times=times, counted=counted) for token, (times, counted, id) in seen.special.items()
        ]
        problems = [message("data.problem", problem=problem) for problem in seen.problems[:LISTED]]
        if len(seen.problems) > LISTED:
            problems.append(message("data.more_problems", count=len(seen.problems) - LISTED))
        decoded = [message("data.reads", place=place, text=repr(text)) for place, text in seen.decoded]
        introduction = message("data.of_side", side=name, count=len(seen.steps), **bounds, **numbers)
        yield Paragraph(introduction)
        yield Items([*special, *problems, *seen.notes, *decoded], indent=2 * STEP)


def advice(checked: JudgedRow) -> Message | None:
    """Return the guide's recommendation of a row and the sides that do not follow it; None where both do."""
    if checked.row.advice is None or not checked.advised:
        return None
    if len(checked.advised) == len(Side):
        return message("advised.by_neither", advice=checked.row.advice.text)
    return message("advised.not_by", advice=checked.row.advice.text, side=checked.advised[0])


def advised(checklist: Checklist) -> dict[Argument, Message]:
    """Return the guide's general recommendations that a side does not follow, by the names of the rows."""
    return {
        checked.row.name: message("advised.row", row=checked.row.name, advice=advice(checked))
        for checked in checklist.checked
        if checked.advised and checked.row.advice is not None and checked.row.advice.setup is None
    }


def setups(checklist: Checklist) -> list[tuple[Message, int, Joined]]:
    """Return for each set-up of the guide its head, its number of rows, and the rows that a side does not follow, with both values."""
    rows: dict[Occasion, list[JudgedRow]] = {}
    for checked in checklist.checked:
        if checked.row.advice and checked.row.advice.setup:
            rows.setdefault(checked.row.advice.setup, []).append(checked)
    return [
        (SET_UPS[occasion], len(members), sentences(*(_both_values(checked) for checked in members if checked.advised)))
        for occasion, members in rows.items()
    ]


def _both_values(checked: JudgedRow) -> Message:
    """Return both values of a row, or the value that both share."""
    sides = (checked.reference, checked.candidate)
    ours, theirs = (side.shown if side.canonical is not None and side.shown != "" else "–" for side in sides)
    if ours == theirs:
        return message("check.value", name=checked.row.name, value=ours)
    return message("check.values", name=checked.row.name, reference=ours, candidate=theirs)


JSON: Shapes = {
    Checklist: Shape(
        """verdict=judgement! exit_code counts rows=checked to_write=block courses sides data* data_alike=same_batches
        differ_and_not_covered=setting_differences built_otherwise=built messages""",
        counts=lambda checklist: {rendered(outcome): count for outcome, count in counts(checklist).items()},
    ),
    JudgedRow: Shape(
        """id=row.id name=row.name! group=row.group! outcome! effect=row.effect! reference candidate why! change=change.words!
        advised! by_hand! sources=row.sources advised_against=advised ids messages""",
        advised=advice,
        ids=lambda checked: {"group": checked.row.group, "outcome": checked.outcome, "effect": checked.row.effect},
        messages=lambda checked: {
            "why": as_data(checked.why),
            "change": checked.change,
            "advice": as_data(checked.row.advice.text if checked.row.advice is not None else None),
            "by_hand": as_data(checked.by_hand),
        },
    ),
    SuggestedEdit: Shape("action key value@ edits parts=breaks@ why@"),
    Edit: Shape("form key=name value", value=lambda edit: None if edit.form is Form.LEAVE_OUT else edit.value),
    SideValue: Shape("value=shown* where* why* messages"),
    Course: Shape("name! same text* schedules* steps reference candidate differing first most id=name messages"),
    CheckedSide: Shape("framework source recorded notes* traps=pitfalls* gaps* not_covered data=statistics messages"),
    Uncovered: Shape("name value! where matters"),
    BatchStatistics: Shape("steps rows tokens counted smallest largest shifted pairs special problems* notes* decoded messages"),
}
"""The keys of a check in JSON, texts in English, and under ``messages`` as data."""
