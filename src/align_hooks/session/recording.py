"""One rank's record as its training sees it: what is still wanted, what was captured, and what happens where capturing or writing fails."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from align_hooks.errors import in_a_line
from align_hooks.process.ranks import Launch
from align_hooks.process.streams import say
from align_hooks.quantities.kind import Quantity, Switch
from align_hooks.record.format.crash_stack import LastWords
from align_hooks.record.format.ending import HowEnded
from align_hooks.record.write.writer import Writer
from align_hooks.session.writing import AsyncWriter, Job, held, owned
from align_hooks.settings import Settings

Found = TypeVar("Found")
Produced = TypeVar("Produced")


@dataclass
class Recording:
    """``writer`` and ``words`` are None where nothing is recorded. ``step`` is the training step under way, None between steps and during
    evaluation. ``stopped`` says why recording stopped, ``captured`` are the switches for which something was captured, ``given_up`` is what
    is no longer tried beside the record. ``fatal`` is an error that training must not survive, see :meth:`must_succeed`."""

    settings: Settings
    launch: Launch
    writer: Writer | None = None
    words: LastWords | None = None
    step: int | None = None
    stopped: HowEnded | None = None
    captured: set[Switch] = field(default_factory=set)
    given_up: set[str] = field(default_factory=set)
    fatal: Exception | None = None
    writing: AsyncWriter = field(init=False)

    def __post_init__(self) -> None:
        self.writing = AsyncWriter(self._stop, self._slow)

    @property
    def is_on(self) -> bool:
        """Whether rows are being written."""
        return self.writer is not None and self.stopped is None

    def wants(self, kind: Quantity, step: int | None = None) -> bool:
        """Whether ``kind`` was asked for at ``step`` (the one under way unless given) and can still be recorded. What is printed too needs
        no record."""
        step = self.step if step is None else step
        if self.stopped is not None or step is None or step not in self.settings.steps(kind):
            return False
        return self.writer is not None or (kind.switch is not None and kind.switch.printed)

    def capture(self, kind: Quantity) -> None:
        """Keep that something of ``kind`` was captured."""
        if kind.switch is not None:
            self.captured.add(kind.switch)

    def write(self, what: str, step: int | None, produced: Produced, write: Callable[[Writer, Produced], None]) -> None:
        """Have what a step ``produced`` written, beside training and after all that was handed over before. With ``ON_ERROR=raise`` it is
        written at once, so that a failure ends the step that it belongs to."""
        writer = self.writer
        if writer is None or self.stopped is not None:
            return
        if self.settings.on_error == "raise":
            write(writer, produced)
            return
        kept = owned(produced)
        self.writing.put(Job(what, step, held(kept), lambda: write(writer, kept)))

    def _slow(self) -> None:
        waited = f"{self.writing.waited:.1f} s"
        say(f"align_hooks: rank {self.launch.rank} has waited {waited} for its disk: record fewer steps, or on a faster disk", sys.stderr)

    def _stop(self, what: str, step: int | None, error: BaseException) -> None:
        """End recording, and say so; what fails afterwards follows from the first failure."""
        if self.stopped is None:
            form = "stopped" if step is not None else "stopped_between_steps"
            self.stopped = HowEnded(form, step=step, what=what, error=in_a_line(error))
            say(f"align_hooks: rank {self.launch.rank} {self.stopped}; training goes on", sys.stderr)

    def survive(self, what: str, error: Exception) -> None:
        """Stop recording because of an error of ``what``. With ``ON_ERROR=raise``, or where training must not survive it, raise it."""
        if self.settings.on_error == "raise" or error is self.fatal:
            raise error
        self._stop(what, self.step, error)

    @contextmanager
    def isolate_failures(self, what: str) -> Iterator[None]:
        """Run a capture so that training survives its failure, unless ``ON_ERROR=raise``.

        Any exception of the body, a full disk or a bug of ours alike, ends recording and is reported at once, in the
        manifest, and by the exit code. Exceptions of the framework's own code must not be raised inside.
        """
        try:
            yield
        except Exception as error:
            self.survive(what, error)

    @contextmanager
    def must_succeed(self, kinds: type[Exception] = Exception) -> Iterator[None]:
        """Let an error of these kinds end training from wherever it is caught.

        It is for what training was asked to be fed, since a step with half of its gradients is neither run's, and for refusals.
        """
        try:
            yield
        except kinds as error:
            self.fatal = error
            raise

    def best_effort(self, what: str, look: Callable[[], Found], otherwise: Found) -> Found:
        """What ``look`` finds, or ``otherwise`` where it fails: of what is only beside the record, and ends neither it nor the training.

        A first failure is printed and is the last: nothing tries it again. With ``ON_ERROR=raise`` it is raised.
        """
        if what in self.given_up:
            return otherwise
        try:
            return look()
        except Exception as error:
            if self.settings.on_error == "raise":
                raise
            self.given_up.add(what)
            say(f"align_hooks: rank {self.launch.rank} goes on without {what}: {type(error).__name__}: {error}", sys.stderr)
            return otherwise
