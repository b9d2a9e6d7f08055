"""A distilled run on a terminal: what the file holds, what each part takes, and what was left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from align_hooks.messages import message
from align_hooks.record.holdings import OTHER, ranges
from align_hooks.report.text import escape, indented, size


def render_distilled(
    place: str, total: int, kept: Mapping[str, Sequence[int]], sizes: Mapping[str, int], left_out: Mapping[str, str], console: Console
) -> None:
    """Print what became of a run in ``place``, a file of ``total`` bytes. ``kept`` maps each quantity to the steps that the file holds,
    ``sizes`` to its bytes in the file, and ``left_out`` to the steps that the run recorded and the file does not hold."""
    console.print(escape(message("distill.written", place=place, size=size(total))))
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), expand=False)
    table.add_column(escape(message("distill.holds")), no_wrap=True)
    table.add_column(escape(message("distill.steps")), overflow="fold")
    table.add_column(escape(message("distill.size")), no_wrap=True, justify="right")
    for name, steps in kept.items():
        table.add_row(escape(name), f"{ranges(tuple(steps))} ({len(steps)})", size(sizes.get(name, 0)))
    table.add_row(escape(message("distill.facts")), "", size(sizes.get(OTHER, 0)))
    console.print(table)
    for name, lost in left_out.items():
        indented(console, escape(message("distill.left_out", name=name, steps=lost)))
