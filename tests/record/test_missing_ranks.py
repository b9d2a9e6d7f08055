"""A record that lacks ranks, rows, or what no recorder could see: whoever needs them says so, and makes nothing of the rest."""

import errno
import fcntl
import re
from contextlib import nullcontext
from pathlib import Path
from unittest import mock

import pytest

from align_hooks import open_run
from align_hooks.cli import app
from align_hooks.comparison.health import Condition, health
from align_hooks.comparison.pipeline import compare
from align_hooks.comparison.stage_result import Status
from align_hooks.comparison.verdict import Verdict
from align_hooks.errors import RecordError, RefusedRun
from align_hooks.messages import Side, message, rendered
from align_hooks.messages.catalogue import CHINESE, ENGLISH
from align_hooks.record.format import layout
from align_hooks.record.format.ending import HowEnded
from align_hooks.record.format.missing_batch import MissingBatchReason
from align_hooks.record.read import run_files
from align_hooks.record.read.problems import ProblemKind
from align_hooks.record.write.step_files import StepBatch
from align_hooks.record.write.writer import Writer
from align_hooks.replay.batches import Replay
from align_hooks.replay.weights import open_weights
from align_hooks.settings import Source, Steps
from chosen import every
from holder import held
from invoked import invoke
from record.conftest import failing, of_ranks
from rewritten import cut_last_line
from sharded import Grid, Model, write
from synthetic import ROWS, Synthetic, batch, begun, job, row

MISSING = message("run.ranks_missing", count=1, ranks=4, rank=3)


@pytest.fixture
def lacking(tmp_path: Path) -> Path:
    path = write(tmp_path / "lacking", Grid(tp=2, dp=2, distributed=True), Model().tensors(0))
    (path / "manifest/rank_3.json").unlink()
    return path


def test_the_run_names_it_and_refuses_norms_of_its_shards(lacking: Path) -> None:
    run = open_run(lacking)
    assert run.problems == [run.missing]
    assert (run.missing.kind, run.missing.rank, run.missing.message) == (ProblemKind.RANKS_MISSING, 3, MISSING)
    assert "4 ranks, 1 steps, 1 problems" in repr(run)
    with pytest.raises(RecordError, match=f"is not whole: {re.escape(rendered(MISSING))}"):
        run.local_norms(0)


def test_norms_are_read_where_the_missing_rank_held_copies_alone(tmp_path: Path) -> None:
    path = write(tmp_path / "run", Grid(dp=2), Model().tensors(0))
    whole = open_run(path).local_norms(0)
    (path / "manifest" / "rank_1.json").unlink()
    assert open_run(path).local_norms(0) == whole


@pytest.mark.parametrize("side", ["reference", "candidate"])
def test_it_is_compared_with_nothing(tmp_path: Path, lacking: Path, side: str) -> None:
    whole = write(tmp_path / "whole", Grid(tp=2, dp=2, distributed=True), Model().tensors(0))
    comparison = compare(*map(open_run, (lacking, whole) if side == "reference" else (whole, lacking)))
    assert comparison.verdict is Verdict.NOT_COMPARABLE
    assert comparison.first.summary == message("match.ranks_missing", side=Side(side), missing=MISSING)
    assert [stage.name for stage in comparison.stages if stage.status is Status.DIFFERENT] == []


def test_its_batches_and_weights_are_not_fed_to_another_run(lacking: Path) -> None:
    with pytest.raises(RefusedRun, match=f"{re.escape(rendered(MISSING))}; copy or record every rank"):
        Replay(Source(lacking, Steps.parse("all"))).check(sequence=5, vocabulary=10, rows=4)
    with pytest.raises(RecordError, match=f"{re.escape(rendered(MISSING))}; copy or record every rank"):
        open_weights(Source(lacking, Steps.parse("0")))


def test_rows_that_were_cut_are_told(run: Path) -> None:
    cut_last_line(run / "scalars/rank_0.jsonl")
    (problem,) = open_run(run).problems
    assert (problem.kind, problem.rank, problem.place) == (ProblemKind.ROWS_CUT, 0, "scalars/rank_0.jsonl")
    assert problem.message.arguments == {"rank": 0, "recorded": 3, "there": 2}


def test_a_name_that_is_not_there_is_told_with_one_that_is(honest: Path) -> None:
    gradients = open_run(honest).gradients(0)
    with pytest.raises(KeyError, match=r"no tensor lm_head; did you mean lm_head\.weight\?"):
        gradients["lm_head"]
    assert repr(gradients) == "Tensors(4 names, first model.embed_tokens.weight)"


@pytest.mark.parametrize(
    ("left", "refusal"),
    [
        ("", None),
        ("scalars/rank_1.jsonl", "already holds a run of rank 0"),
        ("local_norms/rank_0.jsonl", "already holds a run of rank 0"),
        ("step_0/rank_1/batch.json", "wrote before it completed a step, of rank 0"),
    ],
)
def test_a_refused_start_leaves_the_directory_free_unless_any_rank_recorded_something(
    tmp_path: Path, left: str, refusal: str | None
) -> None:
    begun(tmp_path, job(0, 2)).finish(HowEnded("refused", error="no"), hooks={})
    if left:
        (tmp_path / left).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / left).write_text("")
    with pytest.raises(RefusedRun, match=refusal) if refusal else nullcontext():
        begun(tmp_path, job(0, 2))


UNENDED = ["{", '{"ended": null}', "[]"]
"""Manifests that do not say that their start is over."""


@pytest.mark.parametrize("locks", [True, False], ids=["locked", "no locks"])
@pytest.mark.parametrize("text", UNENDED)
def test_a_start_that_was_killed_leaves_the_directory_free_where_locks_prove_its_end(
    tmp_path: Path, text: str, locks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not locks:
        monkeypatch.setattr(fcntl, "lockf", failing(errno.ENOLCK))
    begun(tmp_path / "run")
    (tmp_path / "run/manifest/rank_0.json").write_text(text)
    with nullcontext() if locks else pytest.raises(RefusedRun, match="already holds a run of rank 0"):
        begun(tmp_path / "run").finish(HowEnded("finished"), hooks={})
        assert open_run(tmp_path / "run").manifests[0].ended == "finished"


WRITTEN = [*((how, None) for how in ("refuse", "replace", "continue")), *((how, text) for how in ("refuse", "replace") for text in UNENDED)]


@pytest.mark.parametrize(("how", "text"), every(2, WRITTEN))
def test_a_start_that_lives_keeps_the_directory_whatever_its_manifest_says(tmp_path: Path, text: str | None, how: str) -> None:
    with held(tmp_path / "run") as process:
        if text is not None:
            (tmp_path / "run/manifest/rank_0.json").write_text(text)
        with pytest.raises(RefusedRun, match=f"is being recorded into by pid {process} of"):
            begun(tmp_path / "run", run_exists=how)


def test_only_a_rank_that_holds_all_of_a_model_makes_a_checkpoint(tmp_path: Path) -> None:
    for name, place in (("whole", {"tp_size": 1, "pp_size": 1}), ("stage", {"tp_size": 1, "pp_size": 2})):
        writer = begun(tmp_path / name, weights="all")
        writer.describe(place=place, shards=[], facts={}, steps=range(1))
        writer.weights(0, Synthetic().weights[0], {"model_type": "llama"})
        assert (tmp_path / name / "step_0/rank_0/weights/config.json").exists() == (name == "whole")


def test_a_copy_of_a_batch_that_is_gone_is_noticed_with_one_description_read(tmp_path: Path) -> None:
    def record(writer: Writer, rank: int) -> None:
        for step in range(2):
            writer.batch(step, StepBatch(batch(step), [ROWS]))
            writer.scalars(row(step))

    path = of_ranks(tmp_path / "run", [{"tp": rank, "tp_size": 8} for rank in range(8)], record, steps=range(2), batches="all")
    with mock.patch.object(run_files.BatchSource, "described", autospec=True, side_effect=run_files.BatchSource.described) as read:
        assert not open_run(path).problems
    assert read.call_count == 2  # a step each: equal descriptions are read once, and of arrays none
    layout.step(path, 1, 5).joinpath("labels.npy").unlink()
    (problem,) = open_run(path).problems
    assert (problem.kind, problem.rank, problem.step, problem.place) == (ProblemKind.LOST, 5, 1, "step_1/rank_5/labels.npy")
    assert invoke(app, ["show", str(path)]).exit_code == 3
    assert invoke(app, ["compare", str(path), str(path)]).exit_code == 3


@pytest.mark.parametrize("reason", MissingBatchReason)
def test_a_reason_in_a_row_is_a_problem_of_its_rank(tmp_path: Path, reason: MissingBatchReason) -> None:
    synthetic = Synthetic()
    synthetic.rows[1]["unseen"] = [reason.value, "of a later version"]  # type: ignore[assignment]
    run = open_run(synthetic.write(tmp_path / "run"))
    assert run.unseen == [reason]
    assert [(problem.kind, problem.rank) for problem in run.problems] == [(ProblemKind.UNSEEN, 0)]
    assert health(run, [], []).condition is Condition.INCOMPLETE


@pytest.mark.parametrize("language", [ENGLISH, CHINESE])
def test_every_reason_has_words(language: str) -> None:
    assert len({rendered(reason.words, language) for reason in MissingBatchReason}) == len(MissingBatchReason)
