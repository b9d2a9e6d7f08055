"""One file of a record as it stands on disk: read whole, or refused as a RecordError that names it. Nothing is unpickled."""

from __future__ import annotations

import json
import os
import stat
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from align_hooks.errors import RecordError
from align_hooks.record import digests, layout

Array = NDArray[Any]


LARGEST_JSON = 1 << 29
"""Bytes of the largest JSON file that is read: the parameter table of a rank that holds a million pieces."""
LONGEST_LINE = 1 << 28
"""Bytes of the longest row that is read: sketches of half a million pieces."""
LONGEST_HEADER = 100_000_000
"""Bytes of the longest header of a safetensors file, by its format."""
PIECE = 1 << 24
"""Bytes of a file that are read at once."""
QUOTED = 200
"""Characters of an error of a library that are repeated."""
CHANGED = "was changed since it was recorded (its digest differs); copy it again, or record the step again"
UNREADABLE = (OSError, ValueError, EOFError, MemoryError, OverflowError, SyntaxError, TypeError, tokenize.TokenError, RecursionError)
"""What numpy raises of a header that is none: it parses it as Python."""
DIGESTS = "xxh3_128"
"""The key in the metadata of a file of tensors under which each tensor's digest stands."""


def read_json(path: Path, digest: str | None = None) -> dict[str, Any]:
    """A JSON object; with a ``digest``, that of the file."""
    content = _bytes(path)
    _check(content, digest, path)
    return parsed(content, path)


def read_sealed(path: Path, *, older: bool = False) -> dict[str, Any]:
    """A JSON object that holds its own digest; ``older`` takes one that never had one too, as before format 2."""
    content = _bytes(path)
    if older and not digests.is_sealed(content) and _had_none(found := parsed(content, path)):
        return found
    try:
        return digests.opened(content)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{path} cannot be read: {in_words(error)}; copy it again, or record the run again") from None


def _had_none(found: Mapping[str, Any]) -> bool:
    """Whether an object never had a digest: it is of an earlier format, and names no segment, which none did before format 2."""
    return found.get("format") != layout.FORMAT and "segment" not in found


def parsed(content: bytes, path: Path) -> dict[str, Any]:
    """The object that a JSON text is."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{path} cannot be read: {in_words(error)}") from None
    if not isinstance(found, dict):
        raise RecordError(f"{path} holds no JSON object")
    return found


def read_lines(path: Path) -> Iterator[bytes]:
    """The lines of a file of rows with their ends, none where there is no file; what a killed process left torn has no end. Raises
    RecordError where one is longer than any row."""
    if not path.exists():
        return
    if not is_regular(path):
        raise RecordError(f"{path} is no file of a record: it is not a regular file")
    try:
        with path.open("rb") as file:
            while line := file.readline(LONGEST_LINE):
                if len(line) == LONGEST_LINE:
                    raise RecordError(f"{path} holds a line of more than {LONGEST_LINE} bytes, which is no row of a record; copy it again")
                yield line
    except OSError as error:
        raise RecordError(f"{path} cannot be read: {in_words(error)}") from None


def no_row(path: Path, number: int, why: str = "") -> RecordError:
    """The error for a line that is no row; it is not shown, as it may be anybody's file."""
    return RecordError(f"{path}:{number} is no row of a record{why}; copy the record again, or record it again")


def is_regular(path: Path) -> bool:
    """Whether there is a file, and no device or pipe, at a path."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (OSError, ValueError):
        return False


def in_words(error: BaseException) -> str:
    """An error's own words, in one line, and no more of them than one reads."""
    return " ".join(str(error)[:QUOTED].split()) or type(error).__name__


def _bytes(path: Path) -> bytes:
    """A JSON text. Its first and last byte are looked at before memory is taken for the others."""
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
    """An open file; raises ValueError where there is something else: a device has no end."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise ValueError("it is not a regular file")
    return path.open("rb")


def _check(content: bytes | memoryview, digest: str | None, path: Path) -> None:
    if digest is not None and digests.of(content) != digest:
        raise RecordError(f"{path} {CHANGED}")


def _check_file(path: Path, digest: str) -> None:
    """Raise RecordError where a file's digest is another; read in pieces, as its size may be anything."""
    found = digests.Digest()
    with _regular(path) as file:
        while piece := file.read(PIECE):
            found.update(piece)
    if found.digest() != digest:
        raise RecordError(f"{path} {CHANGED}")


def read_array(path: Path, digest: str | None = None, *, headers_only: bool = False) -> Array:
    """A ``.npy`` array; with a ``digest``, that of the file. ``headers_only`` maps it into memory, which checks its header and its length.

    It is mapped first in any case: a header that promises more than the file holds is refused before memory is taken.
    """
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


STORED = {"F32": "<f4", "F64": "<f8", "F16": "<f2", "BF16": "<u2"}
"""The floating types that are read, by their names in a safetensors file, as numpy reads their bytes."""


class TensorFile:
    """One safetensors file, its header parsed once; raises RecordError where it is not whole, or no longer the same file.

    Tensors are read by their place in the file and not through the library's handle, which maps the file: every page read
    through it counts as ours until it is closed, and a file cut short under it ends the process. Nor does it read bf16 without
    another package, which would be a dependency of ours that may move numpy.
    """

    def __init__(
        self, path: Path, digest: str | None = None, *, types: Sequence[str] = ("F32",), remedy: str = "record the step again"
    ) -> None:
        """``digest`` is that of the header, which holds those of the tensors. ``types`` are those of :data:`STORED` that a tensor may have:
        a record keeps fp32 alone. ``remedy`` ends every refusal."""
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

    def read(self, name: str) -> Array:
        """One tensor as fp32; raises RecordError where it has another type than it may have."""
        facts = self._tensors[name]
        kind = facts["dtype"]
        if kind not in self._types or kind not in STORED:
            raise RecordError(f"{self.path}: {name} is {kind}, only {', '.join(self._types)} can be read here; {self._remedy}")
        start, stop = facts["data_offsets"]
        stored = np.dtype(STORED[kind])
        try:
            with self.path.open("rb") as file:
                if _identity(file) != self._known:
                    raise RecordError(f"{self.path} was replaced while it was being read; start again once nobody writes it")
                data = np.fromfile(file, stored, (stop - start) // stored.itemsize, offset=self._start + start)
            if name in self._digests and digests.of(data) != self._digests[name]:
                raise RecordError(f"{self.path}: {name} {CHANGED}")
            return _widened(data, kind).reshape(facts["shape"])
        except (OSError, ValueError) as error:
            raise RecordError(f"{self.path}: {name} cannot be read ({error}); {self._remedy}") from None


EMPTY = (32).to_bytes(8, "little") + b'{"__metadata__":{"format":"pt"}}'
"""A file without a tensor, which a rank has that holds copies alone. The library writes it wrong before 0.4.4, and does not read it."""


def _header(file: BinaryIO) -> bytes:
    """The header of a safetensors file, a JSON text; raises ValueError where it cannot be that of a file of this size."""
    room = os.fstat(file.fileno()).st_size - 8
    size = int.from_bytes(file.read(8), "little")
    if size > min(room, LONGEST_HEADER):
        raise ValueError("it is shorter than its header")
    header = file.read(size)
    tensors = json.loads(header)
    stops = [one["data_offsets"][1] for name, one in tensors.items() if name != "__metadata__"]
    if max(stops, default=0) != room - size:
        raise ValueError("its size is not what its header says")
    return header


def _refuse_torn(path: Path) -> None:
    """Raise what the library raises of a file that is not whole."""
    try:
        with safe_open(path, framework="np"):
            pass
    except SafetensorError:
        if path.stat().st_size != len(EMPTY) or path.read_bytes() != EMPTY:
            raise


def _widened(data: Array, kind: str) -> Array:
    """Numbers as stored, in fp32. A bf16 is the upper half of the fp32 that is the same number."""
    if kind == "BF16":
        return (data.astype(np.uint32) << 16).view(np.float32)
    with np.errstate(over="ignore"):  # a double beyond fp32 becomes infinity, which whoever loads weights refuses by name
        return data.astype(np.float32, copy=False)


def _identity(file: Any) -> tuple[int, int, int]:
    """What changes when a file is replaced or written to."""
    facts = os.fstat(file.fileno())
    return facts.st_ino, facts.st_size, facts.st_mtime_ns
