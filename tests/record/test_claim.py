"""A directory is one job's, for as long as the job lives, whatever of locks, links and syncing its file system lacks."""

import errno
import fcntl
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from align_hooks import open_run
from align_hooks.comparison.health import health
from align_hooks.errors import RecordError, RefusedRun
from align_hooks.messages import message
from align_hooks.record.format import layout
from align_hooks.record.format.ending import HowEnded
from align_hooks.record.inventory import not_whole
from align_hooks.record.write import directory_lock
from chosen import slow_but
from holder import Holder, holding
from record.conftest import DP2, contents, failing, of_ranks
from synthetic import Synthetic, begun, described, finished, row


def is_whole(path: Path) -> bool:
    """Whether a run has three steps and no problem."""
    run = open_run(path)
    return run.steps == [0, 1, 2] and run.problems == []


@pytest.mark.parametrize("exists", ["refuse", "replace", "continue"])
def test_a_directory_that_a_living_job_records_into_is_refused_by_name(tmp_path: Path, exists: str) -> None:
    with holding(tmp_path / "run") as first:
        assert first.do("describe", "step") == "done"
        before = contents(tmp_path)
        with pytest.raises(RefusedRun, match=rf"already holds a run|recorded into by pid {first.process.pid} of {os.uname().nodename}"):
            begun(tmp_path / "run", run_exists=exists)
        assert contents(tmp_path) == before
        assert first.do("step", "step", "finish") == "done"
    assert is_whole(tmp_path / "run")


@pytest.mark.parametrize("exists", ["replace", "continue"])
def test_a_job_that_was_killed_holds_nothing(tmp_path: Path, exists: str) -> None:
    with holding(tmp_path / "run") as first:
        first.do("describe", "step")
    of_ranks(tmp_path / "run", DP2[:1], steps=range(1 if exists == "continue" else 0, 3), run_exists=exists)
    assert is_whole(tmp_path / "run")


@pytest.mark.parametrize("exists", slow_but(["refuse", "replace", "continue"], "replace"))
def test_of_many_starts_at_once_one_wins(tmp_path: Path, exists: str) -> None:
    begun(tmp_path).finish(HowEnded("refused", error="a start that recorded nothing"), hooks={})
    holders = [Holder(tmp_path, exists) for _ in range(5)]
    try:
        answers = [holder.answer() for holder in holders]
        assert answers.count("begun") == 1, answers
        assert all(answer == "begun" or answer.startswith("RefusedRun") for answer in answers)
        assert holders[answers.index("begun")].do("describe", "step", "step", "step", "finish") == "done"
    finally:
        for holder in holders:
            holder.kill()
    assert is_whole(tmp_path)


def test_ranks_of_two_jobs_are_never_one_run(tmp_path: Path) -> None:
    """Rank 0 of one job and rank 1 of another get hold of the directory first: the second one's is refused when its model is built."""
    with holding(tmp_path, "refuse", "two", 1, 2) as stranger, holding(tmp_path, "refuse", "one", 0, 2) as first:
        assert "rank 0 of another job records here" in stranger.do("describe")
        assert first.do("describe") == "done"
    assert open_run(tmp_path).missing.rank == 1


def test_every_file_of_a_run_says_of_which_start_it_is(honest: Path) -> None:
    ident = json.loads((honest / "run.json").read_text())["segment"].encode()
    files = [path for path in honest.rglob("*") if path.is_file()]
    bound = [path for path in files if path.suffix in (".npy", ".claim") or path.name in ("config.json", "squared.json")]
    assert [path for path in files if path not in bound and ident not in path.read_bytes()] == []
    assert len(bound) < len(files) / 2  # a digest binds these, in a file that names its start


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


@pytest.mark.parametrize("ends", ["killed and not reaped", "has let go and lives"])
def test_a_job_that_is_over_holds_nothing_although_its_process_is_there(tmp_path: Path, without_locks: None, ends: str) -> None:
    with holding(tmp_path / "run") as first:
        if ends == "has let go and lives":
            assert first.do("describe", "step", "finish") == "done"
        else:
            first.process.send_signal(9)
            os.waitid(os.P_PID, first.process.pid, os.WEXITED | os.WNOWAIT)
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
    finished(writer, [1])
    assert open_run(tmp_path).steps == [0, 1] and open_run(tmp_path).problems == []


@pytest.fixture
def without_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "lockf", failing(errno.EOPNOTSUPP))


def test_where_there_are_no_locks_the_later_job_records_and_the_earlier_one_stops(tmp_path: Path, without_locks: None) -> None:
    first = described(tmp_path / "run", range(3))
    first.scalars(row(0))
    assert first.storage_limitations[0] == "no_locks: Operation not supported"
    second = described(tmp_path / "run", range(3), run_exists="replace")
    for write in (lambda: first.scalars(row(1)), lambda: first.gradients(1, {}), lambda: first.finish(HowEnded("finished"), hooks={})):
        with pytest.raises(RecordError, match="is another job's by now"):
            write()
    finished(second, range(3))
    run = open_run(tmp_path / "run")
    assert is_whole(tmp_path / "run") and [*not_whole(run)] == []
    assert run.storage_limitations == [message("weakness.no_locks", error=os.strerror(errno.EOPNOTSUPP))]


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
    assert directory_lock.read(tmp_path / "claim") == {}


def no_folder_sync(descriptor: int, sync: Any = os.fsync) -> None:
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        raise OSError(errno.EINVAL, "Invalid argument")
    sync(descriptor)


LACKS = {errno.errorcode[code]: ("link", failing(code)) for code in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EINVAL)}


@pytest.mark.parametrize(("call", "does"), [*LACKS.values(), ("fsync", no_folder_sync)], ids=[*LACKS, "no sync of directories"])
def test_without_hard_links_or_synced_directories_a_run_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, does: Any
) -> None:
    monkeypatch.setattr(os, call, does)
    run = open_run(Synthetic().write(tmp_path / "run"))
    assert is_whole(tmp_path / "run")
    assert run.storage_limitations == [message("weakness.no_links" if call == "link" else "weakness.no_sync")]
    assert message("run.storage_limitations", weakness=run.storage_limitations[0]) in health(run, (), ()).remarks
    with pytest.raises(RefusedRun, match="already holds a run"):
        begun(tmp_path / "run")


def test_where_everything_is_there_nothing_is_said(honest: Path) -> None:
    run = open_run(honest)
    assert run.storage_limitations == [] and "run.storage_limitations" not in [remark.id for remark in health(run, (), ()).remarks]


@pytest.mark.parametrize("call", ["link", "fsync"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
def test_a_start_that_fails_blocks_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int) -> None:
    monkeypatch.setattr(os, call, failing(number))
    with pytest.raises(RefusedRun, match=f"cannot be written: {os.strerror(number)}"):
        begun(tmp_path / "run")
    monkeypatch.undo()
    assert [path.name for path in (tmp_path / "run").rglob("*") if path.is_file()] in ([], ["rank_0.claim"])
    assert open_run(Synthetic().write(tmp_path / "run")).problems == []
