"""A run, or what another tool kept of one, opened in place for a command that reads runs.

A log, TensorBoard's events, a table of W&B's or of people, and the norms of msprobe's monitor are made into a record in memory, whose
path is theirs. ``align-hooks convert`` makes the same record on a disk, and must be used for a dump of tensors, which is as large.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from align_hooks.evidence.convert import convert, convert_curves, is_curves
from align_hooks.evidence.dumps.record import is_dump
from align_hooks.evidence.monitor import convert_monitored, is_monitored
from align_hooks.process.archive import held, is_archive
from align_hooks.process.paths import path_of
from align_hooks.process.storage import is_address
from align_hooks.record.format import layout
from align_hooks.record.reader import Run, open_run


def open_evidence(text: str | os.PathLike[str]) -> Run:
    """Open what a text names: as :func:`open_run`, or what another tool kept of a run; raises RecordError as these readers do."""
    if is_address(text) or not is_of_another_tool(source := path_of(text)):
        return open_run(os.fspath(text))
    with tempfile.TemporaryDirectory(prefix="align_hooks.") as folder:
        run = Path(folder) / "run"
        if is_monitored(source):
            convert_monitored(source, run)
        elif is_curves(source):
            convert_curves(source, run)
        else:
            convert(source, run)
        written = {str(file.relative_to(run)): file for file in run.rglob("*") if file.is_file()}
        files = {name: file.read_bytes() for name, file in written.items() if layout.is_file_of_record(name)}
    return open_run(held(source, files))


def is_of_another_tool(source: Path) -> bool:
    """Return whether a path is no run and no dump, and something that a record of scalars can be made of."""
    if not source.is_dir():
        return source.exists() and not is_archive(source) and not is_dump(source)
    return not layout.ranks(source) and not is_dump(source) and (is_monitored(source) or is_curves(source))
