"""Regular files of any origin: opened without waiting, and read within bounds."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from io import FileIO
from pathlib import Path


class ReadLimits:
    """The most that is read of a file, so that none exhausts a machine."""

    FILE = 1 << 30
    """Bytes of a table, a description or a log."""
    LINE = 1 << 20
    """Characters of a line of a table."""
    CELLS = 12_000_000
    """Cells of a table, missing ones of short rows included."""
    ENTRIES = 1_000_000
    """Names in a folder."""
    VALUES = 8_000_000
    """Values of a JSON text, each of which takes many times its bytes in memory."""
    DIGITS = 300
    """Decimal digits of an integer: these fit in a double."""


def open_regular(path: str | os.PathLike[str], within: str | os.PathLike[str] | None = None, *, follow: bool = True) -> FileIO:
    """Open a regular file, unbuffered.

    Raises ValueError for a pipe or a device, and where a link leads out of the folder ``within``; OSError where the file cannot be opened,
    or without ``follow`` is a link.
    """
    if within is not None and not is_within(path, within):
        raise ValueError("it is a link that leads out of its folder")
    # O_NONBLOCK: opening a pipe would wait for a writer
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW))
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("it is not a regular file")
        return FileIO(descriptor)
    except BaseException:
        os.close(descriptor)
        raise


def is_within(path: str | os.PathLike[str], folder: str | os.PathLike[str]) -> bool:
    """Return whether a path, with links resolved, lies in a folder, or in Hugging Face's cache, to which downloads link."""
    real = Path(os.path.realpath(path))
    of_cache = real.parent.name == "blobs" and real.parents[1].name.startswith("models--")
    return of_cache or real.is_relative_to(os.path.realpath(folder))


def read_regular(path: Path, most: int = ReadLimits.FILE, within: Path | None = None) -> bytes:
    """Read a regular file of at most ``most`` bytes; raises as :func:`open_regular` does, and ValueError for a larger one."""
    with open_regular(path, within) as file:
        size = os.fstat(file.fileno()).st_size
        content, at_once = bytearray(), min(max(size, 1 << 16), 1 << 24)  # a read allocates all that it may read
        while size <= most and len(content) <= most and (piece := file.read(at_once)):
            content += piece
        if max(size, len(content)) > most:
            raise ValueError(f"it is larger than {most} bytes")
        return bytes(content)


def values_of(text: bytes) -> int:
    """Return an upper bound of the number of values in a JSON text."""
    return 1 + sum(text.count(mark) for mark in (b",", b"[", b"{"))


def refuse_swollen(text: bytes) -> None:
    """Raise ValueError for a JSON text of too many values, before it is parsed."""
    if values_of(text) > ReadLimits.VALUES:
        raise ValueError(f"it holds more than {ReadLimits.VALUES} values")


def whole_number(text: str) -> int:
    """Parse an integer; raises ValueError for more digits than fit in a double."""
    if len(text) > ReadLimits.DIGITS:
        raise ValueError(f"it holds a number of {len(text)} digits")
    return int(text)


def lines_of(path: Path, within: Path | None = None, encoding: str = "utf-8") -> Iterator[str]:
    """Yield the lines of a text with their ends; raises as :func:`read_regular` does, and ValueError for too long a line."""
    with open_regular(path, within) as raw:
        if os.fstat(raw.fileno()).st_size > ReadLimits.FILE:
            raise ValueError(f"it is larger than {ReadLimits.FILE} bytes")
        with os.fdopen(os.dup(raw.fileno()), encoding=encoding, newline="") as text:
            while line := text.readline(ReadLimits.LINE + 1):
                if len(line) > ReadLimits.LINE:
                    raise ValueError(f"it holds a line of more than {ReadLimits.LINE} characters")
                yield line


def listed(folder: Path) -> list[Path]:
    """Return the sorted paths in a folder; raises ValueError where there are too many, OSError where it cannot be listed."""
    names: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            names.append(entry.name)
            if len(names) > ReadLimits.ENTRIES:
                raise ValueError(f"it holds more than {ReadLimits.ENTRIES} names")
    return [folder / name for name in sorted(names)]
