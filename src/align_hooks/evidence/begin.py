"""The start of a record that is made of another tool's files: one rank, into a directory that holds no run."""

from __future__ import annotations

from pathlib import Path

from align_hooks.errors import RefusedRun
from align_hooks.process.ranks import Launch
from align_hooks.record.start import holds_a_run
from align_hooks.record.writer import Writer
from align_hooks.settings import Settings


def begin(run: Path, side: str, asked: Settings) -> Writer:
    """The writer of a record by ``side``, as if it had been recorded with the settings ``asked``; raises RefusedRun where the directory
    holds a run."""
    if run.exists() and holds_a_run(run):
        raise RefusedRun(f"{run} already holds a run; choose another directory")
    writer = Writer(run.resolve(), Launch(), side, asked)
    writer.begin()
    return writer
