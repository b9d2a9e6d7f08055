"""What a recorded run hands to another one at some of its steps: which run, which steps, and at which of these it was done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from align_hooks.errors import RecordError, RefusedRun
from align_hooks.messages import rendered
from align_hooks.record.reader import Run, open_run
from align_hooks.settings import Source


@dataclass
class Handed:
    """A ``source`` that a variable names. ``steps`` are those at which it hands something on, known before training; ``made`` those at
    which it did."""

    source: Source
    steps: tuple[int, ...] = ()
    made: set[int] = field(default_factory=set)

    @cached_property
    def run(self) -> Run:
        """The source's run; raises RecordError where there is none."""
        return open_run(self.source.path)

    def facts(self) -> dict[str, object]:
        """As run.json keeps it: the run, and the steps."""
        return {"run": str(self.source.path), "run_id": self.run.facts.run_id, "steps": list(self.steps)}

    def _chosen(self, kind: str, what: str, variables: str) -> list[int]:
        """Return the chosen steps at which a kind of quantity is recorded; raises RecordError where there are none.

        ``what`` is what it is called there, and ``variables`` are those that record it.
        """
        there = self.run.steps_of(kind)
        chosen = [step for step in there if step in self.source.steps]
        if not chosen:
            found = ", ".join(map(str, there[:5])) or "none"
            raise RecordError(f"{self.source} holds no {what} (recorded: {found}); record them with {variables}")
        return chosen

    def _refuse_missing_ranks(self) -> None:
        if self.run.missing is not None:
            raise RefusedRun(f"{self.source}: {rendered(self.run.missing.message)}; copy or record every rank")

    def _plan(self, recorded: Sequence[int], planned: range, what: str, variable: str) -> None:
        """Make ``steps`` those of ``recorded`` that are ``planned``; raises RefusedRun where a step that was named is not recorded or never
        made, and where none is left."""
        missing = self.source.steps.first_outside(set(recorded))
        if missing is not None:
            raise RefusedRun(f"{self.source} has no {what} of step {missing}; record them with {variable}={missing}")
        self.steps = tuple(step for step in recorded if step in planned)
        makes = f"this run makes steps {planned.start} to {planned.stop - 1}"
        if beyond := [step for step in recorded if self.source.steps.names(step) and step not in planned]:
            raise RefusedRun(f"{self.source}: step {beyond[0]} is never made; {makes}")
        if not self.steps:
            raise RefusedRun(f"{self.source} has {what} of steps {recorded[0]} to {recorded[-1]}, {makes}; choose steps that both have")
