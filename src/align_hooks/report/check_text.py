"""A check on a terminal: what differs first, each with both values, where they were set and what to change. Fits 80 columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.table import Table

from align_hooks.checklist.judge import Checked, Outcome
from align_hooks.checklist.result import CheckedSide, Checklist, Course, Judgement
from align_hooks.checklist.row import Occasion
from align_hooks.messages import Argument, Joined, Message, Side, both, message, rendered, sentences, terms
from align_hooks.report.text import escape, indented

COLOUR = {Judgement.CLEAN: "bold green", Judgement.DIFFERS: "bold red", Judgement.INCONCLUSIVE: "bold yellow"}
HEADS = {
    Outcome.DIFFERENT: message("came_out.different"),
    Outcome.NOT_TOLD: message("came_out.not_told"),
    Outcome.ROUNDING: message("came_out.rounding"),
    Outcome.HARMLESS: message("came_out.harmless"),
    Outcome.SAME: message("came_out.same"),
    Outcome.ALONE: message("came_out.alone"),
    Outcome.BY_HAND: message("came_out.by_hand"),
    Outcome.UNUSED: message("came_out.unused"),
}
SET_UPS = {
    Occasion.FINDING_A_FAULT: message("heading.finding_a_fault"),
    Occasion.ACCEPTANCE: message("heading.acceptance"),
}
FIRST = (Outcome.DIFFERENT, Outcome.NOT_TOLD, Outcome.ROUNDING)
"""What every reader sees; the rest where it is asked for."""
LISTED, TRAPS = 8, 12
BETWEEN, NARROWEST, WORD = 9, 12, 20
"""Letters around and between the four columns, of the narrowest of them, and of a name that is not broken: longer text goes on in the
next line, and the change has twice as much room as the others."""


@dataclass(frozen=True, slots=True)
class SetUp:
    """A set-up of the guide: its head, how many of its rows both sides keep to, and those that they do not, with what they hold."""

    head: Message
    kept: int
    broken: tuple[Message, ...]

    @property
    def not_kept(self) -> Joined:
        """What is not kept, in a row."""
        return sentences(*self.broken)


@dataclass(frozen=True, slots=True)
class Line:
    """What is said of recorded batches; ``below`` is a line that belongs to the one before."""

    text: Argument
    below: bool = False


def render_check(checklist: Checklist, console: Console, *, everything: bool = False) -> None:
    """Print a check, all rows of it with ``everything``."""
    verdict = marked(checklist.judgement, COLOUR[checklist.judgement])
    console.print(rendered(message("check.verdict", judgement=verdict, headline=words(headline(checklist)))))
    for name, side in zip(Side, checklist.sides, strict=True):
        console.print(f"  {words(name)}  {side.framework:<11}  {escape(side.source)}", soft_wrap=True)
    _tables(checklist, console, FIRST)
    if any(one.change is not None and one.change.of_model for outcome in FIRST for one in checklist.of(outcome)):
        indented(console, f"[dim]{words(message('check.sections'))}[/]")
    listed(console, message("heading.gaps"), checklist.gaps)
    for course in checklist.courses:
        indented(console, words(of_course(course)))
    for line in of_data(checklist):
        indented(console, ("  " if line.below else "") + words(line.text))
    listed(console, message("heading.traps"), [trap for side in checklist.sides for trap in side.traps])
    listed(console, message("heading.against_advice"), advised(checklist))
    for found in setups(checklist):
        rows = found.kept + len(found.broken)
        console.print(rendered(message("check.set_up", head=marked(found.head), kept=found.kept, rows=rows)))
        kept = message("check.not_kept", rows=found.not_kept) if found.broken else message("check.all_kept")
        indented(console, words(kept))
    for note in (note for side in checklist.sides for note in side.notes):
        indented(console, f"[dim]{words(note)}[/]")
    if everything:
        _tables(checklist, console, [outcome for outcome in Outcome if outcome not in (*FIRST, Outcome.BY_HAND)])
    unlike(checklist, console, everything=everything)
    by_hand(console, checklist.of(Outcome.BY_HAND), everything=everything)
    for side in checklist.sides:
        uncovered(console, side, everything=everything)
    if not everything:
        same, harmless = len(checklist.of(Outcome.SAME)), len(checklist.of(Outcome.HARMLESS))
        rest = terms([message("check.same", count=same), *([message("check.harmless", count=harmless)] if harmless else [])])
        console.print(f"[dim]{words(message('check.also', rows=rest))}[/]")


def words(text: Argument) -> str:
    """A text of a check as a console prints it."""
    return escape(rendered(text))


def marked(text: Argument, style: str = "bold") -> str:
    """A word of a line that stands out; what it is put into is printed as it is."""
    return f"[{style}]{words(text)}[/]"


def _tables(checklist: Checklist, console: Console, outcomes: Iterable[Outcome]) -> None:
    for outcome in outcomes:
        if found := checklist.of(outcome):
            console.print(table(checklist, HEADS[outcome], found, console.width))


def headline(checklist: Checklist) -> Joined:
    """What follows the verdict."""
    differing, problems = len(checklist.of(Outcome.DIFFERENT)), len(checklist.problems)
    untold = len(checklist.of(Outcome.NOT_TOLD)) + len(checklist.gaps) + sum(one.same is None for one in checklist.courses)
    rounding, same = len(checklist.of(Outcome.ROUNDING)), len(checklist.of(Outcome.SAME))
    parts = [message("headline.settings", count=differing)] if differing else []
    parts += [message("headline.course", course=one.name) for one in checklist.courses if one.same is False]
    parts += [message("headline.batches")] if checklist.alike is False else []
    return sentences(
        *(parts or [message("headline.nothing")]),
        message("headline.problems", count=problems) if problems else None,
        message("headline.untold", count=untold) if untold else None,
        message("headline.rounding", count=rounding) if rounding else None,
        message("headline.same", count=same),
    )


def table(checklist: Checklist, title: Message, found: Iterable[Checked], width: int) -> Table:
    """Rows with both values, each above the place where it was set, and what to change; nothing of it is cut."""
    grid = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title=marked(title), title_justify="left")
    rows = []
    for one in found:
        both = zip((one.reference, one.candidate), checklist.sides, strict=True)
        cells = [f"{rendered(held.shown)}\n{rendered(held.place_beside(side.source))}" for held, side in both]
        rows.append((rendered(one.row.name), *cells, rendered(reason(one))))
    names = [rendered(name) for name in (message("page.setting"), *Side, message("heading.change"))]
    for name, size in zip(names, widths([(*names,), *rows], width - BETWEEN), strict=True):
        grid.add_column(name, overflow="fold", width=size)
    for name, *values, text in rows:
        parted = [value.partition("\n") for value in values]
        grid.add_row(escape(name), *(f"{escape(shown)}\n[dim]{escape(where)}[/]" for shown, _, where in parted), escape(text))
    return grid


def reason(one: Checked) -> Joined:
    """Why a row came out as it did, and what to change."""
    return sentences(one.why, one.change.words if one.change is not None else None)


def widths(rows: Sequence[Sequence[str]], room: int) -> list[int]:
    """Letters of each column: what its longest line takes, and where that is more than there is room for, the widest give first."""
    wanted = [max(len(line) for row in rows for line in row[column].splitlines() or [""]) for column in range(len(rows[0]))]
    least = [*(min(size, NARROWEST) for size in wanted[:-1]), min(wanted[-1], 2 * NARROWEST)]
    least[0] = max([least[0], *(len(word) for row in rows for word in row[0].split() if len(word) <= WORD)])
    found = list(wanted)
    last = len(found) - 1
    while sum(found) > room and any(size > low for size, low in zip(found, least, strict=True)):
        over = max(range(len(found)), key=lambda column: (found[column] - least[column]) / (1 + (column == last)))
        found[over] -= 1
    return found


def of_course(course: Course) -> Message:
    """A schedule in a sentence."""
    return message("course.text", course=course.name, text=course.text)


def of_data(checklist: Checklist) -> list[Line]:
    """What the recorded batches show."""
    lines = [Line(checklist.data)] if checklist.data is not None else []
    for name, side in zip(Side, checklist.sides, strict=True):
        look = side.look
        if look is None:
            continue
        counted = message(
            "data.of_side",
            side=name,
            rows=look.rows,
            steps=len(look.steps),
            smallest=look.smallest if look.smallest is not None else "–",
            largest=look.largest if look.largest is not None else "–",
            counted=look.counted,
            tokens=look.tokens,
            shifted=look.shifted,
            pairs=look.pairs,
        )
        special = [
            message("data.special", name=special, id=id, times=times, counted=counted)
            for special, (times, counted, id) in look.special.items()
        ]
        problems = [message("data.problem", problem=problem) for problem in look.problems[:LISTED]]
        more = len(look.problems) - LISTED
        problems += [message("data.more_problems", count=more)] if more > 0 else []
        decoded = [message("data.reads", place=where, text=repr(text)) for where, text in look.decoded]
        lines += [Line(counted), *(Line(text, below=True) for text in (*special, *problems, *look.notes, *decoded))]
    return lines


def advised(checklist: Checklist) -> list[Message]:
    """What the guide always recommends and a side does not keep to."""
    return [
        message(
            "advised.row",
            row=one.row.name,
            advice=message("advised.not_so", advice=one.row.advice.text, sides=both(*one.advised)),
        )
        for one in checklist.checked
        if one.advised and one.row.advice is not None and one.row.advice.setup is None
    ]


def setups(checklist: Checklist) -> list[SetUp]:
    """Each set-up of the guide."""
    found = []
    for occasion in dict.fromkeys(one.row.advice.setup for one in checklist.checked if one.row.advice and one.row.advice.setup):
        rows = [one for one in checklist.checked if one.row.advice and one.row.advice.setup is occasion]
        broken = tuple(_held(one) for one in rows if one.advised)
        found.append(SetUp(SET_UPS[occasion], len(rows) - len(broken), broken))
    return found


def _held(one: Checked) -> Message:
    """What both sides hold of a row, once where it is the same."""
    ours, theirs = (held.shown if held.meaning is not None and held.shown != "" else "–" for held in (one.reference, one.candidate))
    if ours == theirs:
        return message("check.value", name=one.row.name, value=ours)
    return message("check.values", name=one.row.name, reference=ours, candidate=theirs)


def listed(console: Console, head: Argument, lines: Sequence[Argument]) -> None:
    """A few lines under a head."""
    if lines:
        console.print(marked(head))
    for line in lines[:TRAPS]:
        indented(console, words(line))
    if len(lines) > TRAPS:
        console.print(f"  {words(message('check.more', count=len(lines) - TRAPS))}")


def unlike(checklist: Checklist, console: Console, *, everything: bool) -> None:
    """Settings that differ and that no row covers, of two sides of one framework."""
    if everything:
        for name, one, other in checklist.unlike:
            indented(console, words(message("check.not_covered_one", name=name, reference=one, candidate=other)))
    elif checklist.unlike:
        some = terms(message("check.values", name=name, reference=one, candidate=other) for name, one, other in checklist.unlike[:LISTED])
        indented(console, words(message("check.unlike", count=len(checklist.unlike), settings=some)))


def by_hand(console: Console, found: tuple[Checked, ...], *, everything: bool) -> None:
    """What neither configuration nor record can tell, with how to look at it."""
    head = HEADS[Outcome.BY_HAND]
    if found and everything:
        listed(console, head, [message("check.how", row=one.row.name, how=one.row.by_hand) for one in found])
    elif found:
        names = words(terms(one.row.name for one in found))
        console.print(rendered(message("check.by_hand", head=marked(head), rows=names)))


def uncovered(console: Console, side: CheckedSide, *, everything: bool) -> None:
    """Names that were set and that no row looks at."""
    names = [f"{name} {rendered(shown)}".strip() if everything else name for name, shown, _ in side.not_covered]
    if not names:
        return
    head, framework = message("heading.not_covered"), side.framework
    if side.recorded and not everything:
        console.print(f"[dim]{words(message('check.not_covered_recorded', head=head, framework=framework, count=len(names)))}[/]")
        return
    few = names if everything else names[:LISTED]
    more = len(names) - len(few)
    shown = message("check.more_listed", names=terms(few), count=more) if more else terms(few)
    console.print(f"[dim]{words(message('check.not_covered', head=head, framework=framework, names=shown))}[/]")
