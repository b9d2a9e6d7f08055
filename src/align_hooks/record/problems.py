"""Why a record is not whole: each reason by its kind and its place, with the message that a report shows.

Ranks may be missing or have ended early, steps between others may be missing, rows may be cut, files may not have been copied. Of a batch
some may not have been seen when it was recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from align_hooks.errors import RecordError
from align_hooks.messages import Joined, Message, message, rendered, sentences
from align_hooks.process.storage import exists
from align_hooks.record import layout
from align_hooks.record.batch import described
from align_hooks.record.ending import End

if TYPE_CHECKING:
    from align_hooks.record.reader import Run


class ProblemKind(Enum):
    """What is wrong with a record."""

    RANKS_MISSING = "ranks_missing"
    FACTS_MISSING = "facts_missing"
    STEP_MISSING = "step_missing"
    NOT_FINISHED = "not_finished"
    ROWS_CUT = "rows_cut"
    LOST = "lost"
    NO_WHOLE_STEP = "no_whole_step"
    NOT_RECORDED = "not_recorded"
    UNREADABLE = "unreadable"
    UNSEEN = "unseen"


@dataclass(frozen=True, slots=True)
class Problem:
    """One reason; printed, it is its English sentence. ``rank`` and ``step`` are the first that have the problem, None where it has none;
    of a run that did not finish ``step`` is its last whole one. ``place`` is the file in the run, empty where the problem is of no single
    file. ``error`` is the text of the error that reading the file raised."""

    kind: ProblemKind
    message: Message | Joined
    rank: int | None = None
    step: int | None = None
    place: str = ""
    error: str = ""

    def __str__(self) -> str:
        return rendered(self.message)


def unreadable(error: Exception, rank: int | None = None, step: int | None = None, place: str = "") -> Problem:
    """A file that could not be read; an error's text is the same in every language."""
    return Problem(ProblemKind.UNREADABLE, message("run.unreadable", error=str(error)), rank, step, place, str(error))


def distinct(problems: Iterable[Problem]) -> list[Problem]:
    """Problems in their order, each error once: opening a file and reading all of it raise the same error."""
    kept, errors = [], {""}
    for problem in problems:
        if not problem.error or problem.error not in errors:
            kept.append(problem)
        errors.add(problem.error)
    return kept


def lacking(run: Run) -> Iterator[Problem]:
    """Everything that a run, made by ``open_run``, was to hold and lacks."""
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


def _lost(run: Run) -> Iterator[Problem]:
    """What was recorded and is gone, one problem for every kind of thing that a rank has lost."""
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


def _arrays(run: Run, rank: int, of_description: dict[str, tuple[str, ...]]) -> Mapping[str, Sequence[int]]:
    """The file of each array of a rank's batches, and the steps that have it. Ranks that were fed alike wrote the same description, and of
    equal digests one is read: its arrays go to ``of_description``."""
    found: dict[str, list[int]] = {}
    for step, digest in run.committed[rank].listed.get(layout.BATCH, {}).items():
        if digest not in of_description:
            try:
                of_description[digest] = tuple(described(run.source(step, rank)).arrays)
            except RecordError:  # a problem of its own, where the batch is read
                continue
        for array in of_description[digest]:
            found.setdefault(f"{array}.npy", []).append(step)
    return found
