"""Gaps of a run: missing ranks, steps, rows and files, and unobserved parts of batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from align_hooks.errors import RecordError
from align_hooks.messages import message, sentences
from align_hooks.process.storage import exists
from align_hooks.record.format import layout
from align_hooks.record.format.ending import End
from align_hooks.record.format.missing_batch import NOT_REPLAYED, MissingBatchReason, known
from align_hooks.record.read.problems import Problem, ProblemKind
from align_hooks.record.read.run_rows import RunRows


def lacking(run: RunRows) -> Iterator[Problem]:
    """Yield all gaps of a run, made by ``open_run``."""
    if run.missing is not None:
        yield run.missing
    if not run.facts.is_there:
        yield Problem(ProblemKind.FACTS_MISSING, message("run.facts_missing"), place="run.json")
    gaps = [step + 1 for step, after in zip(run.steps, run.steps[1:], strict=False) if after != step + 1]
    if gaps and not run.facts.are_of_some_steps:
        yield Problem(ProblemKind.STEP_MISSING, message("run.step_missing", step=gaps[0], iteration=gaps[0] + 1), step=gaps[0])
    last = run.steps[-1] if run.steps else None
    whole = message("run.last_whole_step", step=last, iteration=last + 1) if last is not None else message("run.no_whole_step")
    for rank, ending in run.endings.items():
        if ending.end is not End.FINISHED:
            yield Problem(ProblemKind.NOT_FINISHED, sentences(ending.message, whole), rank, last, f"manifest/rank_{rank}.json")
    for reason in run.unseen:
        rank = next(rank for rank, committed in run.committed.items() if reason.value in committed.rows.unseen)
        yield Problem(ProblemKind.UNSEEN, message("run.unseen", rank=rank, reason=reason.words), rank, place=f"scalars/rank_{rank}.jsonl")
    yield from _lost(run)


def _lost(run: RunRows) -> Iterator[Problem]:
    """Yield one problem for each quantity or file name of which a rank lost recorded data."""
    of_description: dict[str, tuple[str, ...]] = {}
    for rank, committed in run.committed.items():
        for segment in run.manifests[rank].starts():
            count = committed.counts[segment.id]
            if count < (segment.rows or 0):
                words = message("segment.rows_cut", rank=rank, recorded=segment.rows, there=count)
                yield Problem(ProblemKind.ROWS_CUT, words, rank, place=f"scalars/rank_{rank}.jsonl")
        for name, listed in {**committed.listed, **_arrays(run, rank, of_description)}.items():
            if name in layout.LINES:
                gone = run.lines(name, rank).lost
            else:
                gone = sorted(step for step in listed if not exists(layout.step(run.path, step, rank) / name))
            if gone:
                step = gone[0]
                place = layout.rows(run.path, name, rank) if name in layout.LINES else layout.step(run.path, step, rank) / name
                path = str(place.relative_to(run.path))
                words = message("lost.of_step", rank=rank, path=path, step=step, iteration=step + 1)
                if len(gone) > 1:
                    words = message("lost.of_steps", rank=rank, path=path, count=len(gone), step=step, iteration=step + 1)
                yield Problem(ProblemKind.LOST, words, rank, step, path)


def _arrays(run: RunRows, rank: int, of_description: dict[str, tuple[str, ...]]) -> Mapping[str, Sequence[int]]:
    """Return the steps of each array file of a rank's batches; ``of_description`` caches arrays by the digest of batch.json."""
    found: dict[str, list[int]] = {}
    for step, digest in run.committed[rank].listed.get(layout.BATCH, {}).items():
        if digest not in of_description:
            try:
                of_description[digest] = tuple(run.source(step, rank).described().arrays)
            except RecordError:  # a problem of its own, where the batch is read
                continue
        for array in of_description[digest]:
            found.setdefault(f"{array}.npy", []).append(step)
    return found


def why_not_replayed(run: RunRows, step: int) -> MissingBatchReason | None:
    """Return why the batch of a completed step has no loss mask or documents; None with both, or without a known reason."""
    return next((reason for reason in unseen_at(run, step) if reason in NOT_REPLAYED), None)


def unseen_at(run: RunRows, step: int) -> list[MissingBatchReason]:
    """Return why parts of the batch of a completed step are missing."""
    return known(word for row in run.rank_rows(step).values() for word in row.unseen) if run.unseen else []
