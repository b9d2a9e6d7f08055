"""A zip file that is read like object storage: a record in one file.

The file is read into memory at once, and never unpacked on a disk. As it may come from a stranger, its sizes are bounded before memory is
allocated, and duplicate names, unknown names and anything but regular files are refused.
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any, cast

from msgspec import Struct

from align_hooks.errors import shown
from align_hooks.process.storage import opened
from align_hooks.regular import ReadLimits, values_of

BEGINNING = b"PK\x03\x04"
"""The first bytes of a zip file that holds anything."""
LARGEST = 1 << 29
"""Bytes of the zip file, and of all unpacked files together."""
SWELLING, SMALL = 200, 1 << 24
"""Unpacked files may have ``SMALL`` bytes, and ``SWELLING`` times the bytes of the zip file."""
LONGEST_DIRECTORY = 1 << 24
"""Bytes of the central directory, which Python's zipfile reads at once."""
END = struct.Struct("<4s4H2LH")
"""The record that ends a zip file: …, number of files, bytes of the central directory, its offset, length of a comment."""
END_OF_64 = b"PK\x06\x07"
"""What precedes that record in a zip file of more than 4 GB or 65,535 files."""
LONGEST_NAME = 1000
BROKEN = (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, struct.error, IndexError, ValueError)
"""What zipfile raises for a broken file: RuntimeError for an encrypted one, NotImplementedError for an unknown compression."""
WRITTEN = (1980, 1, 1, 0, 0, 0)
"""The time of every file that we write, so that equal content is equal bytes."""


def is_archive(path: Path) -> bool:
    """Return whether a path is a regular file that begins as a zip file does."""
    try:
        with opened(path) as file:
            return bytes(file.read(0, len(BEGINNING))) == BEGINNING
    except (OSError, ValueError):
        return False


def read_archive(path: Path, is_known: Callable[[str], bool]) -> Path:
    """Return the root of a zip file; raises ValueError where it cannot be read, is too large, or has a name that is not ``is_known``."""
    try:
        with opened(path) as file:
            if file.size > LARGEST:
                raise ValueError(f"has more than {LARGEST >> 20} MiB")
            content = bytes(file.read(0, file.size))
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror or error}") from None
    return unpacked(content, path, is_known)


def unpacked(content: bytes, path: Path, is_known: Callable[[str], bool]) -> Path:
    """Return the root of a zip file of this ``content``; raises ValueError as :func:`read_archive` does."""
    if len(content) > LARGEST:
        raise ValueError(f"has more than {LARGEST >> 20} MiB")
    count = _files_listed(content)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if len(archive.infolist()) != count:
                raise zipfile.BadZipFile("its list of files was changed")
            most = min(LARGEST, SMALL + SWELLING * len(content))
            return held(path, dict(_unpacked(archive, is_known, most)))
    except BROKEN as error:
        raise ValueError(str(error) if isinstance(error, Refused) else f"is not a whole zip file ({shown(str(error))})") from None


def held(path: Path, files: Mapping[str, bytes]) -> Path:
    """Return the root of files that are held in memory, name to content, as if they lay in ``path``."""
    return cast("Path", Member(ZipFileSystem(path, files)))


class Refused(ValueError):
    """The reason why a zip file is no record."""


def _files_listed(content: bytes) -> int:
    """Return the number of files in the central directory; raises ValueError where that is too long."""
    start = len(content) - END.size  # the end record ends the file: a comment behind it could hide a second directory
    if start < 0 or content[start : start + 4] != b"PK\x05\x06":
        raise ValueError("is not a whole zip file")
    *_, count, size, _, _ = END.unpack(content[start:])
    if size > LONGEST_DIRECTORY or content[start - 20 : start - 16] == END_OF_64:
        raise ValueError("is a zip file, and no distilled run; name a run, or a file that align-hooks distill wrote")
    return int(count)


def _unpacked(archive: zipfile.ZipFile, is_known: Callable[[str], bool], most: int) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of every file; raises Refused for anything but distinct regular files with known names.

    All together may have ``most`` bytes, and :attr:`ReadLimits.VALUES` JSON values.
    """
    names: set[str] = set()
    left, values = most, ReadLimits.VALUES
    for entry in archive.infolist():
        name, kind = entry.filename, entry.external_attr >> 28
        if len(name) > LONGEST_NAME or not is_known(name):
            raise Refused(f"is no distilled run: it holds {name[:100]!r}, which is no file of a record")
        if name in names:
            raise Refused(f"holds {name} twice")
        if kind not in (0, 8):  # no type, or a regular file's: neither a link nor a device
            raise Refused(f"holds {name}, which is no regular file")
        names.add(name)
        left -= entry.file_size
        if left < 0:
            raise Refused(f"unpacks to more than {most >> 20} MiB, which no distilled run of its size does")
    for entry in archive.infolist():
        with archive.open(entry) as file:  # stops at the size that was added up, and compares the checksum
            content = file.read(entry.file_size + 1)
        if len(content) != entry.file_size:
            raise Refused(f"holds {entry.filename} cut short")
        values -= values_of(content) if entry.filename.endswith(".json") else 0
        if values < 0:
            raise Refused(f"holds more than {ReadLimits.VALUES} values")
        yield entry.filename, content


def packed(files: Mapping[str, bytes]) -> bytes:
    """Return the bytes of a zip file of ``files``, name to content; equal content gives equal bytes."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, WRITTEN)
            entry.create_system, entry.external_attr = 3, 0o100644 << 16
            archive.writestr(entry, files[name], zipfile.ZIP_DEFLATED, compresslevel=9)
    return content.getvalue()


def packed_sizes(content: bytes) -> dict[str, int]:
    """Return how many compressed bytes each file has in a zip file."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {entry.filename: entry.compress_size for entry in archive.infolist()}


@dataclass(frozen=True, repr=False)
class ZipFileSystem:
    """The files of a zip file, name to content, with the methods of an ``fsspec`` file system that our readers use."""

    file: Path
    files: Mapping[str, bytes] = field(compare=False)

    @cached_property
    def folders(self) -> dict[str, list[str]]:
        """Each folder to the names in it; the root is ``""``."""
        inside: dict[str, dict[str, None]] = {"": {}}
        for name in self.files:
            parts = name.split("/")
            for depth, part in enumerate(parts):
                inside.setdefault("/".join(parts[:depth]), {})[part] = None
        return {folder: list(names) for folder, names in inside.items()}

    def find(self, path: str, *, detail: bool = True) -> dict[str, dict[str, Any]]:
        """Return the facts of every file by its name."""
        return {name: self.info(name) for name in self.files}

    def info(self, name: str) -> dict[str, Any]:
        """Return the facts of a file; raises FileNotFoundError where there is none."""
        if name not in self.files:
            raise FileNotFoundError(f"{self.file} holds no {name}")
        return {"type": "file", "size": len(self.files[name]), "etag": str(zlib.crc32(self.files[name]))}

    def cat_file(self, name: str, *, start: int, end: int) -> bytes:
        """Return the bytes from ``start`` to ``end`` of a file."""
        return self.files[name][start:end]


class Member(Struct, frozen=True):
    """A path in an archive, with the methods of ``pathlib.Path`` that the readers of a record use."""

    fs: ZipFileSystem
    inner: PurePosixPath = PurePosixPath()

    @property
    def path(self) -> str:
        """The name in the archive; empty for its root."""
        return "" if self.inner == PurePosixPath() else str(self.inner)

    def __str__(self) -> str:
        return f"{self.fs.file}/{self.path}" if self.path else str(self.fs.file)

    def __truediv__(self, below: str) -> Member:
        return Member(self.fs, self.inner / below)

    @property
    def name(self) -> str:
        """The last part; for the root the zip file's name."""
        return self.inner.name or self.fs.file.name

    @property
    def stem(self) -> str:
        """The last part without its suffix."""
        return self.inner.stem

    @property
    def suffix(self) -> str:
        """The suffix of the last part."""
        return self.inner.suffix

    @property
    def parent(self) -> Member:
        """The folder around it."""
        return Member(self.fs, self.inner.parent)

    def relative_to(self, above: Member) -> PurePosixPath:
        """Return the path from a folder above."""
        return self.inner.relative_to(above.inner)

    def resolve(self) -> Member:
        """Return the path itself: an archive has no links."""
        return self

    def is_symlink(self) -> bool:
        """Return False."""
        return False

    def is_file(self) -> bool:
        """Return whether the archive has this file."""
        return self.path in self.fs.files

    def is_dir(self) -> bool:
        """Return whether files lie below it."""
        return self.path in self.fs.folders

    def exists(self) -> bool:
        """Return whether it is a file or a folder."""
        return self.is_file() or self.is_dir()

    def stat(self) -> SimpleNamespace:
        """Return the size in bytes as ``st_size``; raises FileNotFoundError where there is no file."""
        return SimpleNamespace(st_size=self.fs.info(self.path)["size"])

    def iterdir(self) -> Iterator[Member]:
        """Return the files and folders in this folder."""
        return (self / name for name in self.fs.folders.get(self.path, ()))

    def glob(self, pattern: str) -> Iterator[Member]:
        """Return the files and folders in this folder whose names match a pattern."""
        return (member for member in self.iterdir() if fnmatchcase(member.name, pattern))
