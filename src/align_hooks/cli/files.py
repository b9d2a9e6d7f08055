"""The files that a command is given, and those that it writes its reports to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from align_hooks.errors import AlignHooksError, RecordError, shown
from align_hooks.process import storage
from align_hooks.process.paths import path_of, well_formed
from align_hooks.record import atomic
from align_hooks.record.reader import Run, open_run
from align_hooks.report.console import plain


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


def report_files(html: Path | None, json: Path | None = None) -> tuple[Path | None, Path | None]:
    """The files that the options name; raises AlignHooksError, before anything is read, for what stands in their way.

    That is a library that a page needs, one file for two reports, and a folder or a device in the place of a file.
    """
    if html is not None:
        try:
            import align_hooks.report.run_page  # noqa: F401
        except ModuleNotFoundError as error:
            raise AlignHooksError(f"--html needs {error.name}, which is not installed; pip install 'align-hooks[html]'") from None
    files = report_file("--html", html), report_file("--json", json)
    if files[0] is not None and files[0] == files[1]:
        raise AlignHooksError(f"--html and --json name the same file, {html}; give each its own")
    return files


def report_file(option: str, path: Path | None) -> Path | None:
    """The file that an option names; raises AlignHooksError where it can be none."""
    if path is None:
        return None
    try:
        file = path_of(path)
        if file.exists() and not file.is_file():
            raise ValueError("is no file; name a file that you may write")
    except (OSError, ValueError) as error:
        raise AlignHooksError(f"{option} {shown(str(path))} {getattr(error, 'strerror', None) or error}") from None
    return file


def refuse_one_for_two(files: Mapping[str, Path | None]) -> None:
    """Raise AlignHooksError where two options name the same file."""
    named: dict[Path, str] = {}
    for option, file in files.items():
        if file is not None and (other := named.setdefault(file, option)) != option:
            raise AlignHooksError(f"{other} and {option} name the same file, {file}; give each its own")


def written(option: str, path: Path | None, text: Callable[[], str]) -> None:
    """Write what an option asked for to the file that it names; nothing where it names none."""
    if path is None:
        return
    try:
        atomic.write_text(path, well_formed(text()))
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise AlignHooksError(f"{option} {path} cannot be written: {why}; name a file that you may write") from None
    print(f"written: {plain(str(path))}")
