"""What a run recorded and is not there any more: rows that were cut, files that rows list and that were not copied."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from align_hooks.messages import message
from align_hooks.record import layout
from align_hooks.record.problems import Problem, ProblemKind


def lost(run: Any) -> Iterator[Problem]:
    """Of a run, made by ``open_run``, one problem for every kind of thing that a rank has lost."""
    for rank, committed in run.committed.items():
        for segment in run.segments(rank):
            there = committed.counts[segment.id]
            if there < (segment.rows or 0):
                words = message("segment.rows_cut", rank=rank, recorded=segment.rows, there=there)
                yield Problem(ProblemKind.ROWS_CUT, words, rank, place=f"scalars/rank_{rank}.jsonl")
        for name, listed in committed.listed.items():
            if name in layout.LINES:
                gone = run.lines(name, rank).lost
            else:
                gone = sorted(step for step in listed if not os.path.lexists(layout.step(run.path, step, rank) / name))
            if gone:
                yield _gone(run, rank, name, gone)


def _gone(run: Any, rank: int, name: str, gone: list[int]) -> Problem:
    """What rows list by a ``name`` and is not there, or not as it was, of the steps ``gone``."""
    step = gone[0]
    path = f"{name}/rank_{rank}.jsonl" if name in layout.LINES else str(layout.step(run.path, step, rank).relative_to(run.path) / name)
    words = message("lost.of_step", rank=rank, path=path, step=step)
    if len(gone) > 1:
        words = message("lost.of_steps", rank=rank, path=path, count=len(gone), step=step)
    return Problem(ProblemKind.LOST, words, rank, step, path)
