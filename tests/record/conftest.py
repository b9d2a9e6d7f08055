"""Jobs whose ranks record from their beginning to their end, and what a directory holds."""

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from align_hooks.record.format.shard import Shard
from align_hooks.record.write.writer import Writer
from synthetic import EVERYTHING, Synthetic, begun, finished, job

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
        if record:
            record(writer, rank)
        finished(writer, () if record else steps)
    return path


def killed(*writers: Writer) -> None:
    """Let go of what writers hold, as the kernel does when their process is killed."""
    for writer in writers:
        if writer._claim is not None:
            writer._claim.release()


def failing(number: int) -> Callable[..., None]:
    """A call of the operating system that fails with an error number."""

    def fail(*arguments: object, **more: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


def contents(path: Path) -> dict[str, bytes]:
    """The content of a directory: bytes of files by path, and no bytes for directories, which count too."""
    return {str(entry.relative_to(path)): entry.read_bytes() if entry.is_file() else b"" for entry in path.rglob("*")}


@pytest.fixture(scope="session")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that holds one of everything, which tests only read."""
    return Synthetic(settings=EVERYTHING | {"sketches": "all"}).write(tmp_path_factory.mktemp("honest") / "run")


@pytest.fixture
def run(honest: Path, tmp_path: Path) -> Path:
    """A whole run that a test may change."""
    return Path(shutil.copytree(honest, tmp_path / "run"))
