"""Why a run is not whole: ranks that are missing or ended early, steps between others, rows that were cut, files that were not copied."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from align_hooks.messages import message, sentences
from align_hooks.record import layout
from align_hooks.record.ending import End
from align_hooks.record.problems import Problem, ProblemKind

if TYPE_CHECKING:
    from align_hooks.record.reader import Run


def missing_ranks(run: Run) -> Problem | None:
    """How many ranks left no manifest and which is the first; None where all are there."""
    count = run.world_size - len(run.manifests)
    if count <= 0:
        return None
    first = next(rank for rank in range(run.world_size) if rank not in run.manifests)
    words = message("run.ranks_missing", count=count, ranks=run.world_size, rank=first)
    return Problem(ProblemKind.RANKS_MISSING, words, rank=first)


def problems(run: Run) -> Iterator[Problem]:
    """Everything that a run, made by ``open_run``, lacks of what it was to hold."""
    if run.missing is not None:
        yield run.missing
    if not run.facts.is_there:
        yield Problem(ProblemKind.FACTS_MISSING, message("run.facts_missing"), place="run.json")
    gaps = [step + 1 for step, after in zip(run.steps, run.steps[1:], strict=False) if after != step + 1]
    if gaps:
        yield Problem(ProblemKind.STEP_MISSING, message("run.step_missing", step=gaps[0]), step=gaps[0])
    yield from _unfinished(run)
    yield from _lost(run)


def _unfinished(run: Run) -> Iterator[Problem]:
    last = run.steps[-1] if run.steps else None
    whole = message("run.last_whole_step", step=last) if last is not None else message("run.no_whole_step")
    for rank, one in run.endings.items():
        if one.end is not End.FINISHED:
            yield Problem(ProblemKind.NOT_FINISHED, sentences(one.message, whole), rank, last, f"manifest/rank_{rank}.json")


def _lost(run: Run) -> Iterator[Problem]:
    """What was recorded and is not there any more, one problem for every kind of thing that a rank has lost."""
    for rank, committed in run.committed.items():
        for segment in run.manifests[rank].starts():
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


def _gone(run: Run, rank: int, name: str, gone: list[int]) -> Problem:
    """What rows list by a ``name`` and is not there, or not as it was, of the steps ``gone``."""
    step = gone[0]
    path = f"{name}/rank_{rank}.jsonl" if name in layout.LINES else str(layout.step(run.path, step, rank).relative_to(run.path) / name)
    words = message("lost.of_step", rank=rank, path=path, step=step)
    if len(gone) > 1:
        words = message("lost.of_steps", rank=rank, path=path, count=len(gone), step=step)
    return Problem(ProblemKind.LOST, words, rank, step, path)
