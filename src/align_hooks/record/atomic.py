"""Files that are whole or absent: written under a temporary name, synced, renamed.

A reader, or a job that was killed, never meets half a file. ``create`` refuses an existing name, which is how a rank
notices its own earlier record; the others replace.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from align_hooks.places import well_formed


def replace(path: Path, write: Callable[[Path], None]) -> None:
    """Make ``path`` hold what ``write`` puts into the temporary file it is handed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write(temporary)
        _sync(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    _sync(path.parent)


def create(path: Path, content: Mapping[str, Any]) -> None:
    """Like :func:`write_json`, but raises FileExistsError where ``path`` is taken."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(json_text(content), encoding="utf-8")
        _sync(temporary)
        try:
            os.link(temporary, path)
        except PermissionError:  # a file system without hard links
            with path.open("x", encoding="utf-8") as file:
                file.write(json_text(content))
    finally:
        temporary.unlink(missing_ok=True)
    _sync(path.parent)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write ``content`` as indented JSON."""
    write_text(path, json_text(content))


def write_text(path: Path, text: str) -> None:
    """Write ``text``."""
    replace(path, lambda temporary: _write_text(temporary, text))


def write_array(path: Path, array: NDArray[Any]) -> None:
    """Write ``array`` as ``.npy``, without pickling."""

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            np.save(file, array, allow_pickle=False)

    replace(path, write)


def json_text(content: Any, *, indent: int | None = 1) -> str:
    """Strict JSON: NaN and the infinities become the strings that ``float()`` reads back."""
    return json.dumps(_strict(content), indent=indent, allow_nan=False, ensure_ascii=False)


def _strict(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {well_formed(str(key)): _strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, np.generic):
        value = value.item()
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
