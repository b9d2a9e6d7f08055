"""The reasons why a record is incomplete, each with its kind, place and message."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from msgspec import Struct

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


class Problem(Struct, frozen=True):
    """One reason; ``str`` is the English sentence."""

    kind: ProblemKind
    message: Message | Joined
    rank: int | None = None
    """The first rank with the problem; None for a problem of no rank."""
    step: int | None = None
    """The first step with the problem, or the last completed one of a run that did not finish; None for no step."""
    place: str = ""
    """The file in the run; empty for a problem of no single file."""
    error: str = ""
    """The text of the error from reading the file."""

    def __str__(self) -> str:
        return rendered(self.message)


def unreadable(error: Exception, rank: int | None = None, step: int | None = None, place: str = "") -> Problem:
    """Return the problem of an unreadable file; an error's text is the same in every language."""
    return Problem(ProblemKind.UNREADABLE, message("run.unreadable", error=str(error)), rank, step, place, str(error))


def distinct(problems: Iterable[Problem]) -> list[Problem]:
    """Return problems in order, each error once: opening and reading a file raise the same error."""
    kept, errors = [], {""}
    for problem in problems:
        if not problem.error or problem.error not in errors:
            kept.append(problem)
        errors.add(problem.error)
    return kept
