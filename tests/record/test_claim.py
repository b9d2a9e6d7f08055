"""A directory is one job's, for as long as the job lives."""

from __future__ import annotations

import errno
import fcntl
import json
import os
from pathlib import Path

import pytest

from align_hooks import open_run
from align_hooks.errors import RecordError, RefusedRun
from align_hooks.messages import message
from align_hooks.record import claim, layout
from align_hooks.record.ending import HowEnded
from align_hooks.record.holdings import not_whole
from holder import Holder, holding
from record.conftest import DP2, contents, failing, of_ranks
from synthetic import EVERYTHING, Synthetic, begun, described, row


@pytest.mark.parametrize("exists", ["refuse", "replace", "continue"])
def test_a_directory_that_a_living_job_records_into_is_refused_by_name(tmp_path: Path, exists: str) -> None:
    with holding(tmp_path / "run") as first:
        assert first.do("describe", "step") == "done"
        before = contents(tmp_path)
        with pytest.raises(RefusedRun, match=rf"already holds a run|recorded into by pid {first.process.pid} of {os.uname().nodename}"):
            begun(tmp_path / "run", run_exists=exists)
        assert contents(tmp_path) == before
        assert first.do("step", "step", "finish") == "done"
    assert open_run(tmp_path / "run").steps == [0, 1, 2] and open_run(tmp_path / "run").problems == []


@pytest.mark.parametrize("exists", ["replace", "continue"])
def test_a_job_that_was_killed_holds_nothing(tmp_path: Path, exists: str) -> None:
    with holding(tmp_path / "run") as first:
        first.do("describe", "step")
    of_ranks(tmp_path / "run", DP2[:1], steps=range(1 if exists == "continue" else 0, 3), run_exists=exists)
    assert open_run(tmp_path / "run").steps == [0, 1, 2] and open_run(tmp_path / "run").problems == []


def test_of_many_starts_at_once_one_wins(tmp_path: Path) -> None:
    for attempt, exists in enumerate(("refuse", "replace", "continue")):
        run = tmp_path / str(attempt)
        begun(run).finish(HowEnded("refused", error="a start that recorded nothing"), hooks={})
        holders = [Holder(run, exists) for _ in range(5)]
        try:
            answers = [holder.answer() for holder in holders]
            assert answers.count("begun") == 1, answers
            assert all(answer == "begun" or answer.startswith("RefusedRun") for answer in answers)
            winner = holders[answers.index("begun")]
            assert winner.do("describe", "step", "step", "step", "finish") == "done"
        finally:
            for holder in holders:
                holder.kill()
        assert open_run(run).steps == [0, 1, 2] and open_run(run).problems == []


def test_ranks_of_two_jobs_are_never_one_run(tmp_path: Path) -> None:
    """Rank 0 of one job and rank 1 of another get hold of the directory first: the second one's is refused when its model is built."""
    with holding(tmp_path, "refuse", "two", 1, 2) as stranger, holding(tmp_path, "refuse", "one", 0, 2) as first:
        assert "rank 0 of another job records here" in stranger.do("describe")
        assert first.do("describe") == "done"
    assert open_run(tmp_path).missing.rank == 1


def test_every_file_of_a_run_says_of_which_start_it_is(tmp_path: Path) -> None:
    run = Synthetic(settings=EVERYTHING | {"sketches": "all"}).write(tmp_path / "run")
    ident = json.loads((run / "run.json").read_text())["segment"].encode()
    bound = [path for path in run.rglob("*") if path.suffix in (".npy", ".claim") or path.name in ("config.json", "squared.json")]
    for path in run.rglob("*"):
        if path.is_file() and path not in bound:
            assert ident in path.read_bytes(), path
    assert len(bound) < len(list(run.rglob("*"))) / 2  # a digest binds these, in a file that names its start


def test_the_ranks_of_a_start_have_one_segment(tmp_path: Path) -> None:
    of_ranks(tmp_path, DP2)
    first, second = (json.loads(layout.manifest(tmp_path, rank).read_text()) for rank in (0, 1))
    assert first["segment"] == second["segment"] and first["run_id"] == second["run_id"] == open_run(tmp_path).facts.run_id


def test_a_rank_does_not_join_an_earlier_start_of_its_job(tmp_path: Path) -> None:
    """Two starts of one name, as a fixed port gives them. Rank 0 of the second is gone again before rank 1 has built its model."""
    with holding(tmp_path, "refuse", "one", 0, 2) as first, holding(tmp_path, "refuse", "one", 1, 2) as second:
        assert first.do("describe", "step") == second.do("describe", "step") == "done"
    with holding(tmp_path, "replace", "one", 1, 2) as later:
        assert "rank 0 of this job does not record here any more" in later.do("describe")
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
    holder = Holder(run, str(copy), code=COPIER)
    try:
        assert holder.answer() == "copied"
        with pytest.raises(RefusedRun, match=f"recorded into by pid {holder.process.pid}"):
            begun(run, run_exists="replace")
        begun(copy, run_exists="replace")
    finally:
        holder.kill()


def test_a_killed_job_that_nobody_has_reaped_holds_nothing(tmp_path: Path, without_locks: None) -> None:
    with holding(tmp_path / "run") as first:
        first.process.send_signal(9)
        os.waitid(os.P_PID, first.process.pid, os.WEXITED | os.WNOWAIT)
        begun(tmp_path / "run", run_exists="replace")


def test_a_job_that_has_let_go_holds_nothing_although_its_process_lives(tmp_path: Path, without_locks: None) -> None:
    with holding(tmp_path / "run") as first:
        assert first.do("describe", "step", "finish") == "done"
        begun(tmp_path / "run", run_exists="replace")


def test_a_forked_process_writes_nothing_into_its_parents_record(tmp_path: Path) -> None:
    writer = described(tmp_path, range(2))
    writer.scalars(row(0))
    before = contents(tmp_path)
    child = os.fork()
    if child == 0:
        refused = 0
        for write in (lambda: writer.scalars(row(1)), lambda: writer.finish(HowEnded("finished"), hooks={})):
            try:
                write()
            except RecordError as error:
                refused += "was forked from" in str(error)
        os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
    assert contents(tmp_path) == before
    writer.scalars(row(1))
    writer.finish(HowEnded("finished"), hooks={})
    assert open_run(tmp_path).steps == [0, 1] and open_run(tmp_path).problems == []


@pytest.fixture
def without_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "lockf", failing(errno.EOPNOTSUPP))


def test_where_there_are_no_locks_the_later_job_records_and_the_earlier_one_stops(tmp_path: Path, without_locks: None) -> None:
    first = described(tmp_path / "run", range(3))
    first.scalars(row(0))
    assert first.weaker[0] == "no_locks: Operation not supported"
    second = described(tmp_path / "run", range(3), run_exists="replace")
    for write in (lambda: first.scalars(row(1)), lambda: first.gradients(1, {}), lambda: first.finish(HowEnded("finished"), hooks={})):
        with pytest.raises(RecordError, match="is another job's by now"):
            write()
    for step in range(3):
        second.scalars(row(step))
    second.finish(HowEnded("finished"), hooks={})
    run = open_run(tmp_path / "run")
    assert run.steps == [0, 1, 2] and run.problems == [] and not_whole(run) == ()
    assert run.weaker == [message("weakness.no_locks", error=os.strerror(errno.EOPNOTSUPP))]


def test_where_there_are_no_locks_a_living_process_of_this_machine_is_seen(tmp_path: Path, without_locks: None) -> None:
    run = tmp_path / "run"
    with holding(run) as first, pytest.raises(RefusedRun, match=f"pid {first.process.pid}"):
        begun(run, run_exists="replace")
    begun(run, run_exists="replace")


def test_a_directory_that_is_taken_away_stops_the_recording(tmp_path: Path) -> None:
    writer = described(tmp_path / "run", range(3))
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
