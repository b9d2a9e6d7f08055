"""One file of a record as it stands on disk: read whole, or refused as a RecordError that names it. Nothing is unpickled."""

from __future__ import annotations

import json
import os
import stat
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
from safetensors import SafetensorError, safe_open

from align_hooks.errors import RecordError
from align_hooks.record import digests, layout
from align_hooks.record.layout import Array, JsonObject

LARGEST_JSON = 1 << 29
"""Bytes of the largest JSON file that is read: the parameter table of a rank that holds a million pieces."""
LONGEST_LINE = 1 << 28
"""Bytes of the longest row that is read: sketches of half a million pieces."""
LONGEST_HEADER = 100_000_000
"""Bytes of the longest header of a safetensors file, by its format."""
PIECE = 1 << 24
"""Bytes of a file that are read at once."""
QUOTED = 200
"""Characters of a library's error that a message repeats."""
CHANGED = "was changed since it was recorded (its digest differs); copy it again, or record the step again"
UNREADABLE = (OSError, ValueError, EOFError, MemoryError, OverflowError, SyntaxError, TypeError, tokenize.TokenError, RecursionError)
"""What numpy raises for a broken header, which it parses as Python."""
DIGESTS = "xxh3_128"
"""The key of the tensors' digests in the metadata of a safetensors file."""


def read_json(path: Path, digest: str | None = None) -> JsonObject:
    """A JSON object; with a ``digest``, that of the file."""
    content = _bytes(path)
    _check(content, digest, path)
    return parsed(content, path)


def read_sealed(path: Path, *, older: bool = False) -> JsonObject:
    """A JSON object that holds its own digest; with ``older`` also an object of format 1, which never had a digest."""
    text = _bytes(path)
    if older and not digests.is_sealed(text):
        content = parsed(text, path)
        if content.get("format") != layout.FORMAT and "segment" not in content:  # no object named a segment before format 2
            return content
    try:
        return digests.opened(text)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{path} cannot be read: {in_words(error)}; copy it again, or record the run again") from None


def parsed(text: bytes, path: Path) -> JsonObject:
    """The object of a JSON text."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{path} cannot be read: {in_words(error)}") from None
    if not isinstance(content, dict):
        raise RecordError(f"{path} holds no JSON object")
    return content


def read_lines(path: Path) -> Iterator[bytes]:
    """The lines of a file of rows with their ends, none where there is no file. A line that a killed process left torn has no end. Raises
    RecordError for a line that is longer than any row."""
    if not path.exists():
        return
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise RecordError(f"{path} is no file of a record: it is not a regular file")
        with path.open("rb") as file:
            while line := file.readline(LONGEST_LINE):
                if len(line) == LONGEST_LINE:
                    raise RecordError(f"{path} holds a line of more than {LONGEST_LINE} bytes, which is no row of a record; copy it again")
                yield line
    except OSError as error:
        raise RecordError(f"{path} cannot be read: {in_words(error)}") from None


def no_row(path: Path, number: int, why: str = "") -> RecordError:
    """The error for a line that is no row. The line is not shown, as the file may be anybody's."""
    return RecordError(f"{path}:{number} is no row of a record{why}; copy the record again, or record it again")


def in_words(error: BaseException) -> str:
    """The text of an error, in one line of at most :data:`QUOTED` characters."""
    return " ".join(str(error)[:QUOTED].split()) or type(error).__name__


def _bytes(path: Path) -> bytes:
    """A JSON text. Its first and last byte are checked before memory is taken for the others."""
    try:
        with _regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            ends = file.read(1) + (os.pread(file.fileno(), 2, size - 2).strip()[-1:] if size > 1 else b"")
            if size > LARGEST_JSON or (size > PIECE and ends != b"{}"):
                raise RecordError(f"{path} is no JSON object of a record, or larger than {LARGEST_JSON} bytes; copy it again")
            file.seek(0)
            return file.read()
    except FileNotFoundError:
        raise RecordError(f"{path} is missing; copy it again, or record the run again") from None
    except (OSError, ValueError) as error:
        raise RecordError(f"{path} cannot be read: {in_words(error)}") from None


def _regular(path: Path) -> BinaryIO:
    """An open regular file; raises ValueError for anything else: a device has no end."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise ValueError("it is not a regular file")
    return path.open("rb")


def _check(content: bytes | memoryview, digest: str | None, path: Path) -> None:
    if digest is not None and digests.xxh3(content) != digest:
        raise RecordError(f"{path} {CHANGED}")


def _check_file(path: Path, digest: str) -> None:
    """Raise RecordError where a file's digest is not ``digest``; the file is read in pieces, as it may have any size."""
    with _regular(path) as file:
        if digests.xxh3_of_pieces(iter(lambda: file.read(PIECE), b"")) != digest:
            raise RecordError(f"{path} {CHANGED}")


def read_array(path: Path, digest: str | None = None, *, headers_only: bool = False) -> Array:
    """A ``.npy`` array; with a ``digest``, that of the file. ``headers_only`` leaves the array mapped, with header and length checked. The
    file is mapped first in any case: a header that promises more than the file holds is refused before memory is taken."""
    try:
        _regular(path).close()
        mapped = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(mapped, np.memmap) or mapped.dtype.kind not in "biuf":
            raise ValueError("not a single array of numbers")
        if mapped.offset + mapped.nbytes != path.stat().st_size:
            raise ValueError("its size is not what its header says")
        if digest is not None and not headers_only:
            _check_file(path, digest)
        return mapped if headers_only else np.array(mapped)
    except FileNotFoundError:
        raise RecordError(f"{path} is missing; copy it again, or record the run again") from None
    except UNREADABLE as error:
        raise RecordError(f"{path} is not a whole .npy array ({in_words(error)}); pickled arrays are never loaded") from None


FLOATING = {"F32": "<f4", "F64": "<f8", "F16": "<f2", "BF16": "<u2"}
"""The floating types that are read, by their names in a safetensors file, as numpy reads their bytes."""
STORED = {**FLOATING, "I16": "<i2"}
"""All types that are read; experts are chosen by number."""


class TensorFile:
    """One safetensors file, its header parsed once; raises RecordError where the file is not whole, or was replaced.

    Tensors are read by their place in the file and not through the library's handle, which maps the file: every page that was read
    through the handle counts as ours until it is closed, and the process ends when the mapped file is cut short. Nor does the library read
    bf16 without another package, which would be a dependency of ours that may move numpy.
    """

    def __init__(
        self, path: Path, digest: str | None = None, *, types: Sequence[str] = ("F32",), remedy: str = "record the step again"
    ) -> None:
        """``digest`` is that of the header, which holds the tensors' digests. ``types`` are the types of :data:`STORED` that a tensor may
        have: a record keeps fp32 alone. ``remedy`` ends every refusal."""
        self.path, self._types, self._remedy = path, types, remedy
        try:
            with _regular(path) as file:
                self._known = _identity(file)
                header = _header(file)
            _check(len(header).to_bytes(8, "little") + header, digest, path)
            _refuse_torn(path)
            self._tensors = json.loads(header)
            metadata = self._tensors.pop("__metadata__", None) or {}
            self._digests = json.loads(metadata.get(DIGESTS, "{}"))
            self.metadata: dict[str, str] = dict(metadata)
        except (OSError, ValueError, SafetensorError, RecursionError, TypeError, KeyError, IndexError, AttributeError) as error:
            raise RecordError(f"{path} is not a whole safetensors file ({in_words(error)}); {remedy}") from None
        self._start = 8 + len(header)
        if not isinstance(self._digests, dict) or (digest is not None and self._digests.keys() != self._tensors.keys()):
            raise RecordError(f"{path} does not hold the digest of each of its tensors; {remedy}")

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor, without reading it."""
        return tuple(self._tensors[name]["shape"])

    def kind(self, name: str) -> str:
        """The type that a tensor is stored in, by its name in the format."""
        return str(self._tensors[name]["dtype"])

    def read(self, name: str) -> Array:
        """One tensor as fp32; raises RecordError for a type that is not among the file's ``types``."""
        return _widened(self.stored(name), self.kind(name))

    def stored(self, name: str) -> Array:
        """One tensor as it is stored, a bf16 as its bits; raises RecordError for a type that is not among the file's ``types``."""
        facts, kind = self._tensors[name], self.kind(name)
        if kind not in self._types or kind not in STORED:
            raise RecordError(f"{self.path}: {name} is {kind}, only {', '.join(self._types)} can be read here; {self._remedy}")
        start, stop = facts["data_offsets"]
        stored = np.dtype(STORED[kind])
        try:
            with self.path.open("rb") as file:
                if _identity(file) != self._known:
                    raise RecordError(f"{self.path} was replaced while it was being read; start again once nobody writes it")
                data = np.fromfile(file, stored, (stop - start) // stored.itemsize, offset=self._start + start)
            if name in self._digests and digests.xxh3(data) != self._digests[name]:
                raise RecordError(f"{self.path}: {name} {CHANGED}")
            return data.reshape(facts["shape"])
        except (OSError, ValueError) as error:
            raise RecordError(f"{self.path}: {name} cannot be read ({error}); {self._remedy}") from None


EMPTY = (32).to_bytes(8, "little") + b'{"__metadata__":{"format":"pt"}}'
"""A file without a tensor, of a rank that holds copies alone. Before 0.4.4 the library writes such a file wrong and cannot read it."""


def _header(file: BinaryIO) -> bytes:
    """The header of a safetensors file, a JSON text; raises ValueError where it does not fit the size of the file."""
    room = os.fstat(file.fileno()).st_size - 8
    size = int.from_bytes(file.read(8), "little")
    if size > min(room, LONGEST_HEADER):
        raise ValueError("it is shorter than its header")
    header = file.read(size)
    tensors = json.loads(header)
    stops = [tensor["data_offsets"][1] for name, tensor in tensors.items() if name != "__metadata__"]
    if max(stops, default=0) != room - size:
        raise ValueError("its size is not what its header says")
    return header


def _refuse_torn(path: Path) -> None:
    """Raise the library's error for a file that is not whole."""
    try:
        with safe_open(path, framework="np"):
            pass
    except SafetensorError:
        if path.stat().st_size != len(EMPTY) or path.read_bytes() != EMPTY:
            raise


def _widened(data: Array, kind: str) -> Array:
    """Stored numbers in fp32. A bf16 is the upper half of the equal fp32 number."""
    if kind == "BF16":
        return (data.astype(np.uint32) << 16).view(np.float32)
    with np.errstate(over="ignore"):  # a double beyond fp32 becomes infinity, which the loader of weights refuses by name
        return data.astype(np.float32, copy=False)


def _identity(file: BinaryIO) -> tuple[int, int, int]:
    """Facts of a file that change when it is replaced or written to."""
    facts = os.fstat(file.fileno())
    return facts.st_ino, facts.st_size, facts.st_mtime_ns
