"""Why a record is not whole: each reason by its kind and its place, with what a report says of it."""

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


@dataclass(frozen=True, slots=True)
class Problem:
    """One reason; printed, it is its English sentence.

    ``rank`` and ``step`` are the first that it is about, None where it is about none; of a run that did not finish ``step`` is its last
    whole one. ``place`` is the file in the run, empty where it is about no single one. ``error`` is what reading that file raised.
    """

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
    """Problems in their order, each error once: whoever opens a file and whoever reads all of it meet the same one."""
    kept, errors = [], {""}
    for problem in problems:
        if not problem.error or problem.error not in errors:
            kept.append(problem)
        errors.add(problem.error)
    return kept
