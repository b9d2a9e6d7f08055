"""A check on a terminal of 80 columns: differences first, each with both values, their places and the change to make."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from align_hooks.checklist.canonical_values import UNSET
from align_hooks.checklist.judge import JudgedRow, RowOutcome
from align_hooks.checklist.lookup import MODEL
from align_hooks.checklist.result import CheckedSide, Checklist
from align_hooks.checklist.row import Occasion
from align_hooks.checklist.uncovered import Uncovered
from align_hooks.messages import Argument, Joined, Message, Side, message, rendered, sentences, terms
from align_hooks.report.check_fix import block_of
from align_hooks.report.console import STEP, Trimmed, command, paragraph, plain, style_of, verdict
from align_hooks.report.machine import members

HEADS = {outcome: message(f"came_out.{outcome.value}") for outcome in RowOutcome}
SET_UPS = {Occasion.FINDING_A_FAULT: message("heading.finding_a_fault"), Occasion.ACCEPTANCE: message("heading.acceptance")}
FIRST = (RowOutcome.DIFFERENT, RowOutcome.UNKNOWN, RowOutcome.ROUNDING)
"""Outcomes that every reader sees; a row of the last takes a line."""
OTHERS = tuple(outcome for outcome in RowOutcome if outcome not in (*FIRST, RowOutcome.BY_HAND))
"""Outcomes that only a list of all rows shows; rows to check by hand have a section of their own."""
Cell: TypeAlias = tuple[Argument, Argument]
Row: TypeAlias = tuple[Argument, list[Cell], Joined, str]
"""A row on a page: its name, a cell for each side (value and place), what to change, and the sources of the guides."""
Group: TypeAlias = tuple[Message, str, list[Row]]
"""A head, the end of its address on the page, and its rows."""
LISTED, TRAPS = 8, 12
PARTS = re.compile(r"[^._/,-]*[._/,-]|[^._/,-]+$")
"""A part of a long name, with the joint behind it."""
BETWEEN, NARROWEST, WORD = 9, 12, 20
"""Letters: around and between the four columns; of the narrowest column; of a word that is not broken."""


def render_check(checklist: Checklist, console: Console, *, everything: bool = False) -> None:
    """Print a check; with ``everything``, all of its rows."""
    verdict(console, checklist.judgement, style_of(checklist.judgement), headline(checklist))
    for name, side in zip(Side, checklist.sides, strict=True):
        command(console, f"{rendered(name)}  {side.framework:<11}  {side.source}", STEP)
    for note in dict.fromkeys(note for side in checklist.sides for note in side.notes if stands_first(note)):
        paragraph(console, note, 0, "bold")
    refused = [refusal.text for side in checklist.sides for refusal in side.refusals]
    listed(console, message("heading.refused"), refused)
    if in_file := () if everything else in_absent_file(checklist):
        paragraph(console, message("check.in_absent_file", count=len(in_file), rows=terms(map(_with_value, in_file))))
    _tables(checklist, console, FIRST if everything else FIRST[:-1], in_file)
    rounding = () if everything else checklist.of(RowOutcome.ROUNDING)
    listed(console, HEADS[RowOutcome.ROUNDING], [sentences(_both_values(checked), reason(checked)) for checked in rounding])
    if any(checked.change is not None and checked.change.of_model for outcome in FIRST for checked in checklist.of(outcome)):
        paragraph(console, message("check.sections"), style="dim")
    if (to_write := block_of(checklist)) is not None:
        paragraph(console, to_write[0], 0, "bold")
        for written in to_write[1].splitlines():
            command(console, written, STEP)
    listed(console, message("heading.gaps"), checklist.gaps)
    listed(console, message("heading.not_covered_may_matter"), not_covered_may_matter(checklist))
    for setting, ours, theirs in checklist.built:
        paragraph(console, message("check.built", name=setting, reference=ours, candidate=theirs))
    for course in checklist.courses:
        paragraph(console, message("course.text", course=course.name, text=course.text))
    for line, *below in batches(checklist):
        paragraph(console, line)
        for text in below:
            paragraph(console, text, 2 * STEP)
    listed(console, message("heading.traps"), [pitfall for side in checklist.sides for pitfall in side.pitfalls if pitfall not in refused])
    against = advised(checklist)
    if against and everything:
        listed(console, message("heading.against_advice"), list(against.values()))
    elif against:
        verdict(console, message("heading.against_advice"), "bold", message("check.by_hand", rows=terms(against)))
    if (seed := checklist.seed_that_counts) is not None:
        paragraph(console, message("check.seed", values=_both_values(seed)), 0)
    for head, rows, broken in setups(checklist):
        kept = message("check.set_up", kept=rows - len(broken.parts), rows=rows)
        verdict(console, head, "bold", kept if everything or not broken.parts else message("check.all_lists", text=kept))
        if broken.parts and everything:
            paragraph(console, message("check.not_kept", rows=broken))
    for name, side in zip(Side, checklist.sides, strict=True):
        for note in (note for note in side.notes if not stands_first(note)):
            paragraph(console, note if isinstance(note, Joined) else message("check.of_side", side=name, text=note), style="dim")
    if everything:
        _tables(checklist, console, OTHERS)
    differing_uncovered(checklist, console, everything=everything)
    by_hand(console, checklist.of(RowOutcome.BY_HAND), everything=everything)
    for name, side in zip(Side, checklist.sides, strict=True):
        uncovered(console, name, side, [setting for of, setting in checklist.uncovered if of is side], everything=everything)
    if not everything:
        counts = [message("check.same", count=len(checklist.of(RowOutcome.SAME)))]
        if harmless := checklist.of(RowOutcome.HARMLESS):
            counts.append(message("check.harmless", count=len(harmless)))
        paragraph(console, message("check.also", rows=terms(counts)), 0, "dim")


def stands_first(note: Argument) -> bool:
    """Return whether a note says that a part of a side could not be read, for want of a file or of arguments."""
    return is_of_absent_file(note) or (isinstance(note, Message) and note.id == "configuration.arguments_missing")


def is_of_absent_file(note: Argument) -> bool:
    """Return whether a note says that a model's ``config.json`` is not on this machine."""
    return isinstance(note, Message) and note.id == "configuration.no_model_file"


def in_absent_file(checklist: Checklist) -> tuple[JudgedRow, ...]:
    """Return the rows without a value on one side because its model's ``config.json`` is absent: one cause, one paragraph."""
    absent = [name for name, side in zip(Side, checklist.sides, strict=True) if any(map(is_of_absent_file, side.notes))]
    reasons = ((checked, checked.row.mindformers, checked.why) for checked in checklist.of(RowOutcome.UNKNOWN))
    return tuple(
        checked
        for checked, said, why in reasons
        if isinstance(why, Message) and why.id.startswith("why.untold") and why.arguments.get("side") in absent
        # of the structure of the model, which that file may hold
        if any(key.startswith(MODEL) for key in (*said.keys, *said.beside)) and checked.row.id != "seq_length"
    )


def _with_value(checked: JudgedRow) -> Message:
    """Return the name of a row with the value of the side that has one."""
    known = checked.candidate if checked.reference.canonical is UNSET else checked.reference
    return message("check.value", name=checked.row.name, value=known.shown)


def _tables(checklist: Checklist, console: Console, outcomes: Iterable[RowOutcome], elsewhere: Sequence[JudgedRow] = ()) -> None:
    for outcome in outcomes:
        if rows := [checked for checked in checklist.of(outcome) if checked not in elsewhere]:
            paragraph(console, HEADS[outcome], 0, "bold")
            console.print(Trimmed(table(checklist, rows, console.width)))


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


def table(checklist: Checklist, rows: Iterable[JudgedRow], width: int) -> Table:
    """Return a table of rows: both values, each above the place where it was set, and what to change; no text is cut."""
    grid = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    lines = []
    for checked in rows:
        sides = zip((checked.reference, checked.candidate), checklist.sides, strict=True)
        cells = [f"{rendered(cell.shown)}\n{rendered(cell.place_beside(side.source))}" for cell, side in sides]
        lines.append((rendered(checked.row.name), *cells, rendered(reason(checked))))
    names = [rendered(name) for name in (message("page.setting"), *Side, message("heading.change"))]
    sizes = widths([(*names,), *lines], width - BETWEEN)
    for name, size in zip(names, sizes, strict=True):
        grid.add_column(Text(name), overflow="fold", width=size)
    for name, *cells, text in lines:
        parts = (cell.partition("\n") for cell in cells)
        shown = (Text.assemble(plain(value), "\n", (plain(place), "dim")) for value, _, place in parts)
        grid.add_row(Text(broken(plain(name), sizes[0])), *shown, Text(broken(plain(text), sizes[-1])))
    return grid


def broken(text: str, size: int) -> str:
    """Return a text whose words of more than ``size`` letters are broken behind a joint, such as a dot."""
    words = []
    for word in text.split(" "):
        lines = [""]
        for part in PARTS.findall(word):
            if lines[-1] and len(lines[-1] + part) > size:
                lines.append("")
            lines[-1] += part
        words.append("\n".join(lines) if len(word) > size else word)
    return " ".join(words)


def reason(checked: JudgedRow) -> Joined:
    """Return why a row has its outcome, and what to change."""
    return sentences(checked.why, checked.change.words if checked.change is not None else None)


def shown_rows(checklist: Checklist, outcomes: Iterable[RowOutcome]) -> list[Group]:
    """Return rows as pages show them, grouped by outcome, without empty groups."""
    groups: list[Group] = []
    for outcome in outcomes:
        rows: list[Row] = []
        for checked in checklist.of(outcome):
            sides = zip((checked.reference, checked.candidate), checklist.sides, strict=True)
            cells: list[Cell] = [(cell.shown, cell.place_beside(side.source)) for cell, side in sides]
            rows.append((checked.row.name, cells, reason(checked), "; ".join(checked.row.sources)))
        if rows:
            groups.append((HEADS[outcome], outcome.value, rows))
    return groups


def widths(rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """Return the letters of each column: its longest line, or where all exceed ``width``, less for the widest columns."""
    sizes = [max(len(line) for row in rows for line in row[column].splitlines() or [""]) for column in range(len(rows[0]))]
    least = [*(min(size, NARROWEST) for size in sizes[:-1]), min(sizes[-1], 2 * NARROWEST)]
    least[0] = max([least[0], *(len(word) for row in rows for word in row[0].split() if len(word) <= WORD)])
    last = len(sizes) - 1
    # the change, in the last column, has twice as much space as another column
    while sum(sizes) > width and any(size > low for size, low in zip(sizes, least, strict=True)):
        sizes[max(range(len(sizes)), key=lambda column: (sizes[column] - least[column]) / (1 + (column == last)))] -= 1
    return sizes


def batches(checklist: Checklist) -> list[list[Argument]]:
    """Return a paragraph on the recorded batches of each side; its first line introduces the others."""
    paragraphs: list[list[Argument]] = [[checklist.data]] if checklist.data is not None else []
    for name, side in zip(Side, checklist.sides, strict=True):
        if (seen := side.statistics) is None:
            continue
        bounds = {key: "–" if value is None else value for key, value in (("smallest", seen.smallest), ("largest", seen.largest))}
        numbers = members(seen, "rows", "counted", "tokens", "shifted", "pairs")
        special = [
            message("data.special", name=token, id=id, times=times, counted=counted) for token, (times, counted, id) in seen.special.items()
        ]
        problems = [message("data.problem", problem=problem) for problem in seen.problems[:LISTED]]
        if len(seen.problems) > LISTED:
            problems.append(message("data.more_problems", count=len(seen.problems) - LISTED))
        decoded = [message("data.reads", place=place, text=repr(text)) for place, text in seen.decoded]
        introduction = message("data.of_side", side=name, count=len(seen.steps), **bounds, **numbers)
        paragraphs.append([introduction, *special, *problems, *seen.notes, *decoded])
    return paragraphs


def not_covered_may_matter(checklist: Checklist) -> list[Message]:
    """Return a line for each setting that may change the result and that no row covers."""
    return [message("check.may_matter", name=setting.name, value=setting.value, place=setting.where) for _, setting in checklist.uncovered]


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


def listed(console: Console, head: Argument, lines: Sequence[Argument]) -> None:
    """Print the first lines under a head, and the number of the others."""
    if lines:
        paragraph(console, head, 0, "bold")
    for line in lines[:TRAPS]:
        paragraph(console, line)
    if len(lines) > TRAPS:
        paragraph(console, message("check.more", count=len(lines) - TRAPS))


def differing_uncovered(checklist: Checklist, console: Console, *, everything: bool) -> None:
    """Print the settings that differ between two sides of one framework and that no row covers."""
    if everything:
        for name, reference, candidate in checklist.setting_differences:
            paragraph(console, message("check.not_covered_one", name=name, reference=reference, candidate=candidate))
    elif checklist.setting_differences:
        first = (
            message("check.values", name=name, reference=ours, candidate=theirs)
            for name, ours, theirs in checklist.setting_differences[:LISTED]
        )
        paragraph(console, message("check.unlike", count=len(checklist.setting_differences), settings=terms(first)))


def by_hand(console: Console, rows: tuple[JudgedRow, ...], *, everything: bool) -> None:
    """Print the rows that neither a configuration nor a record shows, with how to check them."""
    head = HEADS[RowOutcome.BY_HAND]
    if rows and everything:
        listed(console, head, [message("check.how", row=checked.row.name, how=checked.by_hand) for checked in rows])
    elif rows:
        verdict(console, head, "bold", message("check.by_hand", rows=terms(checked.row.name for checked in rows)))


def uncovered(console: Console, name: Side, side: CheckedSide, above: Sequence[Uncovered], *, everything: bool) -> None:
    """Print the settings that no row covers, without those printed ``above``; only their number unless ``everything`` is asked for."""
    settings = [setting for setting in side.not_covered if everything or side.recorded or setting not in above]
    if settings and everything:
        names = terms(f"{setting.name} {rendered(setting.value)}".strip() for setting in settings)
        paragraph(console, message("check.not_covered", side=name, names=names), 0, "dim")
    elif settings:
        paragraph(console, message("check.not_covered_count", side=name, count=len(settings)), 0, "dim")
