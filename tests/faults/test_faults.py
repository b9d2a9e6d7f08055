"""Some histories of jobs that are killed (``make faults`` lives through more), and that the harness would see what it looks for."""

import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from align_hooks.record.format import digests
from align_hooks.record.write import atomic, earlier_record
from align_hooks.record.write.writer import Writer
from chosen import every
from faults import run as harness
from faults.jobs import Job, record
from faults.tracer import Traced, traced, unable

pytestmark = pytest.mark.skipif(bool(unable()), reason=unable() or "can trace")


@pytest.mark.parametrize("seed", every(3, [2, 5, 7]))
def test_no_moment_of_death_tears_loses_or_deletes(seed: int) -> None:
    outcome = harness.lived(seed, restart_every=120)
    assert outcome.wrong == []
    assert outcome.points.total() > 100


def record_alone(run: Path, at_stop: Callable[[Sequence[Traced]], bool]) -> None:
    traced([lambda: record(Job(1, 1, "refuse", range(3)), run, 0)], seed=0, at_stop=at_stop, at_mark=lambda rank, number: True)


def test_a_kill_leaves_what_was_there_at_the_stop(tmp_path: Path) -> None:
    """What is read at a stop is what a real SIGKILL leaves there."""
    run, stops = tmp_path / "run", list[dict[Path, bytes]]()

    def files() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}

    def at_stop(processes: object) -> bool:
        stops.append(files())
        return len(stops) < 90

    record_alone(run, at_stop)
    assert len(stops) == 90
    assert files() == stops[-1]


def row_first(self: Writer, *arguments: object, whole: Callable[..., None] = Writer.gradients) -> None:
    """A writer that lists gradients before they are there."""
    self._listed[f"{arguments[0]}/gradients.safetensors"] = "0" * 32


def in_place(path: Path, content: bytes) -> str:
    """A file that is written under its own name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return digests.xxh3(content)


def too_much(run: Path, rank: int, steps: object) -> None:
    """A deletion by pattern."""
    for path in run.glob("step_*/rank_*/*"):
        path.unlink() if path.is_file() else None


@pytest.mark.parametrize(
    ("where", "name", "bad"), [(Writer, "gradients", row_first), (atomic, "write_bytes", in_place), (earlier_record, "remove", too_much)]
)
def test_the_harness_sees_a_writer_that_is_wrong(monkeypatch: pytest.MonkeyPatch, where: object, name: str, bad: object) -> None:
    monkeypatch.setattr(where, name, bad)
    assert any(harness.lived(seed, restart_every=1000).wrong for seed in (1, 2))


def test_what_a_process_leaves_behind_is_ended(tmp_path: Path) -> None:
    pids: list[int] = []

    def at_stop(processes: list[Traced]) -> bool:
        pids.extend(process.pid for process in processes)
        return False

    record_alone(tmp_path, at_stop)
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], signal.SIGCONT)
