"""The record of one rank during training: which quantities are wanted, which were captured, and what an error ends."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import TypeVar

from msgspec import Struct

from align_hooks.errors import with_origin
from align_hooks.process.ranks import Launch
from align_hooks.process.streams import say
from align_hooks.quantities.kind import Quantity, Switch
from align_hooks.quantities.registry import SWITCHES
from align_hooks.record.format.crash_stack import CrashStack
from align_hooks.record.format.ending import HowEnded
from align_hooks.record.write.writer import Writer
from align_hooks.session.writing import AsyncWriter, WriteTask, detach_copies
from align_hooks.settings import Settings, Steps

Produced = TypeVar("Produced")


class Isolation(Struct, frozen=True):
    """The context of a capture whose failure the training survives; a generator would cost twice as much, eight times a step."""

    recording: Recording
    what: str

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        if isinstance(error, Exception):
            self.recording.survive(self.what, error)
        return isinstance(error, Exception)


@dataclass
class Recording:
    """The recording of one rank; an error in it ends the recording, and the training only where that was asked for."""

    settings: Settings
    launch: Launch
    writer: Writer | None = None
    """None without a run directory, like ``crash_stack``."""
    crash_stack: CrashStack | None = None
    step: int | None = None
    """The training step under way; None between steps and during evaluation."""
    stopped: HowEnded | None = None
    """Why recording stopped; None while it goes on."""
    captured: set[Switch] = field(default_factory=set)
    """The switches for which something was captured."""
    given_up: set[str] = field(default_factory=set)
    """The calls of :meth:`best_effort` that failed, and are not tried again."""
    fatal: Exception | None = None
    """The error that must end training, see :meth:`must_succeed`."""
    writing: AsyncWriter = field(init=False)

    def __post_init__(self) -> None:
        self.writing = AsyncWriter(self._stop, self._slow)

    @property
    def is_on(self) -> bool:
        """Whether rows are being written."""
        return self.writer is not None and self.stopped is None

    @functools.cached_property
    def asked(self) -> list[Steps]:
        """The steps of each variable that chooses some."""
        return [steps for switch in SWITCHES if (steps := self.settings.steps(switch))]

    def selects(self, step: int) -> bool:
        """Return whether anything was asked for at ``step``, or of the state behind it, which has the next number."""
        return any(step in steps or step + 1 in steps for steps in self.asked)

    def wants(self, kind: Quantity, step: int | None = None) -> bool:
        """Return whether ``kind`` was asked for at ``step``, by default the current one, and can still be recorded or printed."""
        step = self.step if step is None else step
        if self.stopped is not None or step is None or step not in self.settings.steps(kind):
            return False
        return self.writer is not None or (kind.switch is not None and kind.switch.printed)

    def write(self, what: str, step: int | None, produced: Produced, write: Callable[[Writer, Produced], None], held: int = 0) -> None:
        """Queue ``produced`` of a step for the writing thread; ``write`` is called with the writer and a copy.

        ``held`` are the bytes that a function among it holds."""
        writer = self.writer
        if writer is None or self.stopped is not None:
            return
        if self.settings.on_error == "raise":  # at once, so that a failure ends the step to which it belongs
            write(writer, produced)
            return
        copy, size = detach_copies(produced)
        self.writing.put(WriteTask(what, step, size + held, lambda: write(writer, copy)))

    def _slow(self) -> None:
        waited = f"{self.writing.waited:.1f} s"
        say(f"align_hooks: rank {self.launch.rank} has waited {waited} for its disk: record fewer steps, or on a faster disk", sys.stderr)

    def _stop(self, what: str, step: int | None, error: BaseException) -> None:
        """End recording, and print why."""
        if self.stopped is None:  # later failures follow from the first
            form = "stopped" if step is not None else "stopped_between_steps"
            self.stopped = HowEnded(form, step=step, what=what, error=with_origin(error))
            say(f"align_hooks: rank {self.launch.rank} {self.stopped}; training goes on", sys.stderr)

    def survive(self, what: str, error: Exception) -> None:
        """Stop recording because of an error in ``what``; raises the error with ``ON_ERROR=raise``, and a fatal one."""
        if self.settings.on_error == "raise" or error is self.fatal:
            raise error
        self._stop(what, self.step, error)

    def isolate_failures(self, what: str) -> Isolation:
        """Run a capture so that its failure ends recording, and not training, unless ``ON_ERROR=raise``.

        The failure is reported at once, in the manifest, and by the exit code. The block must not call the framework's own code, whose
        exceptions belong to the script.
        """
        return Isolation(self, what)

    @contextmanager
    def must_succeed(self, kinds: type[Exception] = Exception) -> Iterator[None]:
        """Let errors of these kinds end training, wherever they are caught: refusals, and failures of a replay.

        A step with half of its gradients replayed would be neither run's.
        """
        try:
            yield
        except kinds as error:
            self.fatal = error
            raise

    def best_effort(self, what: str, call: Callable[[], Produced], otherwise: Produced) -> Produced:
        """Return the result of ``call``, or ``otherwise`` where it fails: for what neither recording nor training needs.

        A failure is printed, and ``what`` is not tried again. With ``ON_ERROR=raise`` it is raised.
        """
        if what in self.given_up:
            return otherwise
        try:
            return call()
        except Exception as error:
            if self.settings.on_error == "raise":
                raise
            self.given_up.add(what)
            say(f"align_hooks: rank {self.launch.rank} goes on without {what}: {type(error).__name__}: {error}", sys.stderr)
            return otherwise
