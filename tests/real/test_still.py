"""Runs at a rate of 0, unclipped, deterministic: Megatron with evaluation after every step, MindFormers with norms before the reducer."""

from pathlib import Path

import numpy as np
import pytest

from align_hooks import Run, open_run
from chosen import slow
from real import frameworks

FIXED = {"LEARNING_RATE": 0, "DETERMINISTIC": 1, "SEED": 9}


@pytest.fixture(scope="module")
def megatron(real_corpus: Path) -> Run:
    change = {"--eval-iters": "2", "--eval-interval": "1", "--split": "90,5,5", "--clip-grad": "0"}
    return open_run(frameworks.recorded(frameworks.megatron, change=change, **FIXED))


@pytest.fixture(scope="module")
def mindformers(reference: Path) -> Run:
    change, asked = {"runner_wrapper.use_clip_grad": False}, {"LOCAL_NORMS_POINT": "local", "REPLAY_BATCHES": reference}
    return open_run(frameworks.recorded(frameworks.mindformers, change=change, **asked, **FIXED))


@pytest.fixture(params=["megatron", slow("mindformers")])
def still(request: pytest.FixtureRequest) -> Run:
    run: Run = request.getfixturevalue(request.param)
    return run


def test_a_learning_rate_of_0_leaves_the_weights_alone(still: Run) -> None:
    assert [row["learning_rate"] for row in still.scalars()] == [0.0, 0.0, 0.0]
    assert still.weight_steps() == [0, 1, 2, 3]
    assert all(np.array_equal(still.weights(0)[name], still.weights(3)[name]) for name in still.weights(0))


def test_without_clipping_the_gradient_norm_is_ours(still: Run) -> None:
    for row in still.scalars():
        whole = sum(norm**2 for norm in still.local_norms(row["step"]).values()) ** 0.5
        assert row["grad_norm"] == pytest.approx(whole, rel=1e-7)
        assert row["clip_coefficient"] == 1.0


def test_determinism_and_seed_are_read_back_from_what_was_built(still: Run) -> None:
    on = dict.fromkeys(("torch.are_deterministic_algorithms_enabled", "model.config.deterministic_mode"), True)
    ours = on | {"args.seed": 9, "torch.initial_seed": 9}
    theirs = {"mindspore.get_context(deterministic)": "ON", "mindspore.get_seed": 9, "config.seed": 9}
    assert (ours if still.facts.side == "torch" else theirs).items() <= still.facts.determinism.items()
    assert still.facts.environment["PYTHONHASHSEED"] == {"value": "9", "effective": True}


def test_evaluation_is_not_recorded(megatron: Run) -> None:
    assert megatron.batch_steps() == [0, 1, 2]
    assert all(megatron.batch(step).rows == ((2, 2),) for step in megatron.batch_steps())
