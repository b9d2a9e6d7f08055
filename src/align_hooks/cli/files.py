"""The files that a command is given, and those that it writes its reports to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from align_hooks.cli.application import parameters
from align_hooks.errors import AlignHooksError, RecordError, shown
from align_hooks.extras import needing
from align_hooks.messages import ENGLISH, speaking
from align_hooks.process import storage
from align_hooks.process.paths import path_of
from align_hooks.record.reader import Run, open_run
from align_hooks.record.write import output
from align_hooks.report.console import plain
from align_hooks.settings import Steps


def place_of(path: str | Path, option: str = "") -> Path:
    """The path that an argument names; raises RecordError where it names none."""
    try:
        return path_of(path)
    except ValueError as error:
        raise RecordError(f"{option}{shown(str(path))} {error}") from None


def run_of(text: str, option: str = "") -> Run:
    """The run that an argument names by a path, or by the address of an object storage."""
    try:
        return open_run(storage.place_of(text))
    except ValueError as error:
        raise RecordError(f"{option}{shown(str(text))} {error}") from None


def steps_of(text: str, option: str) -> Steps:
    """The steps, or the layers, that an option names; raises AlignHooksError where it names none."""
    try:
        return Steps.parse(text)
    except ValueError as error:
        raise AlignHooksError(f"{option}: {error}") from None


def report_files(html: Path | None, json: Path | None = None) -> tuple[Path | None, Path | None]:
    """The files that the options name; raises AlignHooksError, before anything is read, as :func:`report_file` does, and for a library that
    a page needs."""
    if html is not None:
        with needing("html", "--html"):
            import align_hooks.report.run_page  # noqa: F401
    return report_file("--html", html), report_file("--json", json)


def report_file(option: str, path: Path | None) -> Path | None:
    """The file that an option names; raises AlignHooksError where it can be none, and as :func:`destination_of` does."""
    if path is None:
        return None
    file = destination_of(option, path)
    if file.exists() and not file.is_file():
        raise AlignHooksError(f"{option} {shown(str(path))} is no file; name a file that you may write")
    return file


def destination_of(option: str, path: Path) -> Path:
    """The place that an option, or an argument, lets a command write.

    Raises AlignHooksError for a link, a file of a record, a file that the command reads or writes besides, and where no file can be.
    """
    try:
        file = output.place_of(path)
    except (OSError, ValueError) as error:
        raise AlignHooksError(f"{option} {shown(str(path))} {getattr(error, 'strerror', None) or error}") from None
    for other, value, is_path in parameters():
        # a word that names nothing yet may be none: --to mindspore
        if other != option and any(_is(file, each) for each in _places(value) if is_path or file.exists()):
            raise AlignHooksError(f"{other} and {option} name the same file, {file}; give each its own")
    return file


def _places(value: object) -> Iterator[str]:
    """The texts of a parameter that may be paths: each word, where it is a command."""
    for text in value if isinstance(value, list | tuple) else [value]:
        if isinstance(text, str | Path):
            yield from {str(text), *str(text).split()}


def _is(file: Path, text: str) -> bool:
    try:
        return path_of(text) == file or (file.exists() and file.samefile(text))
    except (OSError, ValueError):
        return False


def written(option: str, path: Path | None, text: Callable[[], str | bytes]) -> None:
    """Write what an option asked for to the file that it names, in English, or both languages of a page; nothing where it names none."""
    if path is None:
        return
    try:
        with speaking(ENGLISH):
            output.write(path, text())
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise AlignHooksError(f"{option} {path} cannot be written: {why}; name a file that you may write") from None
    print(f"written: {plain(str(path))}")
