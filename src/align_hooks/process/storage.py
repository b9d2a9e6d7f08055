"""Files of a record, on a file system or on object storage that ``fsspec`` reads in place.

A path is a ``pathlib.Path``, or a ``upath.UPath`` with the same methods. Here is what differs: storage has no links, devices and
descriptors, and a request costs as much as reading megabytes.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Protocol, TypeAlias, cast

from align_hooks.errors import in_a_line
from align_hooks.extras import installing
from align_hooks.process.paths import ADDRESS, path_of
from align_hooks.regular import open_regular

PIECE = 1 << 24
"""Bytes that are read at once from a storage, or from a file that is only passed on."""
Identity: TypeAlias = tuple[object, ...]
"""Facts of a file that change when it is replaced or written to."""
ALLOWED = "ALIGN_HOOKS_STORAGE"
"""The variable with the protocols whose addresses may be opened."""
TAGS = ("ETag", "e_tag", "etag", "md5Hash", "LastModified", "last_modified", "mtime", "created")
"""Facts that change when an object is written again, the best first: listings and answers format times differently."""


class OpenFile(Protocol):
    """An open file."""

    size: int
    """Bytes."""
    identity: Identity

    def read(self, start: int, size: int) -> bytes | bytearray:
        """Return ``size`` bytes from ``start`` on, fewer where the file ends."""

    def blocks(self, start: int, stop: int, size: int) -> Iterator[memoryview]:
        """Yield the bytes from ``start`` to ``stop`` in blocks of ``size``, each valid until the next; fewer where the file ends."""


def is_address(text: str | os.PathLike[str]) -> bool:
    """Return whether a text is an address of object storage, ``s3://bucket/run``, and no path."""
    return ADDRESS.match(os.fspath(text)) is not None


def place_of(text: str | os.PathLike[str]) -> Path:
    """Return the path that a text names; raises ValueError for a bad path, a protocol that is not allowed, and a missing library."""
    if not is_address(text):
        return path_of(text)
    protocol = str(text).partition("://")[0]
    if protocol not in map(str.strip, os.environ.get(ALLOWED, "").split(",")):
        raise ValueError(f"is an address, which nothing opens unasked; set {ALLOWED}={protocol}, or name a directory")
    try:
        from upath import UPath
    except ImportError as error:
        raise ValueError(f"cannot be read without {error.name}; {installing('storage')}") from None
    try:
        place = UPath(str(text).rstrip("/"))
        with _as_os_errors():
            list(files_of_storage(place))
    except (ImportError, ValueError, OSError) as error:  # fsspec names the library that it needs
        raise ValueError(f"cannot be read: {in_a_line(error)}") from None
    return cast("Path", place)


def is_remote(path: Path) -> bool:
    """Return whether a path lies on storage, not on a file system."""
    return not isinstance(path, Path)


def files_of_storage(place: Any) -> Iterator[tuple[PurePosixPath, int]]:
    """Yield relative path and bytes of every object below a place."""
    # fills the cache of storages that keep listings: later questions need no request each
    for name, facts in place.fs.find(place.path, detail=True).items():
        yield PurePosixPath(name).relative_to(place.path), int(facts["size"])


@contextmanager
def opened(path: Path, within: Path | None = None, *, follow: bool = True) -> Iterator[OpenFile]:
    """Open a regular file; raises as :func:`open_regular` does."""
    if is_remote(path):
        yield _Remote(path)
        return
    with open_regular(path, within, follow=follow) as file:
        yield _Local(file)


def size_of(path: Path) -> int:
    """Return the bytes of a file; 0 where there is none."""
    return path.stat().st_size if path.exists() else 0


def reading(path: Path, start: int = 0) -> BinaryIO:
    """Open a regular file to read line by line from a byte on; raises as :func:`opened` does."""
    if is_remote(path):
        return cast("BinaryIO", io.BufferedReader(_RemoteStream(path, start), PIECE))
    file = io.BufferedReader(open_regular(path))
    file.seek(start)
    return cast("BinaryIO", file)


def exists(path: Path) -> bool:
    """Return whether a path exists, as a broken link too."""
    return path.exists() if is_remote(path) else os.path.lexists(path)


class _Local:
    """A file of a file system, read at offsets, so that threads and processes may share it."""

    def __init__(self, file: io.FileIO) -> None:
        self._number = file.fileno()
        facts = os.fstat(self._number)
        self.size = facts.st_size
        self.identity: Identity = (facts.st_ino, facts.st_size, facts.st_mtime_ns)

    def read(self, start: int, size: int) -> bytearray:
        content = bytearray(max(0, min(size, self.size - start)))
        return content[: self._fill(memoryview(content), start)]

    def blocks(self, start: int, stop: int, size: int) -> Iterator[memoryview]:
        block = memoryview(bytearray(min(size, stop - start)))
        while start < stop:
            if not (count := self._fill(block[: stop - start], start)):
                return
            yield block[:count]
            start += count

    def _fill(self, block: memoryview, start: int) -> int:
        """Read until a block is full or the file ends, and return the number of bytes."""
        done = 0
        while done < len(block) and (count := os.preadv(self._number, [block[done:]], start + done)):
            done += count
        return done


class _Remote:
    """An object of a storage."""

    def __init__(self, path: Any) -> None:
        self._files, self._name = path.fs, path.path
        with _as_os_errors():
            facts = self._files.info(self._name)
        if facts.get("type", "file") != "file":
            raise ValueError("it is not a regular file")
        self.size = int(facts["size"])
        tag = next((str(facts[key]) for key in TAGS if facts.get(key) is not None), "")
        self.identity: Identity = (self.size, tag.strip('"'))

    def read(self, start: int, size: int) -> bytes:
        stop = min(start + size, self.size)
        with _as_os_errors():
            return bytes(self._files.cat_file(self._name, start=start, end=stop)) if start < stop else b""

    def blocks(self, start: int, stop: int, size: int) -> Iterator[memoryview]:
        pieces = max(PIECE // size, 1) * size
        for begin in range(start, stop, pieces):
            piece = memoryview(self.read(begin, min(pieces, stop - begin)))
            yield from (piece[at : at + size] for at in range(0, len(piece), size))


@contextmanager
def _as_os_errors() -> Iterator[None]:
    """Raise any error of a storage's library as OSError."""
    try:
        yield
    except (OSError, MemoryError):
        raise
    except Exception as error:
        raise OSError(in_a_line(error)) from error


class _RemoteStream(io.RawIOBase):
    """An object of a storage from a byte on."""

    def __init__(self, path: Path, start: int) -> None:
        self._object, self._at = _Remote(path), start

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        content = self._object.read(self._at, len(buffer))
        buffer[: len(content)] = content
        self._at += len(content)
        return len(content)
