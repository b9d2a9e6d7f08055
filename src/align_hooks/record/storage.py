"""Where the bytes of a record lie: on a file system, or on object storage that ``fsspec`` reads in place.

The path of a record is a ``pathlib.Path``, or a ``upath.UPath``, which has the same methods. Here is what the two do not share: storage
has no links, no devices and no descriptors, and a request to it costs as much as reading megabytes.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeAlias, cast

PIECE = 1 << 24
"""Bytes that are read at once: of a file that only passes through, and of every answer of a storage."""
Identity: TypeAlias = tuple[object, ...]
"""Facts of a file that change when it is replaced or written to."""


TAGS = ("ETag", "e_tag", "etag", "md5Hash", "LastModified", "last_modified", "mtime", "created")
"""What storages say of an object that changes when it is written again."""


class Stored(Protocol):
    """A file that is open: ``size`` in bytes, and ``identity``."""

    size: int
    identity: Identity

    def read(self, start: int, size: int) -> bytes | bytearray:
        """Bytes from ``start`` on, fewer where the file ends."""

    def blocks(self, start: int, stop: int, size: int) -> Iterator[memoryview]:
        """The bytes from ``start`` to ``stop`` in blocks of ``size``; each is valid until the next. Ends early where the file does."""


def is_remote(path: Path) -> bool:
    """Whether a path is of a storage and not of a file system."""
    return not isinstance(path, Path)


@contextmanager
def opened(path: Path) -> Iterator[Stored]:
    """A regular file; raises ValueError for anything else, since a device has no end, and OSError where it cannot be read."""
    if is_remote(path):
        yield _Remote(path)
        return
    if not stat.S_ISREG(path.stat().st_mode):
        raise ValueError("it is not a regular file")
    with path.open("rb", buffering=0) as file:
        yield _Local(cast("BinaryIO", file))


def exists(path: Path) -> bool:
    """Whether anything goes by a name, a link that leads nowhere included."""
    return path.exists() if is_remote(path) else os.path.lexists(path)


class _Local:
    """A file of a file system, read at offsets: threads and processes may share it."""

    def __init__(self, file: BinaryIO) -> None:
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
        """Read until a block is full or the file ends; how many bytes there were."""
        done = 0
        while done < len(block) and (count := os.preadv(self._number, [block[done:]], start + done)):
            done += count
        return done


class _Remote:
    """An object of a storage."""

    def __init__(self, path: Any) -> None:
        self._files, self._name = path.fs, path.path
        facts = self._files.info(self._name)
        if facts.get("type", "file") != "file":
            raise ValueError("it is not a regular file")
        self.size = int(facts["size"])
        self.identity = (
            self.size,
            *(str(facts[key]) for key in ("ETag", "e_tag", "etag", "mtime", "LastModified", "created") if key in facts),
        )

    def read(self, start: int, size: int) -> bytes:
        stop = min(start + size, self.size)
        return bytes(self._files.cat_file(self._name, start=start, end=stop)) if start < stop else b""

    def blocks(self, start: int, stop: int, size: int) -> Iterator[memoryview]:
        pieces = max(PIECE // size, 1) * size
        for begin in range(start, stop, pieces):
            piece = memoryview(self.read(begin, min(pieces, stop - begin)))
            yield from (piece[at : at + size] for at in range(0, len(piece), size))
