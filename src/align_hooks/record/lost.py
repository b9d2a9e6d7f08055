"""What a run recorded and is not there any more: rows that were cut, files that rows list and that were not copied."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from align_hooks.record import layout


def lost(run: Any) -> Iterator[str]:
    """Of a run, made by ``open_run``, one sentence for every kind of thing that a rank has lost."""
    for rank, committed in run.committed.items():
        for segment in run.segments(rank):
            there = committed.counts[segment.id]
            if there < (segment.rows or 0):
                yield f"rank {rank} recorded {segment.rows} steps and {there} are here: its rows were cut; copy them again"
        for name, listed in committed.listed.items():
            if name in layout.LINES:
                gone = run.lines(name, rank).lost
            else:
                gone = sorted(step for step in listed if not os.path.lexists(layout.step(run.path, step, rank) / name))
            if gone:
                where = (
                    f"{name}/rank_{rank}.jsonl"
                    if name in layout.LINES
                    else str(layout.step(run.path, gone[0], rank).relative_to(run.path) / name)
                )
                of = f"of {len(gone)} steps, first {gone[0]}," if len(gone) > 1 else f"of step {gone[0]}"
                yield f"rank {rank}: {where} {of} was recorded and is not as it was, or not there; copy it again"


def without_digests(run: Any) -> str:
    """Of a run that was recorded before there were digests, what that means."""
    return (
        f"{len(run.undigested)} steps were recorded without digests, by an earlier version: what was changed in them since is not noticed"
    )
