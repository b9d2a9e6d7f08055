"""The exit status of a rank, which a manifest holds twice: ``end`` for programs, ``ended`` in words for people."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from string import Formatter

from msgspec import Struct
from msgspec.structs import asdict

from align_hooks.data_file import sections
from align_hooks.messages import Argument, Message, message
from align_hooks.record.format.crash_stack import SignalExit


class End(Enum):
    """How a run ended. SIGNALLED left a crash stack, UNKNOWN nothing, OTHER a text of another version."""

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
    """The part of a record that was being written when recording stopped; the value is its name in manifests."""

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
"""Form of an ending to its kind and its text; ``rank.FORM`` is its message."""
SLOTS = {form: {slot for _, slot, _, _ in Formatter().parse(words) if slot} for form, (_, words) in FORMS.items()}
"""Form to the names of the slots in its text."""


class HowEnded(Struct, frozen=True):
    """A process's own account of its end: a form, and the values of the slots in its text."""

    form: str
    """A key of :data:`FORMS`."""
    made: int | None = None
    planned: int | None = None
    step: int | None = None
    code: int | None = None
    what: str | None = None
    """The value of an :class:`InterruptedWrite`."""
    error: str | None = None
    where: str | None = None
    """The line of the script that raised the error."""

    def __str__(self) -> str:
        return FORMS[self.form][1].format_map(self.values())

    def values(self) -> dict[str, int | str]:
        """Return the values that are set, by slot."""
        return {slot: value for slot, value in asdict(self).items() if slot != "form" and value is not None}

    @property
    def is_known(self) -> bool:
        """Whether this version has the form, and exactly its slots are set."""
        return self.values().keys() == SLOTS.get(self.form)

    def facts(self) -> dict[str, int | str]:
        """Return the member ``end`` of the manifest."""
        return {"form": self.form, **self.values()}


class Ending(Struct, frozen=True):
    """How one rank ended, and the message of a report."""

    end: End
    message: Message


def ending(rank: int, how: HowEnded | None, ended: object, words: SignalExit | None) -> Ending:
    """Return the ending by ``end`` and ``ended`` of a manifest, or else by the crash stack."""
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
