"""Megatron and MindFormers with two data-parallel ranks each, and in float16."""

from __future__ import annotations

from pathlib import Path

import pytest

from align_hooks import open_run
from real import frameworks

RANKS = 2
PARALLEL = {"use_parallel": True, "parallel.parallel_mode": 0, "parallel_config.data_parallel": RANKS}
SCALE = {"type": "DynamicLossScaleUpdateCell", "loss_scale_value": 4096, "scale_factor": 2, "scale_window": 1000}


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory, real_corpus: Path) -> Path:
    """Megatron with two data-parallel ranks."""
    where = tmp_path_factory.mktemp("two_ranks")
    frameworks.megatron(where, ranks=RANKS, RUN=where / "run", **frameworks.EVERYTHING).succeeded()
    return where / "run"


def mindformers(where: Path, reference: Path, *, mean: bool) -> Path:
    """MindFormers with two data-parallel ranks on the reference's weights and batches."""
    where.mkdir()
    frameworks.mindformers(
        where,
        launcher=frameworks.msrun(where / "logs"),
        change=PARALLEL | {"parallel.gradients_mean": mean},
        RUN=where / "run",
        REPLAY_BATCHES=reference,
        LOAD_WEIGHTS=reference,
        **frameworks.EVERYTHING,
    ).succeeded()
    return where / "run"


def test_two_ranks_of_each_are_aligned(tmp_path: Path, two_ranks: Path) -> None:
    candidate = mindformers(tmp_path / "mean", two_ranks, mean=True)
    for run in map(open_run, (two_ranks, candidate)):
        assert run.self_check.contradictions == ()
        assert run.self_check.steps == (0, 1, 2)
        assert run.self_check.copies == 21
    done = frameworks.compare(two_ranks, candidate)
    assert done.code == 0, done.output


@pytest.mark.slow
def test_gradients_that_mindspore_sums_by_default_are_named(tmp_path: Path, two_ranks: Path) -> None:
    done = frameworks.compare(two_ranks, mindformers(tmp_path / "sum", two_ranks, mean=False))
    assert done.code == 1
    output = " ".join(done.output.split())
    assert output.startswith("diverged: step-0 loss")
    told = "the loss agrees, the objective is 2 times the reference's: the candidate has 2 data-parallel ranks, over which it sums"
    assert told in output


def test_the_pair_is_aligned_in_float16_with_a_loss_scale(tmp_path: Path, real_corpus: Path) -> None:
    flags = ("--fp16", "--initial-loss-scale", "4096", "--attention-softmax-in-fp32")
    reference, candidate = (tmp_path / name / "run" for name in ("megatron", "mindformers"))
    frameworks.megatron(reference.parent, flags=flags, RUN=reference, **frameworks.EVERYTHING).succeeded()
    change = {"model.model_config.compute_dtype": "float16", "runner_wrapper.scale_sense": SCALE}
    fed = {"RUN": candidate, "REPLAY_BATCHES": reference, "LOAD_WEIGHTS": reference}
    frameworks.mindformers(candidate.parent, change=change, **fed, **frameworks.EVERYTHING).succeeded()
    done = frameworks.compare(reference, candidate)
    assert done.code == 0, done.output
    for run in map(open_run, (reference, candidate)):
        assert run.facts.training.compute_type == "float16"
        assert {row["loss_scale"] for row in run.scalars()} == {4096.0}
