"""The witness of a process below ``align-hooks prove``: what a training that nothing interferes with must not change.

It limits the steps, lets no checkpoint be written and no evaluation run, and writes a file a rank: losses, digests of parameters and of
random states, seconds, waits and memory. It is all that a run without hooks has; each side has it in ``hooks/witness.py``.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct, field, to_builtins

from align_hooks.hooking.patch_log import PatchLog
from align_hooks.process.ranks import Launch
from align_hooks.record.write import atomic
from align_hooks.settings import Settings

COUNTED = 1
"""Index of the step whose operators, graph and waits are counted; the first one compiles and allocates."""


class WitnessedStep(Struct):
    """A step of a rank."""

    step: int
    losses: list[str]
    """What the loss function returned, one a micro-batch, as ``float.hex``; empty on a stage without a loss."""
    generators: Mapping[str, str]
    """Each random generator to the digest of its state at the step's end."""
    seconds: float | None
    """None where it is not known, as of a first step that compiles."""


class Witnessed(Struct):
    """What the witness of a rank writes."""

    side: str
    rank: int
    world_size: int
    pid: int = 0
    prefix: str = sys.prefix
    """Where the interpreter's environment lies."""
    device: str = ""
    """Name of the accelerator, or ``CPU``."""
    versions: dict[str, str] = field(default_factory=dict)
    steps: list[WitnessedStep] = field(default_factory=list)
    initial: dict[str, str] = field(default_factory=dict)
    """Parameter to the digest of its bytes before the first step."""
    final: dict[str, str] = field(default_factory=dict)
    """As ``initial``, after the last step; empty where training ended before it."""
    elements: int = 0
    """Elements of the parameters that this rank holds."""
    nodes: dict[str, int] = field(default_factory=dict)
    """Kind to number of the nodes of the losses' graph at the counted step; empty where the side has no such graph."""
    waits: dict[str, int] | None = None
    """Line of code to how often it let the host wait for the device in the counted step; None where the device does not tell."""
    left_out: dict[str, int] = field(default_factory=dict)
    """What was asked for and not done, such as checkpoints, to how often."""
    device_memory: int | None = None
    """Peak of the device's memory in bytes; None where it does not say."""
    host_memory: int = 0
    """Peak of the process's memory in bytes."""
    ignored_limit: bool = False
    """Whether the job asked for a step behind the last."""


class JobWitness:
    """The session of a witness: what its hooks need, and what they have seen."""

    def __init__(self, side: str, asked: str) -> None:
        steps, _, folder = asked.partition(":")
        launch = Launch.from_environment(os.environ)
        self.settings, self.patch_log = Settings(), PatchLog()
        self.limit, self.folder = int(steps), Path(folder)
        self.seen = Witnessed(side, launch.rank, launch.world_size, os.getpid())
        self.left_out = Counter[str]()
        self.losses: list[object] = []
        """Losses of the step under way, on their device."""

    def survive(self, what: str, error: Exception) -> None:
        """Raise an error of the witness: a proof without a witness is none."""
        raise error

    @property
    def counts(self) -> bool:
        """Whether the step under way is the one whose operators are counted."""
        return len(self.seen.steps) == COUNTED

    @property
    def is_last(self) -> bool:
        """Whether the step under way is the last."""
        return len(self.seen.steps) == self.limit - 1

    @property
    def is_over(self) -> bool:
        """Whether all steps have been made."""
        return len(self.seen.steps) >= self.limit

    def end_step(self, step: WitnessedStep, digests: Callable[[], dict[str, str]]) -> None:
        """Keep a step, and write what has been seen; ``digests`` of the parameters are taken after the last."""
        self.seen.steps.append(step)
        if self.is_over:
            self.seen.final = digests()
        self.write()

    def write(self) -> None:
        """Write the file of this rank, which replaces the one before."""
        self.seen.left_out = dict(self.left_out)
        self.seen.host_memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        atomic.write_json(self.folder / f"{self.seen.rank}.json", to_builtins(self.seen))


def read(folder: Path) -> list[Witnessed]:
    """Return what the witnesses of a run wrote, by rank."""
    tables = [json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*.json")]
    seen = [Witnessed(**{**table, "steps": [WitnessedStep(**step) for step in table["steps"]]}) for table in tables]
    return sorted(seen, key=lambda each: each.rank)
