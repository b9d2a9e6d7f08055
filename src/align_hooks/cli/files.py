"""What commands write: the files of their reports, and the terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from align_hooks._version import __version__
from align_hooks.cli.application import parameters
from align_hooks.errors import AlignHooksError, RecordError, shown
from align_hooks.extras import needing
from align_hooks.messages import Argument, rendered
from align_hooks.messages.catalogue import ENGLISH, speaking
from align_hooks.messages.progress import Progress
from align_hooks.process.paths import path_of
from align_hooks.record.write import output as files
from align_hooks.record.write.atomic import json_text
from align_hooks.report.console import plain
from align_hooks.report.document import Document
from align_hooks.settings import Steps

PIPED = 80
"""Columns of a report in a file or a pipe, whose width is not known."""


def place_of(path: str | Path, option: str = "") -> Path:
    """Return the path that an argument names; raises RecordError where the text is no path."""
    try:
        return path_of(path)
    except ValueError as error:
        raise RecordError(f"{option}{shown(str(path))} {error}") from None


def steps_of(text: str, option: str) -> Steps:
    """Return the steps or layers that an option names; raises AlignHooksError for another text."""
    try:
        return Steps.parse(text)
    except ValueError as error:
        raise AlignHooksError(f"{option}: {error}") from None


def report_files(html: Path | None, json: Path | None = None) -> tuple[Path | None, Path | None]:
    """Return the files of two options; raises AlignHooksError as :func:`report_file` does, and where a page lacks a library."""
    if html is not None:
        with needing("html", "--html"):
            import align_hooks.report.html  # noqa: F401
    return report_file("--html", html), report_file("--json", json)


def page_of(document: Document) -> str:
    """Return a document as a page, which needs the libraries that :func:`report_files` looks for."""
    from align_hooks.report.html import page

    return page(document, __version__)


def report_file(option: str, path: Path | None) -> Path | None:
    """Return the file of an option; raises AlignHooksError for a directory or a device, and as :func:`destination_of` does."""
    if path is None:
        return None
    file = destination_of(option, path)
    if file.exists() and not file.is_file():
        raise AlignHooksError(f"{option} {shown(str(path))} is no file; name a file that you may write")
    return file


def destination_of(option: str, path: Path) -> Path:
    """Return the path to write; raises AlignHooksError for a link, a record's file, another argument's file, or an impossible place."""
    try:
        file = files.place_of(path)
    except (OSError, ValueError) as error:
        raise AlignHooksError(f"{option} {shown(str(path))} {getattr(error, 'strerror', None) or error}") from None
    for other, value, is_path in parameters():
        # a text that names no file yet may be no path: --to mindspore
        if other != option and any(_is(file, each) for each in _places(value) if is_path or file.exists()):
            raise AlignHooksError(f"{other} and {option} name the same file, {file}; give each its own")
    return file


def _places(value: object) -> Iterator[str]:
    """Yield the texts of a parameter that may be paths, also each word, as a text may be a command."""
    for text in value if isinstance(value, list | tuple) else [value]:
        if isinstance(text, str | Path):
            yield from {str(text), *str(text).split()}


def _is(file: Path, text: str) -> bool:
    try:
        return path_of(text) == file or (file.exists() and file.samefile(text))
    except (OSError, ValueError):
        return False


def written(option: str, path: Path | None, made: Callable[[], object]) -> None:
    """Write a report, or a table as JSON, to the file of an option, in English, or both languages of a page; do nothing without a file."""
    if path is None:
        return
    try:
        with speaking(ENGLISH):
            content = made()
            files.write(path, content if isinstance(content, str | bytes) else json_text(content))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise AlignHooksError(f"{option} {path} cannot be written: {reason}; name a file that you may write") from None
    print(f"written: {plain(str(path))}")


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
    from rich.markup import escape
    from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars
    from rich.table import Column

    text = TextColumn("{task.description}", table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1))
    columns = (SpinnerColumn(), text, BarColumn(20), TimeElapsedColumn())
    with Bars(*columns, console=console, transient=True, expand=True) as bars:
        task = bars.add_task("", total=None)

        def say(message: Argument, done: int = 0, total: int = 0) -> None:
            bars.update(task, description=escape(plain(rendered(message))), completed=done, total=total or None)

        yield say
