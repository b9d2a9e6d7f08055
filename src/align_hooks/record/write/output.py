"""Output files, reports for example: written atomically, through no link, and over no file of a record."""

from __future__ import annotations

import os
from pathlib import Path

from align_hooks.process.paths import path_of, well_formed
from align_hooks.record.format import layout
from align_hooks.record.write import atomic

OWN = ("manifest", "last_words", *layout.ROW_FOLDERS)
"""Folders of a record without files of others."""


def place_of(path: str | os.PathLike[str]) -> Path:
    """Return the absolute path of an output; raises ValueError for a link or a file of a record."""
    place = path_of(path)
    if Path(path).expanduser().is_symlink():
        raise ValueError("is a link, and nothing is written through one; name a file of its own")
    for run in place.parents:
        name = place.relative_to(run).as_posix()
        is_of_step = layout.number(name.partition("/")[0], "step_") is not None
        is_own = layout.is_file_of_record(name) or is_of_step or any(name.startswith(f"{folder}/") for folder in OWN)
        if is_own and (layout.run_file(run).exists() or layout.ranks(run) or next(layout.step_folders(run), None)):
            raise ValueError(f"is a file of the record {run}, which stays as it is; name a file beside it")
    return place


def write(path: Path, content: str | bytes) -> None:
    """Write a file; raises OSError where that fails, and ValueError as :func:`place_of` does."""
    atomic.write_bytes(place_of(path), content if isinstance(content, bytes) else atomic.encoded(well_formed(content)))
