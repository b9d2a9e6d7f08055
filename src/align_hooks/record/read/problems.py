"""Why a record is not whole: each reason by its kind and its place, with the message that a report shows.

Ranks may be missing or have ended early, steps between others may be missing, rows may be cut, files may not have been copied. Of a batch
some may not have been seen when it was recorded.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from align_hooks.messages import Joined, Message, message, rendered


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
