"""A comparison on a terminal: the verdict, the one thing to look at, the ladder, the acceptance standard.

Fits 80 columns and a screen. A stage is a line, on which what was compared may be cut; why a stage was not compared follows below. The
page and the JSON have all of it. Colour only where the console has it.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.markup import escape as escape_markup
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from align_hooks.comparison.verdict import Blame, Comparison, Criterion, Finding, StageResult, Status, Unit, Value, Verdict
from align_hooks.messages import Argument, Joined, Message, Separator, in_a_row, message, rendered, sentences, terms

COLOUR = {
    Status.SAME: "green",
    Status.DIFFERENT: "bold red",
    Status.INCONCLUSIVE: "yellow",
    Status.NOT_COMPARABLE: "bold magenta",
    Status.INCOMPLETE: "magenta",
    Status.NOT_COMPARED: "dim",
}
VERDICT_COLOUR = {
    Verdict.ALIGNED: "bold green",
    Verdict.DIVERGED: "bold red",
    Verdict.NOT_COMPARABLE: "bold magenta",
    Verdict.INCONCLUSIVE: "bold yellow",
}
JUDGED = {None: ("dim", message("page.not_judged")), True: ("green", message("page.passed")), False: ("red", message("page.failed"))}
UNTOLD = (Status.NOT_COMPARED, Status.INCOMPLETE, Status.NOT_COMPARABLE)
"""Stages of which a reader must know why."""
SHOWN, TENSORS, SETTINGS = 3, 3, 8
"""The most findings, suspects and settings that are listed."""


def escape(text: Argument) -> str:
    """A message, or text of a record, as itself: neither markup nor a terminal's control sequences."""
    return escape_markup(plain(rendered(text)))


def plain(text: str) -> str:
    """Text without a terminal's control sequences, which show as their escapes."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def shown(value: Value) -> Argument:
    """A side's value as a finding shows it: nine digits of a number, which tell one fp32 from another."""
    return f"{value:.9g}" if isinstance(value, float) else value


def size(count: int) -> str:
    """Bytes as people read them: decimal units, three digits."""
    number, unit = float(count), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if number < 999.5:
            break
        number, unit = number / 1000, larger
    return f"{number:.3g} {unit}"


def render(comparison: Comparison, console: Console) -> None:
    """Print a comparison."""
    verdict = f"[{VERDICT_COLOUR[comparison.verdict]}]{escape(comparison.verdict)}[/]"
    console.print(f"{verdict}: {escape(headline(comparison))}")
    findings = comparison.first.findings if comparison.first is not None else ()
    for finding in findings[:SHOWN]:
        indented(console, escape(describe(finding, comparison.eps)))
    for line in blamed(comparison.blame) if comparison.blame is not None else ():
        indented(console, escape(line))
    if comparison.next:
        indented(console, escape(message("terminal.next", what=comparison.next)))
    if comparison.settings:
        indented(console, escape(settings(comparison.settings)))
    console.print(ladder(comparison.stages))
    for stage in comparison.stages:
        if stage.status in UNTOLD and stage is not comparison.first:
            line = message("terminal.stage_status", stage=stage.title, status=stage.status, summary=stage.summary)
            indented(console, escape(line))
    console.print(escape(message("terminal.acceptance")))
    criteria(comparison.acceptance, console)
    for note in comparison.notes:
        indented(console, f"[dim]{escape(note)}[/]")
    if comparison.first is not None and findings:  # what a reader sees last, too
        last = message("terminal.stage_says", stage=comparison.first.title, summary=describe(findings[0], comparison.eps))
        console.print(f"{verdict}: {escape(last)}")


def criteria(acceptance: Sequence[Criterion], console: Console) -> None:
    """Print the lines of the acceptance standard."""
    for criterion in acceptance:
        colour, judged = JUDGED[criterion.passed]
        line = message("terminal.criterion", what=criterion.what, value=criterion.found)
        console.print(f"  [{colour}]{escape(judged)}[/]  {escape(line)}")


def indented(console: Console, markup: str) -> None:
    """Print a paragraph two columns in, its later lines too."""
    console.print(Padding(markup, (0, 0, 0, 2), expand=False))


def blamed(blame: Blame) -> list[Argument]:
    """Where the fault sits, the first suspects, and what it likely is."""
    suspects = sentences(*(suspect.what for suspect in blame.suspects[:TENSORS]))
    suspected = message("terminal.first_suspects", suspects=suspects) if blame.suspects else None
    place = sentences(message("terminal.sits_in", place=blame.place), suspected)
    return [place, *(message("terminal.likely", cause=cause) for cause in blame.likely)]


def settings(unlike: tuple[Finding, ...]) -> Message:
    """The model settings that differ, the first of many."""
    first = [message("terminal.setting", name=finding.what, values=values(finding)) for finding in unlike[:SETTINGS]]
    more = message("terminal.more_settings", count=len(unlike) - SETTINGS) if len(unlike) > SETTINGS else None
    return message("terminal.settings_differ", settings=sentences(*first, more))


def headline(comparison: Comparison) -> Argument:
    """What follows the verdict on its line."""
    first, text = comparison.first, comparison.agreement
    if first is not None:
        text = message("terminal.stage_says", stage=first.title, summary=first.summary)
    not_compared = [stage.title for stage in comparison.stages if stage.status is Status.NOT_COMPARED]
    return message("terminal.left_out", what=text, stages=terms(not_compared)) if not_compared else text


def ladder(stages: tuple[StageResult, ...]) -> Table:
    """The stages in their order, each with what was compared and its worst error against its limit."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), expand=False)
    table.add_column(escape(message("page.stage")), no_wrap=True)
    table.add_column(escape(message("page.result")), no_wrap=True)
    table.add_column(escape(message("terminal.worst")), no_wrap=True, justify="right")
    table.add_column(escape(message("page.compared")))
    for stage in stages:
        compared = Text(plain(rendered(stage.summary)), no_wrap=True, overflow="ellipsis")
        result = f"[{COLOUR[stage.status]}]{escape(stage.status)}[/]"
        measured = worst(stage)
        numbers = message("terminal.error_of_limit", error=measured.error, limit=measured.limit) if measured else None
        table.add_row(escape(stage.title), result, escape(numbers), compared)
    return table


def worst(stage: StageResult) -> Finding | None:
    """The finding of a stage that is furthest beyond its limit, among those with a relative error."""
    measured = (finding for finding in stage.findings if finding.error is not None and finding.limit is not None)
    return next((finding for finding in measured if finding.unit is Unit.RELATIVE), None)


def describe(finding: Finding, eps: float) -> Argument:
    """One finding as a line, its error also in eps of the compute type."""
    sides = values(finding)
    line: Argument = message("terminal.finding", what=finding.what, values=sides) if sides.parts else finding.what
    if finding.error is None or finding.limit is None or finding.unit is not Unit.RELATIVE:  # roundings stand among the values
        return line
    return message("terminal.finding_error", finding=line, error=finding.error, eps=finding.error / eps, limit=finding.limit)


def values(finding: Finding) -> Joined:
    """What both sides have of what was compared; of a side that has nothing, nothing."""
    sides = (shown(value) for value in (finding.reference, finding.candidate))
    return in_a_row((value for value in sides if value != ""), Separator.AGAINST)
