"""One file of a record as it stands on disk: read whole, or refused as a RecordError that names it. Nothing is unpickled."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from align_hooks.errors import RecordError

Array = NDArray[Any]


LARGEST_TEXT = 1 << 32
"""Bytes of the largest text file that is read: 5,000 steps of 2,000 norms are a tenth of it."""


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object."""
    try:
        content = json.loads(_text(path))
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{path} cannot be read: {error}") from None
    if not isinstance(content, dict):
        raise RecordError(f"{path} holds no JSON object")
    return content


def read_rows(path: Path) -> dict[int, dict[str, Any]]:
    """Step to row of a jsonl; of a step that was repeated the last row counts; a torn last line does not."""
    if not path.exists():
        return {}
    rows: dict[int, dict[str, Any]] = {}
    for number, line in enumerate(_text(path).split("\n")[:-1], 1):  # what follows the last newline is empty or torn
        try:
            row = json.loads(line)
            if type(row["step"]) is not int or row["step"] < 0:
                raise ValueError("step")
            rows[row["step"]] = row
        except (ValueError, KeyError, TypeError, RecursionError):
            raise RecordError(f"{path}:{number} is no row of a record; copy the record again") from None  # it may be anybody's file
    return rows


def _text(path: Path) -> str:
    try:
        facts = path.stat()
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > LARGEST_TEXT:
            raise RecordError(f"{path} is no file of a record: it is not a regular file, or larger than {LARGEST_TEXT} bytes")
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise RecordError(f"{path} is missing") from None
    except (OSError, ValueError) as error:
        raise RecordError(f"{path} cannot be read: {error}") from None


def read_array(path: Path, *, headers_only: bool = False) -> Array:
    """A ``.npy`` array; with ``headers_only`` mapped into memory, which checks its header and its length.

    It is mapped first in any case: a header that promises more than the file holds is refused before memory is taken.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise ValueError("not a regular file")
        mapped = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(mapped, np.ndarray) or mapped.dtype.kind not in "biuf":
            raise ValueError("not a single array of numbers")
        return mapped if headers_only else np.array(mapped)
    except FileNotFoundError:
        raise RecordError(f"{path} is missing") from None
    except (OSError, ValueError, EOFError, MemoryError, OverflowError) as error:
        raise RecordError(f"{path} is not a whole .npy array ({error}); pickled arrays are never loaded") from None


STORED = {"F32": "<f4", "F64": "<f8", "F16": "<f2", "BF16": "<u2"}
"""The floating types that are read, by their names in a safetensors file, as numpy reads their bytes."""


class TensorFile:
    """One safetensors file, its header parsed once; raises RecordError where it is not whole, or no longer the same file.

    Tensors are read by their place in the file and not through the library's handle, which maps the file: every page read
    through it counts as ours until it is closed, and a file cut short under it ends the process. Nor does it read bf16 without
    another package, which would be a dependency of ours that may move numpy.
    """

    def __init__(self, path: Path, *, types: Sequence[str] = ("F32",), remedy: str = "record the step again") -> None:
        """``types`` are those of :data:`STORED` that a tensor may have: a record keeps fp32 alone. ``remedy`` ends every refusal."""
        self.path, self._types, self._remedy = path, types, remedy
        try:
            _refuse_torn(path)
            with path.open("rb") as file:
                self._known = _identity(file)
                size = int.from_bytes(file.read(8), "little")
                self._tensors = json.loads(file.read(size))
        except (OSError, ValueError, SafetensorError) as error:
            raise RecordError(f"{path} is not a whole safetensors file ({error}); {remedy}") from None
        self._tensors.pop("__metadata__", None)
        self._start = 8 + size

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
