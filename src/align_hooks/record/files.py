"""One file of a record as it stands on disk: read whole, or refused as a RecordError that names it. Nothing is unpickled."""

from __future__ import annotations

import json
import os
import stat
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from align_hooks.errors import RecordError
from align_hooks.record import digests, layout

Array = NDArray[Any]


LARGEST_TEXT = 1 << 32
"""Bytes of the largest text file that is read: 5,000 steps of 2,000 norms are a tenth of it."""
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


def read_lines(path: Path) -> tuple[list[bytes], bytes]:
    """The whole lines of a file of rows, none where there is no file, and what stands after the last of them: empty, or torn."""
    if not path.exists():
        return [], b""
    *lines, rest = _bytes(path).split(b"\n")
    return lines, rest


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
    """An error's own words, in one line."""
    return " ".join(str(error).split()) or type(error).__name__


def _bytes(path: Path) -> bytes:
    try:
        facts = path.stat()
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > LARGEST_TEXT:
            raise RecordError(f"{path} is no file of a record: it is not a regular file, or larger than {LARGEST_TEXT} bytes")
        return path.read_bytes()
    except FileNotFoundError:
        raise RecordError(f"{path} is missing; copy it again, or record the run again") from None
    except (OSError, ValueError) as error:
        raise RecordError(f"{path} cannot be read: {error}") from None


def _check(content: bytes | memoryview, digest: str | None, path: Path) -> None:
    if digest is not None and digests.of(content) != digest:
        raise RecordError(f"{path} {CHANGED}")


def read_array(path: Path, digest: str | None = None, *, headers_only: bool = False) -> Array:
    """A ``.npy`` array; with a ``digest``, that of the file. ``headers_only`` maps it into memory, which checks its header and its length.

    It is mapped first in any case: a header that promises more than the file holds is refused before memory is taken.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise ValueError("not a regular file")
        if digest is not None and not headers_only:
            _check(path.read_bytes(), digest, path)
        mapped = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(mapped, np.ndarray) or mapped.dtype.kind not in "biuf":
            raise ValueError("not a single array of numbers")
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
            if not stat.S_ISREG(path.stat().st_mode):
                raise ValueError("not a regular file")
            with path.open("rb") as file:  # before the library, which says of a file that may not be read that there is none
                _refuse_torn(path)
                self._known = _identity(file)
                head = file.read(8)
                header = file.read(int.from_bytes(head, "little"))
            _check(head + header, digest, path)
            self._tensors = json.loads(header)
            metadata = self._tensors.pop("__metadata__", None) or {}
            self._digests = json.loads(metadata.get(DIGESTS, "{}"))
        except (OSError, ValueError, SafetensorError, RecursionError) as error:
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
