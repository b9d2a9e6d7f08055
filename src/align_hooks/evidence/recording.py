"""Records of one rank that are made of another tool's files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct, field

from align_hooks.configuration.values import FRAMEWORKS
from align_hooks.errors import RefusedRun
from align_hooks.process.ranks import Launch
from align_hooks.record.format.ending import HowEnded
from align_hooks.record.format.layout import JsonObject
from align_hooks.record.format.shard import Shard
from align_hooks.record.write.earlier_record import holds_a_run
from align_hooks.record.write.writer import Writer
from align_hooks.settings import Settings

Row: TypeAlias = dict[str, float | bool | None]
"""Key of a record to value."""
REQUIRED = ("loss", "objective_loss", "valid_tokens", "grad_norm", "clip_coefficient", "learning_rate", "skipped")
"""Keys that every row has, None where unknown."""


def row_of(step: int, **known: float | bool | None) -> Row:
    """Return the row of a step with its ``known`` values; the other required ones are None."""
    return {"step": step, **dict.fromkeys(REQUIRED), **known}


class Scalars(Struct, frozen=True):
    """The rows of scalars of a run."""

    side: str | None
    """``torch`` or ``ms``; None where nothing says which."""
    rows: list[Row]
    """By step, ascending."""
    resolution: Mapping[str, float]
    """Half of the last digit: the largest of all rows, for ``learning_rate`` relative to its value."""
    notes: list[str] = field(default_factory=list)
    """What a reader should know."""


@contextmanager
def recording(
    run: Path, side: str | None, asked: Settings, facts: JsonObject, steps: range, shards: Sequence[Shard] = ()
) -> Iterator[Writer]:
    """Yield the writer of a record by ``side`` with the settings ``asked``; raises RefusedRun where the directory holds a run."""
    if run.exists() and holds_a_run(run):
        raise RefusedRun(f"{run} already holds a run; choose another directory")
    writer = Writer(run.resolve(), Launch(), side, asked)
    writer.begin()
    writer.describe(place={}, shards=shards, facts={"framework": FRAMEWORKS.get(side or ""), **facts}, steps=steps)
    yield writer
    writer.finish(HowEnded("finished"), hooks={})
