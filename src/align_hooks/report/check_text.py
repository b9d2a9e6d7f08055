"""A check on a terminal: what differs first, each with both values, where they were set and what to change. Fits 80 columns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from align_hooks.checklist.judge import Checked, Outcome
from align_hooks.checklist.result import CLEAN, DIFFERS, Checklist, Course, Side
from align_hooks.report.text import escape, indented

COLOUR = {CLEAN: "bold green", DIFFERS: "bold red"}
HEADS = {
    Outcome.DIFFERENT: "Differs, and changes the result",
    Outcome.NOT_TOLD: "Matters, and one side does not say it",
    Outcome.ROUNDING: "Differs in rounding only",
    Outcome.HARMLESS: "Differs, without harm",
    Outcome.SAME: "The same",
    Outcome.ALONE: "On one side only",
    Outcome.BY_HAND: "Check by hand",
    Outcome.UNUSED: "Not used on either side",
}
FIRST = (Outcome.DIFFERENT, Outcome.NOT_TOLD, Outcome.ROUNDING)
"""What every reader sees; the rest where it is asked for."""
BARE = re.compile(r"\w+: ")
"""A change of MindFormers' model, told without its section."""
LISTED, TRAPS = 8, 12
BETWEEN, NARROWEST, WORD = 9, 12, 20
"""Letters around and between the four columns, of the narrowest of them, and of a name that is not broken: longer text goes on in the
next line, and the change has twice as much room as the others."""


def render_check(checklist: Checklist, console: Console, *, everything: bool = False) -> None:
    """Print a check, all rows of it with ``everything``."""
    colour = COLOUR.get(checklist.exit_code, "bold yellow")
    console.print(f"[{colour}]{escape(verdict(checklist))}[/]{escape(headline(checklist))}")
    for name, side in zip(("reference", "candidate"), checklist.sides, strict=True):
        console.print(f"  {name}  {side.framework:<11}  {escape(side.source)}", soft_wrap=True)
    for outcome in FIRST:
        if found := checklist.of(outcome):
            console.print(table(checklist, HEADS[outcome], found, console.width))
    if any(BARE.match(one.change) for outcome in FIRST for one in checklist.of(outcome)):
        indented(console, "[dim]names with no section before them stand under model.model_config[/]")
    listed(console, "Could not be followed, and may say more", checklist.gaps)
    for course in checklist.courses:
        indented(console, escape(of_course(course)))
    for text in of_data(checklist):
        indented(console, escape(text))
    listed(console, "Traps", [trap for side in checklist.sides for trap in side.traps])
    listed(console, "Against the guide's advice", advised(checklist))
    for occasion, kept, broken in setups(checklist):
        console.print(f"[bold]The guide's set-up for {escape(occasion)}[/]: kept in {kept} of {kept + len(broken)}")
        indented(console, escape("not kept: " + "; ".join(broken)) if broken else "all of it")
    for note in (note for side in checklist.sides for note in side.notes):
        indented(console, f"[dim]{escape(note)}[/]")
    if everything:
        for outcome in Outcome:
            if outcome not in (*FIRST, Outcome.BY_HAND) and (found := checklist.of(outcome)):
                console.print(table(checklist, HEADS[outcome], found, console.width))
        for name, one, other in checklist.unlike:
            indented(console, f"no row covers {escape(name)}: {escape(one)} against {escape(other)}")
    elif checklist.unlike:
        some = ", ".join(f"{name} ({one} against {other})" for name, one, other in checklist.unlike[:LISTED])
        indented(console, f"{len(checklist.unlike)} settings that no row covers differ too: {escape(some)}")
    by_hand(console, checklist.of(Outcome.BY_HAND), everything=everything)
    for side in checklist.sides:
        uncovered(console, side, everything=everything)
    if not everything:
        same, harmless = len(checklist.of(Outcome.SAME)), len(checklist.of(Outcome.HARMLESS))
        rest = f"{same} the same" + (f", {harmless} {'differ' if harmless > 1 else 'differs'} without harm" if harmless else "")
        console.print(f"[dim]also: {rest} (--all lists them)[/]")


def verdict(checklist: Checklist) -> str:
    """The outcome in a word."""
    return {CLEAN: "clean", DIFFERS: "differs"}.get(checklist.exit_code, "inconclusive")


def headline(checklist: Checklist) -> str:
    """What follows that word."""
    differing, untold = len(checklist.of(Outcome.DIFFERENT)), len(checklist.of(Outcome.NOT_TOLD)) + len(checklist.gaps)
    untold += sum(one.same is None for one in checklist.courses)
    changed = "1 setting differs and changes the result" if differing == 1 else f"{differing} settings differ and change the result"
    parts = [changed] if differing else []
    parts += [f"{one.name} differs" for one in checklist.courses if one.same is False]
    parts += ["recorded batches differ"] if checklist.alike is False else []
    parts = parts or ["nothing that changes the result differs"]
    problems = len(checklist.problems)
    parts += [f"{problems} problem{'s' if problems > 1 else ''} in the data"] if problems else []
    parts += [f"{untold} cannot be told"] if untold else []
    rounding = len(checklist.of(Outcome.ROUNDING))
    parts += [f"{rounding} {'differ' if rounding > 1 else 'differs'} in rounding"] if rounding else []
    same = len(checklist.of(Outcome.SAME))
    return f": {'; '.join(parts)}; {same} {'is' if same == 1 else 'are'} the same"


def table(checklist: Checklist, title: str, found: Iterable[Checked], width: int) -> Table:
    """Rows with both values, each above the place where it was set, and what to change; nothing of it is cut."""
    grid = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title=f"[bold]{title}[/]", title_justify="left")
    rows = []
    for one in found:
        both = zip((one.reference, one.candidate), checklist.sides, strict=True)
        cells = [f"{held.shown}\n{place(held.where, side)}" for held, side in both]
        rows.append((one.row.name, *cells, "; ".join(filter(None, (one.why, one.change)))))
    names = ("setting", "reference", "candidate", "change or reason")
    for name, size in zip(names, widths([(*names,), *rows], width - BETWEEN), strict=True):
        grid.add_column(name, overflow="fold", width=size)
    for name, *values, text in rows:
        parted = [value.partition("\n") for value in values]
        grid.add_row(escape(name), *(f"{escape(shown)}\n[dim]{escape(where)}[/]" for shown, _, where in parted), escape(text))
    return grid


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


def place(where: str, side: Side) -> str:
    """A place as short as it is clear: without the flag that stands there, and of the side's own file the line."""
    short = where.partition(" --")[0]
    return f"line {short.rpartition(':')[2]}" if short.startswith(f"{side.source}:") else short


def of_course(course: Course) -> str:
    """A schedule in a sentence."""
    return f"{course.name}: {course.text}"


def of_data(checklist: Checklist) -> list[str]:
    """What the recorded batches show."""
    lines = [checklist.data] if checklist.data else []
    for name, side in zip(("reference", "candidate"), checklist.sides, strict=True):
        look = side.look
        if look is None:
            continue
        lines.append(
            f"data of the {name}: {look.rows} samples of {len(look.steps)} steps, ids {look.smallest} to {look.largest}, "
            f"{look.counted} of {look.tokens} tokens count, {look.shifted} of {look.pairs} labels are the next token"
        )
        lines += [
            f"  {special}: id {token}, {held} times, {counted} where the loss counts"
            for special, (held, counted, token) in look.special.items()
        ]
        lines += [f"  problem: {problem}" for problem in look.problems[:LISTED]]
        lines += [f"  and {len(look.problems) - LISTED} more problems"] if len(look.problems) > LISTED else []
        lines += [f"  {note}" for note in look.notes]
        lines += [f"  {where} reads: {text!r}" for where, text in look.decoded]
    return lines


def advised(checklist: Checklist) -> list[str]:
    """What the guide always recommends and a side does not keep to."""
    return [f"{one.row.name}: {one.advised}" for one in checklist.checked if one.advised and one.row.advice and not one.row.advice.setup]


def setups(checklist: Checklist) -> list[tuple[str, int, list[str]]]:
    """Each set-up of the guide: its occasion, how many of its rows both sides keep to, and those that they do not."""
    found = []
    for occasion in dict.fromkeys(one.row.advice.setup for one in checklist.checked if one.row.advice and one.row.advice.setup):
        rows = [one for one in checklist.checked if one.row.advice and one.row.advice.setup == occasion]
        broken = [f"{one.row.name} ({_held(one)})" for one in rows if one.advised]
        found.append((occasion, len(rows) - len(broken), broken))
    return found


def _held(one: Checked) -> str:
    """What both sides hold, once where it is the same."""
    shown = [value if value not in ("", "None") else "–" for value in (one.reference.shown, one.candidate.shown)]
    return " against ".join(dict.fromkeys(shown))


def listed(console: Console, head: str, lines: list[str]) -> None:
    """A few lines under a head."""
    if lines:
        console.print(f"[bold]{head}[/]")
    for line in lines[:TRAPS]:
        indented(console, escape(line))
    if len(lines) > TRAPS:
        console.print(f"  and {len(lines) - TRAPS} more")


def by_hand(console: Console, found: tuple[Checked, ...], *, everything: bool) -> None:
    """What neither configuration nor record can tell, with how to look at it."""
    if found and everything:
        listed(console, HEADS[Outcome.BY_HAND], [f"{one.row.name}: {one.row.by_hand}" for one in found])
    elif found:
        names = ", ".join(one.row.name for one in found)
        console.print(f"[bold]Check by hand[/] (--all says how): {escape(names)}")


def uncovered(console: Console, side: Side, *, everything: bool) -> None:
    """Names that were set and that no row looks at."""
    names = [f"{name} {shown}".strip() if everything else name for name, shown, _ in side.not_covered]
    if not names:
        return
    if side.recorded and not everything:
        console.print(f"[dim]Not covered, {side.framework}: {len(names)} settings of run.json (--all lists them)[/]")
        return
    few = names if everything else names[:LISTED]
    more = f" and {len(names) - len(few)} more (--all lists them)" if len(names) > len(few) else ""
    console.print(f"[dim]Not covered, {side.framework}: {escape(', '.join(few))}{more}[/]")
