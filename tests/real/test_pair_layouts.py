"""Megatron and MindFormers with two data-parallel ranks each, and in float16."""

from pathlib import Path

import pytest

from align_hooks import open_run
from real import frameworks
from worded import arguments

RANKS = 2
PARALLEL = {"use_parallel": True, "parallel.parallel_mode": 0, "parallel_config.data_parallel": RANKS}
SCALE = {"type": "DynamicLossScaleUpdateCell", "loss_scale_value": 4096, "scale_factor": 2, "scale_window": 1000}


@pytest.fixture(scope="module")
def two_ranks(real_corpus: Path) -> Path:
    """Megatron with two data-parallel ranks."""
    return frameworks.recorded(frameworks.megatron, ranks=RANKS)


def mindformers(reference: Path, *, mean: bool) -> Path:
    """MindFormers with two data-parallel ranks on the reference's weights and batches."""
    change = PARALLEL | {"parallel.gradients_mean": mean}
    fed = frameworks.fed_by(reference)
    return frameworks.recorded(frameworks.mindformers, launcher=frameworks.msrun, change=change, **fed)


@pytest.mark.slow
def test_two_ranks_of_each_are_aligned(two_ranks: Path) -> None:
    candidate = mindformers(two_ranks, mean=True)
    for run in map(open_run, (two_ranks, candidate)):
        assert run.self_check.contradictions == ()
        assert run.self_check.steps == (0, 1, 2)
        assert run.self_check.copies == 21
    frameworks.aligned(two_ranks, candidate)


@pytest.mark.slow
def test_gradients_that_mindspore_sums_by_default_are_named(two_ranks: Path) -> None:
    found = frameworks.first(frameworks.diverged(two_ranks, mindformers(two_ranks, mean=False)))
    assert found.name == "step-0 loss"
    assert arguments("sharding.objective_scaled_by_own_number", found.common)["factor"] == pytest.approx(2)
    assert arguments("divisor.data_parallel_ranks", found.common) == {"number": 2}


@pytest.mark.slow
def test_the_pair_is_aligned_in_float16_with_a_loss_scale(real_corpus: Path) -> None:
    flags = ("--fp16", "--initial-loss-scale", "4096", "--attention-softmax-in-fp32")
    reference = frameworks.recorded(frameworks.megatron, flags=flags)
    change = {"model.model_config.compute_dtype": "float16", "runner_wrapper.scale_sense": SCALE}
    fed = frameworks.fed_by(reference)
    candidate = frameworks.recorded(frameworks.mindformers, change=change, **fed)
    frameworks.aligned(reference, candidate)
    for run in map(open_run, (reference, candidate)):
        assert run.facts.training.compute_type == "float16"
        assert {row["loss_scale"] for row in run.scalars()} == {4096.0}
