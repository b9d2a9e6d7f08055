"""A zip file as a place that is read like object storage: a record that is one file.

The file is read once, whole, into memory, and nothing of it is ever written to a disk. It may come from a stranger. So its sizes are
bounded before memory is taken for them, and it is refused where it holds a name twice, a name that the caller does not know, or anything
but plain files.
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

from align_hooks.errors import shown
from align_hooks.process.storage import opened
from align_hooks.regular import ReadLimits, values_of

BEGINNING = b"PK\x03\x04"
"""The first bytes of a zip file that holds anything."""
LARGEST = 1 << 29
"""Bytes of all files together, unpacked, and of the zip file itself."""
SWELLING, SMALL = 200, 1 << 24
"""How many times the bytes of a zip file its files may have, unpacked, above those that any may have."""
LONGEST_DIRECTORY = 1 << 24
"""Bytes of the list of files at a zip file's end, which Python's zipfile reads at once."""
END = struct.Struct("<4s4H2LH")
"""The record that ends a zip file; its last but two numbers are the bytes of the directory and where it begins."""
END_OF_64 = b"PK\x06\x07"
"""What stands before that record in a zip file of more than 4 GB or 65,535 files."""
LONGEST_NAME = 1000
BROKEN = (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, struct.error, IndexError, ValueError)
"""What Python's zipfile raises for what is none: RuntimeError for an encrypted file, NotImplementedError for a method that it lacks."""
WRITTEN = (1980, 1, 1, 0, 0, 0)
"""The time that every file of an archive of ours has: equal content is then equal bytes."""


def is_archive(path: Path) -> bool:
    """Whether a regular file begins as a zip file does."""
    try:
        with opened(path) as file:
            return bytes(file.read(0, len(BEGINNING))) == BEGINNING
    except (OSError, ValueError):
        return False


def read_archive(path: Path, is_known: Callable[[str], bool]) -> Path:
    """The root of a zip file, of whose files each name must be one that ``is_known``; raises ValueError where the file cannot be read, is
    too large, or holds anything else."""
    try:
        with opened(path) as file:
            if file.size > LARGEST:
                raise ValueError(f"has more than {LARGEST >> 20} MiB")
            content = bytes(file.read(0, file.size))
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror or error}") from None
    return unpacked(content, path, is_known)


def unpacked(content: bytes, path: Path, is_known: Callable[[str], bool]) -> Path:
    """The root of a zip file, of its ``content``; raises ValueError as :func:`read_archive` does."""
    if len(content) > LARGEST:
        raise ValueError(f"has more than {LARGEST >> 20} MiB")
    count = _files_listed(content)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if len(archive.infolist()) != count:
                raise zipfile.BadZipFile("its list of files was changed")
            most = min(LARGEST, SMALL + SWELLING * len(content))
            return cast("Path", Member(ZipFileSystem(path, dict(_unpacked(archive, is_known, most)))))
    except BROKEN as error:
        raise ValueError(str(error) if isinstance(error, Refused) else f"is not a whole zip file ({shown(str(error))})") from None


class Refused(ValueError):
    """What is a zip file and cannot be read as a record; the text says why."""


def _files_listed(content: bytes) -> int:
    """How many files the list at the end of a zip file has. Raises ValueError unless that list ends the file, for a comment could hide
    another, and may be read at once."""
    start = len(content) - END.size
    if start < 0 or content[start : start + 4] != b"PK\x05\x06":
        raise ValueError("is not a whole zip file")
    *_, count, size, _, _ = END.unpack(content[start:])
    if size > LONGEST_DIRECTORY or content[start - 20 : start - 16] == END_OF_64:
        raise ValueError("is a zip file, and no distilled run; name a run, or a file that align-hooks distill wrote")
    return int(count)


def _unpacked(archive: zipfile.ZipFile, is_known: Callable[[str], bool], most: int) -> Iterator[tuple[str, bytes]]:
    """Name and content of every file; raises Refused for what is no plain file of a known name, each once, and all together of more bytes
    than ``most``, or of more values than are read."""
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
        with archive.open(entry) as file:  # which stops at the size that was added up, and compares the checksum
            content = file.read(entry.file_size + 1)
        if len(content) != entry.file_size:
            raise Refused(f"holds {entry.filename} cut short")
        values -= values_of(content) if entry.filename.endswith(".json") else 0
        if values < 0:
            raise Refused(f"holds more than {ReadLimits.VALUES} values")
        yield entry.filename, content


def packed(files: Mapping[str, bytes]) -> bytes:
    """A zip file of ``files``, name to content; the same bytes for the same content."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, WRITTEN)
            entry.create_system, entry.external_attr = 3, 0o100644 << 16
            archive.writestr(entry, files[name], zipfile.ZIP_DEFLATED, compresslevel=9)
    return content.getvalue()


def packed_sizes(content: bytes) -> dict[str, int]:
    """How many bytes each file takes in a zip file of ours."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {entry.filename: entry.compress_size for entry in archive.infolist()}


@dataclass(frozen=True, repr=False)
class ZipFileSystem:
    """The files of a zip file, name to content, with those methods of an ``fsspec`` file system that readers of storages use."""

    file: Path
    files: Mapping[str, bytes] = field(compare=False)

    @cached_property
    def folders(self) -> dict[str, list[str]]:
        """Every folder, with the names of what lies in it; the outermost has no name."""
        inside: dict[str, dict[str, None]] = {"": {}}
        for name in self.files:
            parts = name.split("/")
            for depth, part in enumerate(parts):
                inside.setdefault("/".join(parts[:depth]), {})[part] = None
        return {folder: list(names) for folder, names in inside.items()}

    def find(self, path: str, *, detail: bool = True) -> dict[str, dict[str, Any]]:
        """Every file by its name."""
        return {name: self.info(name) for name in self.files}

    def info(self, name: str) -> dict[str, Any]:
        """Facts of a file; raises FileNotFoundError where there is none."""
        if name not in self.files:
            raise FileNotFoundError(f"{self.file} holds no {name}")
        return {"type": "file", "size": len(self.files[name]), "etag": str(zlib.crc32(self.files[name]))}

    def cat_file(self, name: str, *, start: int, end: int) -> bytes:
        """Bytes from ``start`` to ``end`` of a file."""
        return self.files[name][start:end]


@dataclass(frozen=True, repr=False)
class Member:
    """A place in an archive, with those methods of a path that the readers of a record use."""

    fs: ZipFileSystem
    inner: PurePosixPath = PurePosixPath()

    @property
    def path(self) -> str:
        """The name in the archive; empty for all of it."""
        return "" if self.inner == PurePosixPath() else str(self.inner)

    def __str__(self) -> str:
        return f"{self.fs.file}/{self.path}" if self.path else str(self.fs.file)

    def __truediv__(self, below: str) -> Member:
        return Member(self.fs, self.inner / below)

    @property
    def name(self) -> str:
        """The last part; of all of the archive the file's name."""
        return self.inner.name or self.fs.file.name

    @property
    def stem(self) -> str:
        """The last part without its ending."""
        return self.inner.stem

    @property
    def suffix(self) -> str:
        """The ending of the last part."""
        return self.inner.suffix

    @property
    def parent(self) -> Member:
        """The folder that it lies in."""
        return Member(self.fs, self.inner.parent)

    def relative_to(self, above: Member) -> PurePosixPath:
        """The way here from a folder above."""
        return self.inner.relative_to(above.inner)

    def resolve(self) -> Member:
        """Itself: an archive has no links."""
        return self

    def is_symlink(self) -> bool:
        """Never."""
        return False

    def is_file(self) -> bool:
        """Whether it is a file of the archive."""
        return self.path in self.fs.files

    def is_dir(self) -> bool:
        """Whether files lie below it."""
        return self.path in self.fs.folders

    def exists(self) -> bool:
        """Whether it is a file or a folder."""
        return self.is_file() or self.is_dir()

    def stat(self) -> SimpleNamespace:
        """Its size in bytes; raises FileNotFoundError where there is no file."""
        return SimpleNamespace(st_size=self.fs.info(self.path)["size"])

    def iterdir(self) -> Iterator[Member]:
        """What lies in this folder."""
        return (self / name for name in self.fs.folders.get(self.path, ()))

    def glob(self, pattern: str) -> Iterator[Member]:
        """What lies in this folder under a name that a pattern fits."""
        return (place for place in self.iterdir() if fnmatchcase(place.name, pattern))
