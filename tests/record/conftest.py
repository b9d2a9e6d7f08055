"""Jobs whose ranks record from their beginning to their end, and what a directory holds."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from align_hooks.record.ending import HowEnded
from align_hooks.record.shard import Shard
from align_hooks.record.writer import Writer
from synthetic import begun, job, row

Place = dict[str, int]
DP2: tuple[Place, Place] = ({"dp": 0}, {"dp": 1})


def of_ranks(
    path: Path,
    places: Sequence[Mapping[str, int]],
    record: Callable[[Writer, int], object] | None = None,
    *,
    shards: Sequence[Sequence[Shard]] | None = None,
    steps: range = range(1),
    **switches: str,
) -> Path:
    """A run with a rank at each place; ``record`` gets each rank's writer and number, and writes its steps; else rows are written."""
    for rank, place in enumerate(places):
        writer = begun(path, job(rank, len(places)), **switches)
        writer.describe(place=place, shards=shards[rank] if shards else [], facts={}, steps=steps)
        for step in () if record else steps:
            writer.scalars(row(step))
        if record:
            record(writer, rank)
        writer.finish(HowEnded("finished"), hooks={})
    return path


def failing(number: int) -> Callable[..., None]:
    """A call of the operating system that fails with an error number."""

    def fail(*arguments: object, **more: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


def contents(path: Path) -> dict[str, bytes]:
    """The content of a directory: bytes of files by path, and no bytes for directories, which count too."""
    return {str(entry.relative_to(path)): entry.read_bytes() if entry.is_file() else b"" for entry in path.rglob("*")}
