"""How a rank's run ended: what its process writes into the manifest, and what a reader makes of it.

A manifest has it twice: ``end`` for programs, and ``ended`` in words for people.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from string import Formatter

from align_hooks.data_file import sections
from align_hooks.messages import Argument, Message, message
from align_hooks.record.write.crash_stack import SignalExit


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


class InterruptedWrite(Enum):
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
    ACTIVATIONS = "activations"
    ROUTING = "the experts of each token"
    TERMS = "the terms of the loss"
    STATE = "the state that the step starts from"
    STEP = "the step"
    RUN = "what the run is"
    RECORD = "the record"


LINES = sections(Path(__file__).with_name("endings.txt"))[""]
FORMS = {form: (End(end), words) for form, end, words in (line.split(" ", 2) for line in LINES)}
"""The forms of an ending, and the words of each; ``rank.FORM`` is its message."""
SLOTS = {form: {slot for _, slot, _, _ in Formatter().parse(words) if slot} for form, (_, words) in FORMS.items()}
"""The names in the words of each form."""


@dataclass(frozen=True, slots=True)
class HowEnded:
    """How a process ended, as it writes it down: one of :data:`FORMS`, and what fills the slots of its words. ``what`` is what was being
    written, the value of a :class:`InterruptedWrite`; ``where`` the line of the script at which the error came about."""

    form: str
    made: int | None = None
    planned: int | None = None
    step: int | None = None
    code: int | None = None
    what: str | None = None
    error: str | None = None
    where: str | None = None

    def __str__(self) -> str:
        return FORMS[self.form][1].format_map(self.values())

    def values(self) -> dict[str, int | str]:
        """What is set, by slot."""
        return {slot: value for slot, value in asdict(self).items() if slot != "form" and value is not None}

    @property
    def is_known(self) -> bool:
        """Whether this version has its form, and just the slots of that are filled."""
        return self.values().keys() == SLOTS.get(self.form)

    def facts(self) -> dict[str, int | str]:
        """``end`` of the manifest."""
        return {"form": self.form, **self.values()}


@dataclass(frozen=True, slots=True)
class Ending:
    """How one rank ended, and what a report says of it."""

    end: End
    message: Message


def ending(rank: int, how: HowEnded | None, ended: object, words: SignalExit | None) -> Ending:
    """The ending by ``end`` and ``ended`` of a manifest, or by the last words of a process that did not live to write them."""
    if how is not None and how.is_known:
        arguments: dict[str, Argument] = {**how.values()} if how.form == "finished" else {"rank": rank, **how.values()}
        if how.step is not None:
            arguments["iteration"] = how.step + 1
        if how.what is not None:
            arguments["what"] = next((writing for writing in InterruptedWrite if writing.value == how.what), how.what)
        return Ending(FORMS[how.form][0], message(f"rank.{how.form}", **arguments))
    if ended:
        return Ending(End.OTHER, message("rank.ended_otherwise", rank=rank, how=str(ended)))
    if words is None:
        return Ending(End.UNKNOWN, message("rank.never_ended", rank=rank))
    if not words.stack:
        return Ending(End.SIGNALLED, message("rank.ended_by_signal", rank=rank, signal=words.signal))
    file, line, function = words.stack[0]
    where = message("rank.ended_by_signal_in", rank=rank, signal=words.signal, file=file, line=line, function=function)
    return Ending(End.SIGNALLED, where)
