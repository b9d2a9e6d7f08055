"""The output of a command: the report on stdout, and its progress on a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars
from rich.table import Column

from align_hooks.messages import Argument, rendered
from align_hooks.messages.progress import Progress
from align_hooks.report.console import plain

PIPED = 80
"""Columns of a report in a file or a pipe, whose width is not known."""


def output() -> Console:
    """Return the console of a report."""
    # no highlighting: colour is for what differs, and searching the report of a long record for words takes minutes
    terminal = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(width=None if terminal else PIPED, highlight=False)


@contextmanager
def progress() -> Iterator[Progress]:
    """Show a line of progress on a terminal, on stderr, as stdout is the report's."""
    console = Console(stderr=True)
    if not console.is_terminal:  # many releases of rich end with an empty line where they are to show nothing
        yield lambda message, done=0, total=0: None
        return
    text = TextColumn("{task.description}", table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1))
    columns = (SpinnerColumn(), text, BarColumn(20), TimeElapsedColumn())
    with Bars(*columns, console=console, transient=True, expand=True) as bars:
        task = bars.add_task("", total=None)

        def say(message: Argument, done: int = 0, total: int = 0) -> None:
            bars.update(task, description=escape(plain(rendered(message))), completed=done, total=total or None)

        yield say
