"""A record that is made of another tool's files: of one rank, in a directory that holds no run, and the rows of scalars that it gets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from align_hooks.configuration.values import FRAMEWORKS
from align_hooks.errors import RefusedRun
from align_hooks.process.ranks import Launch
from align_hooks.record.format.ending import HowEnded
from align_hooks.record.format.layout import JsonObject
from align_hooks.record.format.shard import Shard
from align_hooks.record.write.start import holds_a_run
from align_hooks.record.write.writer import Writer
from align_hooks.settings import Settings

Row: TypeAlias = dict[str, float | bool | None]
"""A row of scalars by the keys of a record."""
REQUIRED = ("loss", "objective_loss", "valid_tokens", "grad_norm", "clip_coefficient", "learning_rate", "skipped")
"""Keys of a row that a record always has, None where they are unknown."""


def row_of(step: int, **said: float | bool | None) -> Row:
    """Return the row of a step with what was ``said`` of it: whatever a record has beside that is unknown."""
    return {"step": step, **dict.fromkeys(REQUIRED), **said}


@dataclass(frozen=True)
class Scalars:
    """``side`` is ``torch`` or ``ms``. ``rows`` are as a record keeps them, ascending.

    ``resolution`` is half of the last digit of ``loss`` and ``grad_norm``, the largest of all rows, and that of ``learning_rate`` relative
    to each. ``notes`` say what a reader should know.
    """

    side: str
    rows: list[Row]
    resolution: Mapping[str, float]
    notes: list[str] = field(default_factory=list)


@contextmanager
def recording(run: Path, side: str, asked: Settings, facts: JsonObject, steps: range, shards: Sequence[Shard] = ()) -> Iterator[Writer]:
    """Let a record by ``side`` be written, as if it had been recorded with the settings ``asked``.

    :raises RefusedRun: the directory holds a run.
    """
    if run.exists() and holds_a_run(run):
        raise RefusedRun(f"{run} already holds a run; choose another directory")
    writer = Writer(run.resolve(), Launch(), side, asked)
    writer.begin()
    writer.describe(place={}, shards=shards, facts={"framework": FRAMEWORKS[side], **facts}, steps=steps)
    yield writer
    writer.finish(HowEnded("finished"), hooks={})
