"""A pair without updates as a document: the verdict, the differences, and outlying steps with data and command."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from align_hooks.comparison.finding import when
from align_hooks.comparison.optimizer.zero_lr import Shared, Unmoved
from align_hooks.comparison.verdict import ComparisonResult
from align_hooks.messages import message
from align_hooks.report.blocks import STEP, Code, DocumentBlock, Items, Paragraph, Table
from align_hooks.report.curve_plots import TITLES
from align_hooks.report.document import Document
from align_hooks.report.json import Shape, Shapes, encoded
from align_hooks.scenarios.frozen import IsolatedStep

SHOWN = 5
"""The most outlying steps of a number that are listed."""


def document(
    comparison: ComparisonResult,
    numbers: Sequence[Unmoved],
    isolated: Sequence[IsolatedStep],
    shared: Sequence[Shared],
    asked: int,
    decode: Callable[[list[int]], str] | None = None,
) -> Document:
    """Return the report; ``decode`` makes text of ids."""
    blocks: list[DocumentBlock] = [*outlying(numbers, shared, decode), *commands_of(isolated), table(numbers)]
    count = max((number.steps for number in numbers), default=0)
    if count < asked:
        blocks.append(Paragraph(message("frozen.fewer", count=count, asked=asked), "dim"))
    return Document(comparison.verdict, comparison.headline, blocks)


def outlying(numbers: Sequence[Unmoved], shared: Sequence[Shared], decode: Callable[[list[int]], str] | None) -> Iterator[Paragraph]:
    """Yield the first steps of each number at which it differs more than usual, and the ids of tokens that such steps have in common."""
    for number in numbers:
        for step, difference in number.out[:SHOWN]:
            values = {"what": TITLES[number.name], "step": when(step), "difference": difference, "usual": number.median}
            yield Paragraph(message("frozen.stands_out", **values), "red")
    for token in shared:
        named = str(token.id) if decode is None else f"{token.id} ({decode([token.id])!r})"
        yield Paragraph(message("frozen.shared_id", id=named, elsewhere=token.elsewhere, count=token.steps), "red")


def commands_of(isolated: Sequence[IsolatedStep]) -> Iterator[DocumentBlock]:
    """Yield the samples of each outlying step, and the commands that run it by itself."""
    for each in isolated:
        yield Items([message("departure.text", row=row, text=text) for row, text in enumerate(each.samples)], indent=2 * STEP)
        yield Paragraph(message("frozen.run_alone", step=when(each.step)))
        yield Code(each.commands)


def table(numbers: Sequence[Unmoved]) -> Table:
    """Return a table with a line for each number: its steps, its usual and its largest difference."""
    heads = ("watch.number", "frozen.steps", "frozen.usual", "frozen.largest", "frozen.standing_out", "frozen.at")
    rows = [
        (TITLES[number.name], str(number.steps), f"{number.median:.3g}", f"{number.largest:.3g}", str(len(number.out)), when(number.at))
        for number in numbers
    ]
    return Table([*map(message, heads)], rows, numbers=(1, 2, 3, 4))


JSON: Shapes = {
    Unmoved: Shape(
        "number=name steps median largest at standing_out",
        standing_out=lambda number: [{"step": step, "difference": difference} for step, difference in number.out],
    ),
    Shared: Shape("id steps elsewhere"),
}


def as_json(
    comparison: ComparisonResult, numbers: Sequence[Unmoved], isolated: Sequence[IsolatedStep], shared: Sequence[Shared]
) -> dict[str, object]:
    """Return the report for programs."""
    return {
        "verdict": comparison.verdict.text,
        "first_id": comparison.first.stage.id if comparison.first else None,
        "numbers": encoded(numbers, JSON),
        "shared_ids": encoded(shared, JSON),
        "commands": {str(each.step): [*each.commands] for each in isolated},
    }
