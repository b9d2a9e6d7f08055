"""How a rank's run ended, from the words in which its manifest keeps it.

These words are part of the format: a process writes them as it ends, and records hold them for years. This module alone reads them, and
makes an :class:`End` and a message of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from align_hooks.messages import Argument, Message, message
from align_hooks.record.last_words import Ended


class End(Enum):
    """How a run ended. SIGNALLED left last words, UNKNOWN no word, OTHER words that this version does not know."""

    FINISHED = "finished"
    EARLY = "early"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    REFUSED = "refused"
    STOPPED = "stopped"
    SIGNALLED = "signalled"
    UNKNOWN = "unknown"
    OTHER = "other"


class Writing(Enum):
    """What was being written when recording stopped; the value is what manifests say."""

    BATCH = "the batch"
    LOSS = "the loss"
    TOKEN_LOSSES = "token losses"
    OBJECTIVE = "the objective"
    NUMBERS = "the numbers of the step"
    GLOBAL_NORM = "the global norm"
    LOCAL_NORMS = "local norms"
    GRADIENTS = "gradients"
    SKETCHES = "sketches"
    UPDATE = "the update"
    WEIGHTS = "weights"
    SKETCHES_OF_WEIGHTS = "sketches of the weights"
    OPTIMIZER_STATE = "the optimizer's state"
    SCALARS = "scalars"


@dataclass(frozen=True, slots=True)
class Ending:
    """How one rank ended, and what a report says of it."""

    end: End
    message: Message


NUMBERS = ("made", "planned", "step")
FORMS = tuple(
    (end, id, re.compile(form, re.DOTALL))
    for end, id, form in (
        (End.FINISHED, "rank.finished", r"finished"),
        (End.EARLY, "rank.early", r"ended early: (?P<made>[0-9]{1,18}) of (?P<planned>[0-9]{1,18}) planned steps were made"),
        (End.EARLY, "rank.early_of_unknown", r"ended early: (?P<made>[0-9]{1,18}) of its planned steps were made"),
        (End.FAILED, "rank.failed", r"failed: the script ended with an error"),
        (End.FAILED, "rank.failed_with_code", r"failed: the script ended with exit code (?P<code>-?[0-9]{1,18})"),
        (End.FAILED, "rank.failed_with_error", r"failed: the script ended with (?P<error>.+)"),
        (End.INTERRUPTED, "rank.interrupted", r"interrupted at step (?P<step>[0-9]{1,18}) \(SIGINT\)"),
        (End.REFUSED, "rank.refused", r"refused: (?P<error>.+)"),
        (End.STOPPED, "rank.stopped", r"stopped recording at step (?P<step>[0-9]{1,18}) while writing (?P<what>.+?): (?P<error>.+)"),
    )
)
"""The words of manifests; the first form that fits an ending counts."""


def ending(rank: int, ended: object, words: Ended | None) -> Ending:
    """The ending that a manifest says, or the last words of a process that did not live to write it there."""
    if ended:
        return _from_manifest(rank, str(ended))
    if words is None:
        return Ending(End.UNKNOWN, message("rank.never_ended", rank=rank))
    if not words.stack:
        return Ending(End.SIGNALLED, message("rank.ended_by_signal", rank=rank, signal=words.signal))
    file, line, function = words.stack[0]
    where = message("rank.ended_by_signal_in", rank=rank, signal=words.signal, file=file, line=line, function=function)
    return Ending(End.SIGNALLED, where)


def _from_manifest(rank: int, text: str) -> Ending:
    for end, id, form in FORMS:
        if slots := form.fullmatch(text):
            values = {name: _value(name, text) for name, text in slots.groupdict().items()}
            return Ending(end, message(id, **({} if end is End.FINISHED else {"rank": rank}), **values))
    return Ending(End.OTHER, message("rank.ended_otherwise", rank=rank, how=text))


def _value(name: str, text: str) -> Argument:
    """A slot of a form: a number, a known member of :class:`Writing`, or the text of an error."""
    if name in NUMBERS:
        return int(text)
    return next((writing for writing in Writing if name == "what" and writing.value == text), text)
