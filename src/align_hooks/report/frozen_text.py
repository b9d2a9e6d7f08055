"""A pair without updates on a terminal: the verdict, the differences, and outlying steps with data and command."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from align_hooks.comparison.finding import when
from align_hooks.comparison.optimizer.zero_lr import Shared, Unmoved
from align_hooks.comparison.verdict import ComparisonResult
from align_hooks.messages import message, rendered
from align_hooks.record.format.schema import Table as Data
from align_hooks.report.console import STEP, Trimmed, command, grid, paragraph, style_of, verdict
from align_hooks.report.curve_plots import TITLES
from align_hooks.report.machine import members
from align_hooks.scenarios.frozen import IsolatedStep

SHOWN = 5
"""The most outlying steps of a number that are listed."""


def render(
    comparison: ComparisonResult,
    numbers: Sequence[Unmoved],
    isolated: Sequence[IsolatedStep],
    shared: Sequence[Shared],
    asked: int,
    console: Console,
    decode: Callable[[list[int]], str] | None = None,
) -> None:
    """Print the report; ``decode`` makes text of ids."""
    verdict(console, comparison.verdict, style_of(comparison.verdict), comparison.headline)
    for number in numbers:
        for step, difference in number.out[:SHOWN]:
            values = {"what": TITLES[number.name], "step": when(step), "difference": difference, "usual": number.median}
            paragraph(console, message("frozen.stands_out", **values), style="red")
    for token in shared:
        named = str(token.id) if decode is None else f"{token.id} ({decode([token.id])!r})"
        paragraph(console, message("frozen.shared_id", id=named, elsewhere=token.elsewhere, count=token.steps), style="red")
    for each in isolated:
        for row, text in enumerate(each.samples):
            paragraph(console, message("departure.text", row=row, text=text), 2 * STEP)
        paragraph(console, message("frozen.run_alone", step=when(each.step)))
        for line in each.commands:
            command(console, line)
    console.print(Trimmed(table(numbers)))
    count = max((number.steps for number in numbers), default=0)
    if count < asked:
        paragraph(console, message("frozen.fewer", count=count, asked=asked), style="dim")


def table(numbers: Sequence[Unmoved]) -> Table:
    """Return a table with a line for each number: its steps, its usual and its largest difference."""
    heads = ("watch.number", "frozen.steps", "frozen.usual", "frozen.largest", "frozen.standing_out", "frozen.at")
    made = grid(*map(message, heads), numbers=(1, 2, 3, 4))
    for number in numbers:
        cells = (str(number.steps), f"{number.median:.3g}", f"{number.largest:.3g}", str(len(number.out)), rendered(when(number.at)))
        made.add_row(Text(rendered(TITLES[number.name])), *map(Text, cells))
    return made


def as_json(comparison: ComparisonResult, numbers: Sequence[Unmoved], isolated: Sequence[IsolatedStep], shared: Sequence[Shared]) -> Data:
    """Return the report for programs."""
    return {
        "verdict": comparison.verdict.text,
        "first_id": comparison.first.stage.id if comparison.first else None,
        "numbers": [
            {
                "number": number.name,
                **members(number, "steps", "median", "largest", "at"),
                "standing_out": [{"step": step, "difference": difference} for step, difference in number.out],
            }
            for number in numbers
        ],
        "shared_ids": [members(token, "id", "steps", "elsewhere") for token in shared],
        "commands": {str(each.step): [*each.commands] for each in isolated},
    }
