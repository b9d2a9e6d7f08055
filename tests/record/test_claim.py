"""A directory is one job's, for as long as the job lives."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from align_hooks import open_run
from align_hooks.errors import RecordError, RefusedRun
from align_hooks.messages import message
from align_hooks.record import claim, layout
from align_hooks.record.ending import HowEnded
from align_hooks.record.holdings import not_whole
from synthetic import Synthetic, begun, job, row

HOLDER = """
import sys
from pathlib import Path
from align_hooks.record.ending import HowEnded
from synthetic import Synthetic, begun, job, row
path, exists, name, rank, world = Path(sys.argv[1]), *sys.argv[2:4], *map(int, sys.argv[4:6])
try:
    writer = begun(path, job(rank, world, name), run_exists=exists)
    print("begun", flush=True)
    for line in sys.stdin:
        if line == "describe\\n":
            writer.describe(place={"dp": rank}, shards=[], facts={}, steps=range(3))
        elif line == "step\\n":
            writer.scalars(row(writer.written["scalars"]))
        elif line == "finish\\n":
            writer.finish(HowEnded("finished"), hooks={})
        print("done", flush=True)
except Exception as error:
    print(type(error).__name__, error, flush=True)
"""


class Holder:
    """A process that records when it is told to."""

    def __init__(self, path: Path, exists: str = "refuse", name: str = "one", rank: int = 0, world: int = 1) -> None:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])}
        arguments = [str(path), exists, name, str(rank), str(world)]
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    @property
    def _out(self) -> IO[str]:
        assert self.process.stdout is not None
        return self.process.stdout

    def said(self) -> str:
        return self._out.readline().strip()

    def do(self, *words: str) -> str:
        said = ""
        for word in words:
            assert self.process.stdin is not None
            self.process.stdin.write(f"{word}\n")
            self.process.stdin.flush()
            said = self.said()
        return said

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def holding(*arguments: object, **more: object) -> Iterator[Holder]:
    holder = Holder(*arguments, **more)  # type: ignore[arg-type]
    try:
        yield holder
    finally:
        holder.kill()


@pytest.mark.parametrize("exists", ["refuse", "replace", "continue"])
def test_a_directory_that_a_living_job_records_into_is_refused_by_name(tmp_path: Path, exists: str) -> None:
    with holding(tmp_path / "run") as first:
        assert first.said() == "begun" and first.do("describe", "step") == "done"
        before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        with pytest.raises(RefusedRun, match=rf"already holds a run|recorded into by pid {first.process.pid} of {os.uname().nodename}"):
            begun(tmp_path / "run", run_exists=exists)
        assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
        assert first.do("step", "step", "finish") == "done"
    assert open_run(tmp_path / "run").steps == [0, 1, 2] and open_run(tmp_path / "run").problems == []


@pytest.mark.parametrize("exists", ["replace", "continue"])
def test_a_job_that_was_killed_holds_nothing(tmp_path: Path, exists: str) -> None:
    with holding(tmp_path / "run") as first:
        first.said()
        first.do("describe", "step")
    writer = begun(tmp_path / "run", run_exists=exists)
    writer.describe(place={"dp": 0}, shards=[], facts={}, steps=range(1, 3) if exists == "continue" else range(3))
    for step in range(1 if exists == "continue" else 0, 3):
        writer.scalars(row(step))
    writer.finish(HowEnded("finished"), hooks={})
    assert open_run(tmp_path / "run").steps == [0, 1, 2] and open_run(tmp_path / "run").problems == []


def test_of_many_starts_at_once_one_wins(tmp_path: Path) -> None:
    for attempt, exists in enumerate(("refuse", "replace", "continue")):
        run = tmp_path / str(attempt)
        failed = begun(run)
        failed.finish(HowEnded("refused", error="a start that recorded nothing"), hooks={})
        holders = [Holder(run, exists) for _ in range(5)]
        try:
            said = [holder.said() for holder in holders]
            assert said.count("begun") == 1, said
            assert all(one == "begun" or one.startswith("RefusedRun") for one in said)
            winner = holders[said.index("begun")]
            assert winner.do("describe", "step", "step", "step", "finish") == "done"
        finally:
            for holder in holders:
                holder.kill()
        assert open_run(run).steps == [0, 1, 2] and open_run(run).problems == []


def test_ranks_of_two_jobs_are_never_one_run(tmp_path: Path) -> None:
    """Rank 0 of one job and rank 1 of another get hold of the directory first: the second one's is refused when its model is built."""
    with holding(tmp_path, "refuse", "two", 1, 2) as stranger, holding(tmp_path, "refuse", "one", 0, 2) as first:
        assert stranger.said() == first.said() == "begun"
        assert "rank 0 of another job records here" in stranger.do("describe")
        assert first.do("describe") == "done"
    missing = open_run(tmp_path).missing
    assert missing is not None and missing.rank == 1


def test_every_file_of_a_run_says_of_which_start_it_is(tmp_path: Path) -> None:
    run = Synthetic(settings={**Synthetic().settings, "sketches": "all"}).write(tmp_path / "run")
    ident = json.loads((run / "run.json").read_text())["segment"].encode()
    bound = [path for path in run.rglob("*") if path.suffix in (".npy", ".claim") or path.name in ("config.json", "squared.json")]
    for path in run.rglob("*"):
        if path.is_file() and path not in bound:
            assert ident in path.read_bytes(), path
    assert len(bound) < len(list(run.rglob("*"))) / 2  # these a digest binds, in a file that says it


def test_the_ranks_of_a_start_have_one_segment(tmp_path: Path) -> None:
    for rank in (0, 1):
        writer = begun(tmp_path, job(rank, 2))
        writer.describe(place={"dp": rank}, shards=[], facts={}, steps=range(1))
        writer.scalars(row(0))
        writer.finish(HowEnded("finished"), hooks={})
    first, second = (json.loads(layout.manifest(tmp_path, rank).read_text()) for rank in (0, 1))
    assert first["segment"] == second["segment"] and first["run_id"] == second["run_id"] == open_run(tmp_path).facts.run_id


def test_a_rank_does_not_join_an_earlier_start_of_its_job(tmp_path: Path) -> None:
    """Two starts of one name, as a fixed port gives them. Rank 0 of the second is gone again before rank 1 has built its model."""
    with holding(tmp_path, "refuse", "one", 0, 2) as first, holding(tmp_path, "refuse", "one", 1, 2) as other:
        assert first.said() == other.said() == "begun"
        assert first.do("describe", "step") == other.do("describe", "step") == "done"
    with holding(tmp_path, "replace", "one", 1, 2) as second:
        assert second.said() == "begun"
        assert "rank 0 of this job does not record here any more" in second.do("describe")
    assert open_run(tmp_path).steps == [0]


COPIER = """
import shutil, sys
from pathlib import Path
from synthetic import begun
run = Path(sys.argv[1])
begun(run)
shutil.copytree(run, sys.argv[2])
print("copied", flush=True)
sys.stdin.read()
"""


def test_a_script_that_copies_its_own_run_still_holds_it_and_not_the_copy(tmp_path: Path) -> None:
    """The kernel drops a process's lock when it closes any descriptor of the file."""
    run, copy = tmp_path / "run", tmp_path / "copy"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])}
    line = [sys.executable, "-c", COPIER, str(run), str(copy)]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "copied\n"
            with pytest.raises(RefusedRun, match=f"recorded into by pid {process.pid}"):
                begun(run, run_exists="replace")
            begun(copy, run_exists="replace")
        finally:
            process.kill()


def test_a_killed_job_that_nobody_has_reaped_holds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_locks(monkeypatch)
    with holding(tmp_path / "run") as first:
        first.said()
        first.process.send_signal(9)
        os.waitid(os.P_PID, first.process.pid, os.WEXITED | os.WNOWAIT)
        begun(tmp_path / "run", run_exists="replace")


def test_a_job_that_has_let_go_holds_nothing_although_its_process_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_locks(monkeypatch)
    with holding(tmp_path / "run") as first:
        first.said()
        assert first.do("describe", "step", "finish") == "done"
        begun(tmp_path / "run", run_exists="replace")


def test_a_forked_process_writes_nothing_into_its_parents_record(tmp_path: Path) -> None:
    writer = begun(tmp_path)
    writer.describe(place={}, shards=[], facts={}, steps=range(2))
    writer.scalars(row(0))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    child = os.fork()
    if child == 0:
        refused = 0
        try:
            writer.scalars(row(1))
        except RecordError as error:
            refused += "was forked from" in str(error)
        try:
            writer.finish(HowEnded("finished"), hooks={})
        except RecordError as error:
            refused += "was forked from" in str(error)
        os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    writer.scalars(row(1))
    writer.finish(HowEnded("finished"), hooks={})
    assert open_run(tmp_path).steps == [0, 1] and open_run(tmp_path).problems == []


def without_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*arguments: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "lockf", refused)


def test_where_there_are_no_locks_the_later_job_records_and_the_earlier_one_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_locks(monkeypatch)
    first = begun(tmp_path / "run")
    first.describe(place={}, shards=[], facts={}, steps=range(3))
    first.scalars(row(0))
    assert "it has no locks (Operation not supported)" in first.weaker[0]
    second = begun(tmp_path / "run", run_exists="replace")
    second.describe(place={}, shards=[], facts={}, steps=range(3))
    for write in (lambda: first.scalars(row(1)), lambda: first.gradients(1, {}), lambda: first.finish(HowEnded("finished"), hooks={})):
        with pytest.raises(RecordError, match="is another job's by now"):
            write()
    for step in range(3):
        second.scalars(row(step))
    second.finish(HowEnded("finished"), hooks={})
    run = open_run(tmp_path / "run")
    assert run.steps == [0, 1, 2] and run.problems == [] and not_whole(run) == ()
    assert run.weaker == [message("weakness.no_locks", error=os.strerror(errno.EOPNOTSUPP))]


def test_where_there_are_no_locks_a_living_process_of_this_machine_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_locks(monkeypatch)
    run = tmp_path / "run"
    with holding(run) as first:
        first.said()
        with pytest.raises(RefusedRun, match=f"pid {first.process.pid}"):
            begun(run, run_exists="replace")
    begun(run, run_exists="replace")


def test_a_directory_that_is_taken_away_stops_the_recording(tmp_path: Path) -> None:
    writer = begun(tmp_path / "run")
    writer.describe(place={}, shards=[], facts={}, steps=range(3))
    writer.scalars(row(0))
    (tmp_path / "run").rename(tmp_path / "moved")
    with pytest.raises(RecordError, match="moved or deleted the run"):
        writer.scalars(row(1))
    assert not (tmp_path / "run").exists()
    assert open_run(tmp_path / "moved").steps == [0]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"{" * 4000])
def test_a_claim_that_is_none_says_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "claim").write_bytes(content)
    assert claim.read(tmp_path / "claim") == {}
