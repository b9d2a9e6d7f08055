"""A job that its launcher starts again: what becomes of the record of its earlier starts, and of one that another job left."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from align_hooks import open_run
from align_hooks.errors import RecordError, RefusedRun
from align_hooks.process.ranks import Launch
from align_hooks.record import start
from align_hooks.record.ending import HowEnded
from align_hooks.record.schema import Facts, structured
from align_hooks.record.verify import verify
from align_hooks.record.writer import Writer
from record.conftest import contents
from synthetic import row, settings, tensors, whole_shards

BOTH = (0, 1)


def attempt(
    path: Path, number: int, first: int = 0, *, made: int = 4, exists: str = "refuse", described: Iterable[int] = BOTH, agent: str = "one"
) -> list[Writer]:
    """The start of a number, of a job of two ranks and steps 0 to 3; it begins with step ``first`` and is killed once ``made`` are there,
    or when the ``described`` ranks have built their model, where these are not all."""
    writers = [
        Writer(
            path,
            Launch(rank, 2, "", "host", {agent: number}),
            "torch",
            settings(run=path, run_exists=exists, weights="0,2", gradients="0-1"),
        )
        for rank in BOTH
    ]
    try:
        for writer in writers:
            writer.begin()
        for rank in described:
            shards = whole_shards() if rank == 0 else []
            writers[rank].describe(place={"dp": rank}, shards=shards, facts={}, steps=range(first, 4))
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
                writer.finish(HowEnded("finished"), hooks={})
    finally:
        for writer in writers:
            if writer._claim is not None:
                writer._claim.release()
    return writers


def is_whole(path: Path) -> None:
    """Hold a record against what a job that was never started again records, to the bit."""
    run = open_run(path)
    assert run.problems == [] and verify(run).wrong == []
    assert [run.steps, run.steps_of("gradients"), run.weight_steps()] == [[0, 1, 2, 3], [0, 1], [0, 2]]
    assert run.scalars() == [row(step, valid_tokens=40) for step in range(4)]
    for name in whole_shards():
        for step in (0, 1):
            np.testing.assert_array_equal(run.gradients(step)[name.name], tensors(step)[name.name])
        for step in (0, 2):
            np.testing.assert_array_equal(run.weights(step)[name.name], tensors(100 + step)[name.name])


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
        last = number == len(firsts) - 1
        attempt(tmp_path, number, first, made=4 if last else 3, exists=exists)
    is_whole(tmp_path)
    kept = len(firsts) - 1 if exists == "continue" else segments
    assert [(manifest.restarts, len(manifest.segments)) for manifest in open_run(tmp_path).manifests.values()] == [
        (len(firsts) - 1, kept)
    ] * 2


@pytest.mark.parametrize("exists", ["refuse", "replace"])
def test_a_job_that_dies_while_it_starts_is_started_again(tmp_path: Path, exists: str) -> None:
    """Before any rank has built its model, then when one has."""
    for number, described in enumerate([(), (0,), (1,), BOTH]):
        attempt(tmp_path, number, described=described, exists=exists)
    is_whole(tmp_path)


@pytest.mark.parametrize(("number", "agent"), [(0, "one"), (1, "another")])
def test_the_record_of_another_job_is_refused(tmp_path: Path, number: int, agent: str) -> None:
    """Of a job that another agent started, and of another training that this agent's script started before, in the same start."""
    attempt(tmp_path, 0, made=3)
    before = contents(tmp_path)
    with pytest.raises(RefusedRun, match="already holds a run of rank 0; choose another directory"):
        attempt(tmp_path, number, agent=agent)
    assert contents(tmp_path) == before
    with pytest.raises(RefusedRun, match="already holds a run"):  # nor is it taken by the next start of a job that was refused
        attempt(tmp_path, number + (agent != "one"), agent=agent)
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
    writer = Writer(tmp_path, Launch(0, 1, "", "host", {"one": 1}), "torch", settings(run=tmp_path))
    with pytest.raises(RefusedRun, match="holds a run of 2 ranks and this job has 1"):
        writer.begin()


def test_a_rank_that_is_started_again_by_itself_has_a_segment_of_its_own(tmp_path: Path) -> None:
    """As MindSpore's recovery may do: the process of rank 0 lives on, and its claim names the segment of the rank that died."""
    writers = attempt(tmp_path, 0, made=3)
    again = Writer(tmp_path, Launch(1, 2, "", "host", {"one": 1}), "torch", settings(run=tmp_path, weights="0,2", gradients="0-1"))
    again.begin()
    again.describe(place={"dp": 1}, shards=[], facts={}, steps=range(2, 4))
    again.finish(HowEnded("finished"), hooks={})
    manifests = open_run(tmp_path).manifests
    assert manifests[0].run_id == manifests[1].run_id and manifests[0].segment == writers[0].segment != manifests[1].segment
    assert open_run(tmp_path).steps == [0, 1]


@pytest.mark.parametrize("exists", ["replace", "continue"])
@pytest.mark.parametrize("described", [(0, 1), (0,)])
def test_a_start_that_is_killed_while_it_deletes_what_it_replaced(
    tmp_path: Path, described: tuple[int, ...], exists: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has replaced the record, whatever is left to delete, on the ranks that came to it; the next start goes through."""

    def killed(*arguments: object) -> None:
        raise KeyboardInterrupt

    attempt(tmp_path, 0, agent="another")
    writers = [Writer(tmp_path, Launch(rank, 2, "", "host"), "torch", settings(run=tmp_path, run_exists="replace")) for rank in BOTH]
    for writer in writers:
        writer.begin()
    with monkeypatch.context() as patched:
        patched.setattr(start, "remove", killed)
        for rank in described:
            with pytest.raises(KeyboardInterrupt):
                writers[rank].describe(place={"dp": rank}, shards=[] if rank else whole_shards(), facts={}, steps=range(4))
    for writer in writers:
        assert writer._claim is not None
        writer._claim.release()
    if described == BOTH:
        assert open_run(tmp_path).steps == []
    else:
        with pytest.raises(RecordError, match="one was replaced and the other not yet"):
            open_run(tmp_path)
    attempt(tmp_path, 0, 2, exists=exists, agent="next")
    run = open_run(tmp_path)
    assert run.steps == [2, 3] and run.problems == []
    assert [list(committed.rows) for committed in run.committed.values()] == [[2, 3], [2, 3]]  # no rank goes on with the other record


@pytest.mark.parametrize("key", ["injected", "routed", "taught"])
def test_a_run_that_goes_on_keeps_what_other_runs_gave_it_before(key: str, tmp_path: Path) -> None:
    given = {"run": "other", "run_id": "one", "steps": [0, 1, 2]}
    earlier = structured(Facts, {"run_id": "ours", key: given}, tmp_path)
    merged = start.continued(earlier, {key: given | {"steps": [2, 3]}}, 2, tmp_path)
    assert merged[key] == given | {"steps": [0, 1, 2, 3]}
    with pytest.raises(RefusedRun, match="choose another directory"):
        start.continued(earlier, {key: given | {"run_id": "another"}}, 2, tmp_path)
