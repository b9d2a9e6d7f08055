"""A record that is made of another tool's files: of one rank, in a directory that holds no run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from align_hooks.configuration.values import FRAMEWORKS
from align_hooks.errors import RefusedRun
from align_hooks.process.ranks import Launch
from align_hooks.record.ending import HowEnded
from align_hooks.record.layout import JsonObject
from align_hooks.record.shard import Shard
from align_hooks.record.start import holds_a_run
from align_hooks.record.writer import Writer
from align_hooks.settings import Settings


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
