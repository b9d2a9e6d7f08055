"""What a recorded run hands to another one at some of its steps: which run, which steps, and at which of these it was done."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

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
