"""A run, or what another tool kept of one, opened in place for a command that reads runs.

A log, TensorBoard's events, a table of W&B's or of people, and the norms of msprobe's monitor are made into a record in memory, whose
path is theirs. ``align-hooks convert`` makes the same record on a disk, and must be used for a dump of tensors, which is as large.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from align_hooks.evidence.convert import convert, convert_curves, is_curves
from align_hooks.evidence.dumps.record import is_dump
from align_hooks.evidence.monitor import convert_monitored, is_monitored
from align_hooks.process.archive import held, is_archive
from align_hooks.process.paths import path_of
from align_hooks.process.storage import is_address
from align_hooks.record.format import layout
from align_hooks.record.reader import Run, open_run


def open_evidence(path: str | Path) -> Run:
    """Open a run as :func:`open_run` does, or what another tool kept of one; raises RecordError as these readers do."""
    try:
        source = None if not isinstance(path, str | Path) or is_address(path) else path_of(path)
    except ValueError:  # no path, of which open_run says why
        source = None
    convert_to = None if source is None else converter_of(source)
    if source is None or convert_to is None:
        return open_run(path)
    with tempfile.TemporaryDirectory(prefix="align_hooks.") as folder:
        run = Path(folder) / "run"
        convert_to(source, run)
        written = {file.relative_to(run).as_posix(): file for file in run.rglob("*") if file.is_file()}
        files = {name: file.read_bytes() for name, file in written.items() if layout.is_file_of_record(name)}
    return open_run(held(source, files))


def converter_of(source: Path) -> Callable[[Path, Path], object] | None:
    """Return what makes a record of scalars of a path; None of a run, of a dump, and where there is nothing."""
    if not source.exists() or is_archive(source) or layout.ranks(source) or is_dump(source):
        return None
    if is_monitored(source):
        return partial(convert_monitored, side="")
    if is_curves(source):
        return convert_curves
    return None if source.is_dir() else convert
