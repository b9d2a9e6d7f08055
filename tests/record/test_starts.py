"""A start on a directory that holds something: what becomes of the earlier record, and of the new one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from align_hooks import open_run
from align_hooks.errors import RecordError, RefusedRun
from align_hooks.record import layout
from align_hooks.record.ending import HowEnded
from record.conftest import DP2, contents, of_ranks
from rewritten import edit
from synthetic import begun, described, job, row, tensors, whole_shards
from work import at_most


def recorded(path: Path, world: int, steps: range, exists: str = "refuse") -> None:
    """Rows of every rank of a job, from its beginning to its end."""
    of_ranks(path, DP2[:world], steps=steps, run_exists=exists)


@pytest.mark.parametrize("exists", ["refuse", "replace", "continue"])
def test_a_larger_job_that_recorded_nothing_is_in_nobodys_way(tmp_path: Path, exists: str) -> None:
    for writer in [begun(tmp_path, job(rank, 2)) for rank in range(2)]:
        writer.finish(HowEnded("failed"), hooks={})
    assert layout.ranks(tmp_path) == [0, 1]
    recorded(tmp_path, 1, range(3), exists)
    run = open_run(tmp_path)
    assert run.world_size == 1 and run.steps == [0, 1, 2] and run.problems == []


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2)])
def test_a_run_is_not_continued_with_another_number_of_ranks(tmp_path: Path, before: int, after: int) -> None:
    recorded(tmp_path, before, range(3))
    before_start = contents(tmp_path)
    with pytest.raises(RefusedRun, match=f"holds a run of {before} ranks? and this job has {after}"):
        begun(tmp_path, job(0, after), run_exists="continue")
    assert contents(tmp_path) == before_start
    assert open_run(tmp_path).steps == [0, 1, 2]


def test_states_that_a_killed_start_wrote_over_are_not_those_of_the_run_before(tmp_path: Path) -> None:
    """Weights of step 1 are recorded, written over by a start that is killed before its first row, and not recorded by the next."""
    path = tmp_path / "run"
    for steps, switches, whole in ((range(1), {"weights": "all"}, True), (range(1, 2), {"weights": "all"}, False), (range(1, 2), {}, True)):
        writer = described(path, steps, run_exists="continue" if steps.start else "refuse", **switches)
        if switches:
            writer.weights(1, tensors(steps.start), {})
        if whole:
            writer.scalars(row(steps.start))
            writer.finish(HowEnded("finished"), hooks={})
        elif writer._claim is not None:
            writer._claim.release()
    run = open_run(path)
    assert run.steps == [0, 1] and run.weight_steps() == [] and run.problems == []
    with pytest.raises(RecordError, match="weights after 1 update are not recorded; recorded: none"):
        run.weights(1)


def test_states_that_stay_are_those_of_the_run_before(tmp_path: Path) -> None:
    path = tmp_path / "run"
    writer = described(path, range(1), weights="all")
    writer.weights(1, tensors(7), {})
    writer.scalars(row(0))
    writer.finish(HowEnded("finished"), hooks={})
    for _ in range(2):
        writer = described(path, range(1, 2), run_exists="continue")
        writer.scalars(row(1))
        writer.finish(HowEnded("finished"), hooks={})
    name = whole_shards()[0].name
    np.testing.assert_array_equal(open_run(path).weights(1)[name], tensors(7)[name])


def test_a_start_looks_at_what_is_there_and_not_at_every_step_that_is_planned(tmp_path: Path) -> None:
    described(tmp_path / "warm", range(1))
    with at_most(calls=100_000):
        described(tmp_path / "run", range(1_000_000))


def test_a_manifest_made_by_a_stranger_deletes_nothing_elsewhere(tmp_path: Path) -> None:
    """A step that is a path, in a record whose rows cannot be read."""
    run, elsewhere = tmp_path / "run", tmp_path / "theirs/rank_0/tokens.npy"
    recorded(run, 1, range(2))
    (run / "step_..").mkdir()
    elsewhere.parent.mkdir(parents=True)
    elsewhere.write_text("theirs")
    edit(layout.manifest(run, 0), deleting=["../../../theirs"])
    layout.scalars(run, 0).write_text("no row\n")
    recorded(run, 1, range(2), "replace")
    assert elsewhere.read_text() == "theirs" and open_run(run).problems == []


@pytest.mark.parametrize(
    "members", [{"deleting": 7}, {"deleting": [None]}, {"deleting": [-1]}, {"first_step": "x"}, {"first_step": 10**400}]
)
def test_a_manifest_whose_steps_are_none_is_refused_and_can_be_replaced(tmp_path: Path, members: dict[str, object]) -> None:
    recorded(tmp_path, 1, range(2))
    edit(layout.manifest(tmp_path, 0), **members)
    with pytest.raises(RecordError, match=r"rank_0.json: (deleting|first_step).*: Expected .*; copy it again"):
        open_run(tmp_path)
    with pytest.raises(RefusedRun, match="nothing to continue"):
        begun(tmp_path, run_exists="continue")
    recorded(tmp_path, 1, range(2), "replace")
    assert open_run(tmp_path).problems == []


def test_what_a_killed_start_left_beyond_a_gap_is_deleted_with_its_run(tmp_path: Path) -> None:
    run = tmp_path / "run"
    recorded(run, 1, range(2))
    writer = begun(run, run_exists="continue", weights="all")
    writer.describe(place={"dp": 0}, shards=[], facts={}, steps=range(7, 9))
    writer.weights(8, {}, {})
    writer.finish(HowEnded("failed"), hooks={})
    edit(layout.manifest(run, 0), files={})
    recorded(run, 1, range(2), "replace")
    assert not (run / "step_8").exists()


def test_a_run_is_continued_whose_start_was_killed_before_it_wrote_what_ran(tmp_path: Path) -> None:
    """A run is replaced by its manifest; run.json, of the run before, is replaced a moment later, or never."""
    recorded(tmp_path, 1, range(2))
    before = layout.run_file(tmp_path).read_bytes()
    recorded(tmp_path, 1, range(1), "replace")
    layout.run_file(tmp_path).write_bytes(before)
    with pytest.raises(RecordError, match="is of run"):
        open_run(tmp_path)
    recorded(tmp_path, 1, range(1, 3), "continue")
    run = open_run(tmp_path)
    assert run.steps == [0, 1, 2] and run.problems == [] and run.facts.run_id == run.manifests[0].run_id
