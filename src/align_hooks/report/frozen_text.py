"""A pair without updates on a terminal: the verdict, how far steps differ, and those that stand out with their data and their command."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from align_hooks.comparison.unmoved import Unmoved
from align_hooks.comparison.verdict import Comparison, when
from align_hooks.messages import message, rendered
from align_hooks.record.schema import Table as Data
from align_hooks.report.text import VERDICT_COLOUR, escape
from align_hooks.report.titles import TITLES
from align_hooks.scenarios.frozen import Alone

SHOWN = 5
"""Steps of a number that stand out and are listed."""


def render(
    comparison: Comparison,
    numbers: Sequence[Unmoved],
    alone: Sequence[Alone],
    asked: int,
    console: Console,
) -> None:
    """Print all of it."""
    verdict, first = comparison.verdict, comparison.first
    where = f": {escape(first.title)} — {escape(first.summary)}" if first is not None else ""
    console.print(f"[{VERDICT_COLOUR[verdict]}]{escape(verdict)}[/]{where}", soft_wrap=True)
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("watch.number", "frozen.steps", "frozen.usual", "frozen.largest", "frozen.at", "frozen.standing_out"):
        made.add_column(rendered(message(title)), justify="left" if title == "watch.number" else "right")
    for number in numbers:
        cells = (f"{number.median:.3g}", f"{number.largest:.3g}", str(number.at), str(len(number.out)))
        made.add_row(rendered(TITLES[number.name]), str(number.steps), *cells)
    console.print(made)
    count = max((number.steps for number in numbers), default=0)
    if count < asked:
        console.print(f"  [dim]{escape(message('frozen.fewer', count=count, asked=asked))}[/]")
    for number in numbers:
        for step, difference in number.out[:SHOWN]:
            what = message("frozen.stands_out", what=TITLES[number.name], step=when(step), difference=difference, usual=number.median)
            console.print(f"  [red]{escape(what)}[/]", soft_wrap=True)
    for each in alone:
        for row, text in enumerate(each.samples):
            console.print(f"    {escape(message('departure.text', row=row, text=text))}", soft_wrap=True)
        console.print(f"  {escape(message('frozen.run_alone', step=each.step))}", soft_wrap=True)
        for command in each.commands:
            console.print(f"    {escape(command)}", soft_wrap=True)


def as_json(comparison: Comparison, numbers: Sequence[Unmoved], alone: Sequence[Alone]) -> Data:
    """The same for programs."""
    found = [
        {
            "number": number.name,
            "steps": number.steps,
            "median": number.median,
            "largest": number.largest,
            "at": number.at,
            "standing_out": [{"step": step, "difference": difference} for step, difference in number.out],
        }
        for number in numbers
    ]
    first = comparison.first.stage.id if comparison.first else None
    return {
        "verdict": comparison.verdict.text,
        "first_id": first,
        "numbers": found,
        "commands": {str(each.step): [*each.commands] for each in alone},
    }
