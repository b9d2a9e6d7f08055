"""A pair without updates on a terminal: the verdict, how far steps differ, and those that stand out with their data and their command."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from align_hooks.comparison.data.shared_ids import Shared
from align_hooks.comparison.finding import when
from align_hooks.comparison.optimizer.zero_lr import Unmoved
from align_hooks.comparison.verdict import ComparisonResult
from align_hooks.messages import message, rendered
from align_hooks.record.format.schema import Table as Data
from align_hooks.report.console import STEP, Trimmed, command, grid, paragraph, style_of, verdict
from align_hooks.report.curve_plots import TITLES
from align_hooks.report.machine import members
from align_hooks.scenarios.frozen import Alone

SHOWN = 5
"""Steps of a number that stand out and are listed."""


def render(
    comparison: ComparisonResult,
    numbers: Sequence[Unmoved],
    alone: Sequence[Alone],
    shared: Sequence[Shared],
    asked: int,
    console: Console,
    decode: Callable[[list[int]], str] | None = None,
) -> None:
    """Print all of it; ``decode`` makes text of ids."""
    verdict(console, comparison.verdict, style_of(comparison.verdict), comparison.headline)
    for number in numbers:
        for step, difference in number.out[:SHOWN]:
            values = {"what": TITLES[number.name], "step": when(step), "difference": difference, "usual": number.median}
            paragraph(console, message("frozen.stands_out", **values), style="red")
    for one in shared:
        named = str(one.id) if decode is None else f"{one.id} ({decode([one.id])!r})"
        paragraph(console, message("frozen.shared_id", id=named, elsewhere=one.elsewhere, count=one.steps), style="red")
    for each in alone:
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
    """One line a number: over how many steps, what it usually differs by, and where most."""
    heads = ("watch.number", "frozen.steps", "frozen.usual", "frozen.largest", "frozen.standing_out", "frozen.at")
    made = grid(*map(message, heads), numbers=(1, 2, 3, 4))
    for number in numbers:
        cells = (str(number.steps), f"{number.median:.3g}", f"{number.largest:.3g}", str(len(number.out)), rendered(when(number.at)))
        made.add_row(Text(rendered(TITLES[number.name])), *map(Text, cells))
    return made


def as_json(comparison: ComparisonResult, numbers: Sequence[Unmoved], alone: Sequence[Alone], shared: Sequence[Shared]) -> Data:
    """The same for programs."""
    found = [
        {
            "number": number.name,
            **members(number, "steps", "median", "largest", "at"),
            "standing_out": [{"step": step, "difference": difference} for step, difference in number.out],
        }
        for number in numbers
    ]
    first = comparison.first.stage.id if comparison.first else None
    return {
        "verdict": comparison.verdict.text,
        "first_id": first,
        "numbers": found,
        "shared_ids": [members(one, "id", "steps", "elsewhere") for one in shared],
        "commands": {str(each.step): [*each.commands] for each in alone},
    }
