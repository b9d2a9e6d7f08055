"""One file of a record as it stands on disk: read whole, or refused as a RecordError that names it. Nothing is unpickled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from align_hooks.errors import RecordError

Array = NDArray[Any]


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RecordError(f"{path} is missing") from None
    except (OSError, ValueError) as error:
        raise RecordError(f"{path} cannot be read: {error}") from None
    if not isinstance(content, dict):
        raise RecordError(f"{path} holds no JSON object")
    return content


def read_rows(path: Path) -> dict[int, dict[str, Any]]:
    """Step to row of a jsonl; of a step that was repeated the last row counts; a torn last line does not."""
    if not path.exists():
        return {}
    rows: dict[int, dict[str, Any]] = {}
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, ValueError) as error:
        raise RecordError(f"{path} cannot be read: {error}") from None
    for number, line in enumerate(lines[:-1], 1):  # what follows the last newline is empty or torn
        try:
            row = json.loads(line)
            rows[row["step"]] = row
        except (ValueError, KeyError, TypeError):
            raise RecordError(f"{path}:{number} is no row of a record: {line[:60]!r}") from None
    return rows


def read_array(path: Path, *, headers_only: bool = False) -> Array:
    """A ``.npy`` array; with ``headers_only`` mapped into memory, which checks its header and its length."""
    try:
        array = np.load(path, mmap_mode="r" if headers_only else None, allow_pickle=False)
    except FileNotFoundError:
        raise RecordError(f"{path} is missing") from None
    except (OSError, ValueError, EOFError) as error:
        raise RecordError(f"{path} is not a whole .npy array ({error}); pickled arrays are never loaded") from None
    if not isinstance(array, np.ndarray):
        raise RecordError(f"{path} is not a single .npy array")
    return array


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
        return np.asarray(file.get_tensor(name))
