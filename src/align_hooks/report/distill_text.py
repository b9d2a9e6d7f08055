"""A distilled run on a terminal: the file's contents, their sizes, and what was left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.text import Text

from align_hooks.messages import message, rendered
from align_hooks.record.inventory import OTHER, ranges
from align_hooks.report.console import Trimmed, command, grid, paragraph, plain
from align_hooks.report.text import size


def render_distilled(
    place: str, total: int, kept: Mapping[str, Sequence[int]], sizes: Mapping[str, int], left_out: Mapping[str, str], console: Console
) -> None:
    """Print the contents of the file ``place`` of ``total`` bytes, by quantity: steps ``kept``, ``sizes`` in bytes, steps ``left_out``."""
    command(console, rendered(message("distill.written", place=place, size=size(total))), indent=0)  # in one line: the path is copied
    table = grid(message("distill.holds"), message("distill.size"), message("distill.steps"), numbers=(1,))
    for name, steps in kept.items():
        table.add_row(Text(plain(name)), size(sizes.get(name, 0)), f"{ranges(tuple(steps))} ({len(steps)})")
    table.add_row(Text(rendered(message("distill.facts"))), size(sizes.get(OTHER, 0)), "")
    console.print(Trimmed(table))
    for name, lost in left_out.items():
        paragraph(console, message("distill.left_out", name=name, steps=lost, number=1 if lost.isdecimal() else 2))
