"""One file of a record as it stands on disk: read whole, or refused as a RecordError that names it. Nothing is unpickled."""

from __future__ import annotations

import json
import stat
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
            raise RecordError(f"{path}:{number} is no row of a record: {line[:60]!r}") from None
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


def tensor_homes(paths: tuple[Path, ...]) -> dict[str, Path]:
    """Tensor name to the file that holds it."""
    homes: dict[str, Path] = {}
    for path in paths:
        try:
            with safe_open(path, framework="np") as file:
                homes |= dict.fromkeys(file.keys(), path)
        except (OSError, SafetensorError) as error:
            raise RecordError(f"{path} is not a whole safetensors file ({error}); record the step again") from None
    return homes


def read_tensor(path: Path, name: str) -> Array:
    """One tensor of a safetensors file."""
    with safe_open(path, framework="np") as file:
        kind = file.get_slice(name).get_dtype()
        if kind != "F32":
            raise RecordError(f"{path}: {name} is {kind}, a record keeps float32; record the step again")
        return np.asarray(file.get_tensor(name))
