"""A quantity of a recorded run that is replayed at some steps of another run."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar

from msgspec import Struct, field

from align_hooks.errors import RecordError, RefusedRun
from align_hooks.messages import rendered
from align_hooks.names.blocks import Array
from align_hooks.record.reader import Run, open_run
from align_hooks.settings import Source


class ReplaySource(Struct, dict=True):
    """A quantity of the run that a variable names as its source."""

    quantity: ClassVar[str]
    """Name of the quantity, and of the method of ``Run`` that reads it at a step."""
    words: ClassVar[str]
    """The name in messages, followed by ``of_what`` where a source has none."""
    of_what: ClassVar[str] = ""
    recorder: ClassVar[str]
    """The variable that records it."""
    beside: ClassVar[str] = ""
    """The other variables that a recording needs, in words."""
    source: Source
    steps: tuple[int, ...] = ()
    """The steps to replay; empty before :meth:`plan`."""
    made: set[int] = field(default_factory=set)
    """The steps that were replayed."""
    _open: dict[int, Any] = field(default_factory=dict)
    """The step that was read last."""
    _read: dict[str, Array] = field(default_factory=dict)
    """The tensors that were read of this step."""

    @cached_property
    def run(self) -> Run:
        """The source's run; raises RecordError where there is none."""
        return open_run(self.source.path)

    def facts(self) -> dict[str, object]:
        """Return the run and the steps, for ``run.json``."""
        return {"run": str(self.source.path), "run_id": self.run.facts.run_id, "steps": list(self.steps)}

    def refuse_missing_ranks(self) -> None:
        """Raise RefusedRun where the source lacks ranks."""
        if self.run.missing is not None:
            raise RefusedRun(f"{self.source}: {rendered(self.run.missing.message)}; copy or record every rank")

    @cached_property
    def recorded(self) -> list[int]:
        """The chosen steps that are recorded; raises RecordError where there are none."""
        there = self.run.steps_of(self.quantity)
        chosen = [step for step in there if step in self.source.steps]
        if not chosen:
            found, ways = ", ".join(map(str, there[:5])) or "none", f"{self.recorder}{self.beside}"
            raise RecordError(f"{self.source} holds no {self.words}{self.of_what} (recorded: {found}); record them with {ways}")
        return chosen

    def at(self, step: int) -> Any:
        """Return what was recorded at a step; the last step stays open."""
        if step not in self._open:
            self._open, self._read = {step: getattr(self.run, self.quantity)(step)}, {}
        return self._open[step]

    def plan(self, planned: range, *, every: bool) -> Sequence[int]:
        """Set ``steps`` to the recorded steps that are ``planned``, and return those to check: all, or without ``every`` the first.

        Raises RefusedRun where a step that was named is not recorded or not planned, and where no step is left.
        """
        recorded = self.recorded
        missing = self.source.steps.first_outside(set(recorded))
        if missing is not None:
            raise RefusedRun(f"{self.source} has no {self.words} of step {missing}; record them with {self.recorder}={missing}")
        self.steps = tuple(step for step in recorded if step in planned)
        makes = f"this run makes steps {planned.start} to {planned.stop - 1}; choose steps that both have"
        if never := [step for step in recorded if self.source.steps.names(step) and step not in planned]:
            raise RefusedRun(f"{self.source}: step {never[0]} is never made; {makes}")
        if not self.steps:
            raise RefusedRun(f"{self.source} has {self.words} of steps {recorded[0]} to {recorded[-1]}, {makes}")
        return self.steps if every else self.steps[:1]
