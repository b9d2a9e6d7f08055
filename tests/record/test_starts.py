"""A start on a directory that holds something, another job's or an earlier start's of its own: what becomes of either record."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from align_hooks import open_run
from align_hooks.errors import RecordError, RefusedRun
from align_hooks.process.ranks import Launch
from align_hooks.record.format import layout
from align_hooks.record.format.ending import HowEnded
from align_hooks.record.format.schema import Facts
from align_hooks.record.format.structured import structured
from align_hooks.record.verify import verify
from align_hooks.record.write import earlier_record
from align_hooks.record.write.writer import Writer
from record.conftest import DP2, contents, killed, of_ranks
from rewritten import edit
from synthetic import NAMES, begun, described, finished, job, row, settings, tensors, whole_shards
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
    before = described(tmp_path, range(1), weights="all")
    before.weights(1, tensors(0), {})
    finished(before, [0])
    over = described(tmp_path, range(1, 2), run_exists="continue", weights="all")
    over.weights(1, tensors(1), {})
    killed(over)
    finished(described(tmp_path, range(1, 2), run_exists="continue"), [1])
    run = open_run(tmp_path)
    assert run.steps == [0, 1] and run.weight_steps() == [] and run.problems == []
    with pytest.raises(RecordError, match="weights after 1 update are not recorded; recorded: none"):
        run.weights(1)


def test_states_that_stay_are_those_of_the_run_before(tmp_path: Path) -> None:
    writer = described(tmp_path, range(1), weights="all")
    writer.weights(1, tensors(7), {})
    finished(writer, [0])
    for _ in range(2):
        finished(described(tmp_path, range(1, 2), run_exists="continue"), [1])
    np.testing.assert_array_equal(open_run(tmp_path).weights(1)[NAMES[0]], tensors(7)[NAMES[0]])


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


BOTH = (0, 1)


def attempt(
    path: Path, number: int, first: int = 0, *, made: int = 4, exists: str = "refuse", described: Iterable[int] = BOTH, agent: str = "one"
) -> list[Writer]:
    """The start of a number, of a job of two ranks and steps 0 to 3; it begins with step ``first`` and is killed once ``made`` are there,
    or when the ``described`` ranks have built their model, where these are not all."""
    asked = settings(run=path, run_exists=exists, weights="0,2", gradients="0-1")
    writers = [Writer(path, Launch(rank, 2, "", "host", {agent: number}), "torch", asked) for rank in BOTH]
    try:
        for writer in writers:
            writer.begin()
        for rank in described:
            writers[rank].describe(place={"dp": rank}, shards=[] if rank else whole_shards(), facts={}, steps=range(first, 4))
        for step in range(first, made) if described == BOTH else ():
            for rank, writer in enumerate(writers):
                if step == first and step in (0, 2):
                    writer.weights(step, {} if rank else tensors(100 + step), {})
                if step < 2:
                    writer.gradients(step, {} if rank else tensors(step))
                if step == 1:
                    writer.weights(2, {} if rank else tensors(102), {})
                writer.scalars(row(step))
        if made == 4 and described == BOTH:
            for writer in writers:
                finished(writer, ())
    finally:
        killed(*writers)
    return writers


def is_whole(path: Path) -> None:
    """Hold a record against what a job that was never started again records, to the bit."""
    run = open_run(path)
    assert run.problems == [] and verify(run).wrong == []
    assert [run.steps, run.steps_of("gradients"), run.weight_steps()] == [[0, 1, 2, 3], [0, 1], [0, 2]]
    assert run.scalars() == [row(step, valid_tokens=40) for step in range(4)]
    for tensors_of, steps, seed in ((run.gradients, (0, 1), 0), (run.weights, (0, 2), 100)):
        for step in steps:
            for name, tensor in tensors(seed + step).items():
                np.testing.assert_array_equal(tensors_of(step)[name], tensor)


@pytest.mark.parametrize("exists", ["refuse", "replace", "continue"])
@pytest.mark.parametrize(
    ("firsts", "segments"),
    [
        pytest.param([0, 2], 1, id="goes on"),
        pytest.param([0, 1, 2], 2, id="twice"),
        pytest.param([0, 2, 2], 2, id="twice with one checkpoint"),
        pytest.param([0, 0], 0, id="from the beginning"),
        pytest.param([0, 2, 0], 0, id="from the beginning after all"),
    ],
)
def test_a_job_that_is_started_again_leaves_the_record_of_one_that_is_not(
    tmp_path: Path, exists: str, firsts: list[int], segments: int
) -> None:
    for number, first in enumerate(firsts):
        attempt(tmp_path, number, first, made=4 if number == len(firsts) - 1 else 3, exists=exists)
    is_whole(tmp_path)
    expected = (len(firsts) - 1, len(firsts) - 1 if exists == "continue" else segments)
    assert [(manifest.restarts, len(manifest.segments)) for manifest in open_run(tmp_path).manifests.values()] == [expected] * 2


@pytest.mark.parametrize("exists", ["refuse", "replace"])
def test_a_job_that_dies_while_it_starts_is_started_again(tmp_path: Path, exists: str) -> None:
    """Before any rank has built its model, then when one has."""
    for number, built in enumerate([(), (0,), (1,), BOTH]):
        attempt(tmp_path, number, described=built, exists=exists)
    is_whole(tmp_path)


@pytest.mark.parametrize(("number", "agent"), [(0, "one"), (1, "another")])
def test_the_record_of_another_job_is_refused(tmp_path: Path, number: int, agent: str) -> None:
    """Of a job that another agent started, and of another training that this agent's script started before, in the same start."""
    attempt(tmp_path, 0, made=3)
    before = contents(tmp_path)
    for start_of_it in (number, number + (agent != "one")):  # nor is it taken by the next start of a job that was refused
        with pytest.raises(RefusedRun, match="already holds a run of rank 0; choose another directory"):
            attempt(tmp_path, start_of_it, agent=agent)
        assert contents(tmp_path) == before


@pytest.mark.parametrize("described", [(), (0,), (1,)])
def test_a_job_that_replaces_another_is_started_again(tmp_path: Path, described: tuple[int, ...]) -> None:
    """The other record is replaced by the first start that lives to do so, and after that its own goes on."""
    attempt(tmp_path, 0, made=3, agent="another")
    for number, (first, built, made) in enumerate([(0, described, 4), (0, BOTH, 3), (2, BOTH, 4)]):
        attempt(tmp_path, number, first, described=built, made=made, exists="replace")
    is_whole(tmp_path)


def test_a_job_that_is_started_again_with_other_ranks_is_refused(tmp_path: Path) -> None:
    attempt(tmp_path, 0, made=3)
    with pytest.raises(RefusedRun, match="holds a run of 2 ranks and this job has 1"):
        begun(tmp_path, Launch(0, 1, "", "host", {"one": 1}))


def test_a_rank_that_is_started_again_by_itself_has_a_segment_of_its_own(tmp_path: Path) -> None:
    """As MindSpore's recovery may do: the process of rank 0 lives on, and its claim names the segment of the rank that died."""
    writers = attempt(tmp_path, 0, made=3)
    again = begun(tmp_path, Launch(1, 2, "", "host", {"one": 1}), weights="0,2", gradients="0-1")
    again.describe(place={"dp": 1}, shards=[], facts={}, steps=range(2, 4))
    finished(again, ())
    manifests = open_run(tmp_path).manifests
    assert manifests[0].run_id == manifests[1].run_id and manifests[0].segment == writers[0].segment != manifests[1].segment
    assert open_run(tmp_path).steps == [0, 1]


@pytest.mark.parametrize("exists", ["replace", "continue"])
@pytest.mark.parametrize("described", [(0, 1), (0,)])
def test_a_start_that_is_killed_while_it_deletes_what_it_replaced(
    tmp_path: Path, described: tuple[int, ...], exists: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has replaced the record, whatever is left to delete, on the ranks that came to it; the next start goes through."""

    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    attempt(tmp_path, 0, agent="another")
    writers = [begun(tmp_path, Launch(rank, 2, "", "host"), run_exists="replace") for rank in BOTH]
    with monkeypatch.context() as patched:
        patched.setattr(earlier_record, "remove", interrupted)
        for rank in described:
            with pytest.raises(KeyboardInterrupt):
                writers[rank].describe(place={"dp": rank}, shards=[] if rank else whole_shards(), facts={}, steps=range(4))
    killed(*writers)
    if described == BOTH:
        assert open_run(tmp_path).steps == []
    else:
        with pytest.raises(RecordError, match="one was replaced and the other not yet"):
            open_run(tmp_path)
    attempt(tmp_path, 0, 2, exists=exists, agent="next")
    run = open_run(tmp_path)
    assert run.steps == [2, 3] and run.problems == []
    assert [list(committed.rows) for committed in run.committed.values()] == [[2, 3], [2, 3]]  # no rank goes on with the other record


@pytest.mark.parametrize("key", ["injected", "routed", "forced"])
def test_a_run_that_goes_on_keeps_what_other_runs_gave_it_before(key: str, tmp_path: Path) -> None:
    given = {"run": "other", "run_id": "one", "steps": [0, 1, 2]}
    earlier = structured(Facts, {"run_id": "ours", key: given}, tmp_path)
    merged = earlier_record.continued(earlier, {key: given | {"steps": [2, 3]}}, 2, tmp_path)
    assert merged[key] == given | {"steps": [0, 1, 2, 3]}
    with pytest.raises(RefusedRun, match="choose another directory"):
        earlier_record.continued(earlier, {key: given | {"run_id": "another"}}, 2, tmp_path)
