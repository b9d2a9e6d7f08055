"""A comparison on a terminal: the verdict, the one thing to look at, the ladder, the acceptance standard.

Fits 80 columns and a screen: a stage is a line, on which what was compared may be cut, and why a stage was not compared follows below; the
page and the JSON have all of it. Colour only where the console has it.
"""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.markup import escape as escape_markup
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from align_hooks.compare.verdict import Blame, Comparison, Finding, Stage, Status, Unit, Value, Verdict
from align_hooks.messages import Argument, rendered

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
UNTOLD = (Status.NOT_COMPARED, Status.INCOMPLETE, Status.NOT_COMPARABLE)
"""Stages of which a reader must know why."""
SHOWN, TENSORS, SETTINGS = 3, 3, 8


def escape(text: str) -> str:
    """Text of a record, as itself: neither markup nor a terminal's control sequences."""
    return escape_markup(plain(text))


def plain(text: str) -> str:
    """The same for what is not read as markup."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


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
    colour = VERDICT_COLOUR[comparison.verdict]
    console.print(f"[{colour}]{comparison.verdict.text}[/]{escape(headline(comparison))}")
    if comparison.first is not None:
        for finding in comparison.first.findings[:SHOWN]:
            indented(console, escape(describe(finding, comparison.eps)))
    if comparison.blame is not None:
        for line in blamed(comparison.blame):
            indented(console, escape(line))
    if comparison.next:
        indented(console, f"next: {escape(comparison.next)}")
    if comparison.settings:
        listed = "; ".join(
            f"{finding.what} {shown(finding.reference)} against {shown(finding.candidate)}" for finding in comparison.settings[:SETTINGS]
        )
        listed += f"; and {len(comparison.settings) - SETTINGS} more" if len(comparison.settings) > SETTINGS else ""
        indented(console, f"model settings that differ: {escape(listed)}")
    console.print(ladder(comparison.stages))
    for stage in comparison.stages:
        if stage.status in UNTOLD and stage is not comparison.first:
            indented(console, f"{escape(stage.name)} {stage.status.value}: {escape(stage.summary)}")
    console.print("The guide's acceptance standard:")
    for criterion in comparison.acceptance:
        result = {True: "[green]passed[/]", False: "[red]failed[/]", None: "[dim]not judged[/]"}[criterion.passed]
        console.print(f"  {result}  {escape(criterion.what)}: {escape(criterion.value)}")
    for note in comparison.notes:
        indented(console, f"[dim]{escape(note)}[/]")
    if comparison.first is not None and comparison.first.findings:  # what a reader sees last, too
        last = f": {comparison.first.name} — {describe(comparison.first.findings[0], comparison.eps)}"
        console.print(f"[{colour}]{comparison.verdict.text}[/]{escape(last)}")


def indented(console: Console, markup: str) -> None:
    """Print a paragraph two columns in, its later lines too."""
    console.print(Padding(markup, (0, 0, 0, 2), expand=False))


def blamed(blame: Blame) -> list[str]:
    """Where the fault sits, the first suspects, and what it likely is."""
    lines = [f"it sits in: {blame.place}" + (f"; first suspects: {'; '.join(blame.suspects[:TENSORS])}" if blame.suspects else "")]
    return [*lines, *(f"likely: {one}" for one in blame.causes)]


def headline(comparison: Comparison) -> str:
    """What follows the verdict on its line."""
    left = [stage.name for stage in comparison.stages if stage.status is Status.NOT_COMPARED]
    beside = f" (not compared: {', '.join(left)})" if left else ""
    if comparison.first is None:
        return f": {comparison.agreement}{beside}"
    return f": {comparison.first.name} — {comparison.first.summary}{beside}"


def ladder(stages: tuple[Stage, ...]) -> Table:
    """The stages in their order, each with what was compared and its worst error against its limit."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), expand=False)
    table.add_column("stage", no_wrap=True)
    table.add_column("result", no_wrap=True)
    table.add_column("worst", no_wrap=True, justify="right")
    table.add_column("compared")
    for stage in stages:
        compared = Text(plain(stage.summary), no_wrap=True, overflow="ellipsis")
        table.add_row(escape(stage.name), f"[{COLOUR[stage.status]}]{stage.status.value}[/]", worst(stage), compared)
    return table


def worst(stage: Stage, beside: str = " of ") -> str:
    """A stage's largest relative error beside its limit."""
    numbers = [one for one in stage.findings if one.error is not None and one.limit is not None and one.unit is Unit.RELATIVE]
    return f"{numbers[0].error:.1e}{beside}{numbers[0].limit:.0e}" if numbers else ""


def describe(finding: Finding, eps: float) -> str:
    """One finding as a line, its error also in eps of the compute type."""
    values = " against ".join(filter(None, (rendered(shown(one)) for one in (finding.reference, finding.candidate))))
    values = f": {values}" if values else ""
    error = (
        f", error {finding.error:.3g} ({finding.error / eps:.3g} eps), limit {finding.limit:.3g}"
        if finding.error is not None and finding.limit is not None and finding.unit is Unit.RELATIVE  # roundings stand among the values
        else ""
    )
    return f"{finding.what}{values}{error}"
