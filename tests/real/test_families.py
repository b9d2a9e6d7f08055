"""Pairs of every family that both frameworks train, with Hugging Face as a third opinion, and Megatron's layouts of them.

One family stands for all in ``make test``: DeepSeek-V3 with a layer for multi-token prediction has every part that the others have, but for
biases of queries, keys and values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from align_hooks import Run, open_run
from align_hooks.checkpoints.convert import Choices, convert_weights
from align_hooks.checkpoints.forms import open_checkpoint
from real import frameworks
from real.test_pair import third_opinion
from synthetic import relative_error

MODELS = sorted(f"families/{file.stem}" for file in (frameworks.LAUNCH / "families").glob("*.yaml"))
ALWAYS = "families/deepseek_v3_mtp"
OTHER_LOSSES = ("families/qwen3_moe", ALWAYS)
"""Those with a loss beside the language model's, whose gradients Hugging Face's model lacks or computes by another formula."""


@dataclass(frozen=True)
class Pair:
    """A recorded pair of a model."""

    model: str
    reference: Path
    candidate: Path


def slow_but_one(models: list[str]) -> list[object]:
    return [pytest.param(model, marks=() if model == ALWAYS else pytest.mark.slow, id=Path(model).name) for model in models]


@pytest.fixture(scope="module", params=slow_but_one(MODELS))
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, real_corpus: Path) -> Pair:
    """Megatron trains three steps, and MindFormers on its weights and batches."""
    where, model = tmp_path_factory.mktemp("family"), request.param
    reference = frameworks.recorded(frameworks.megatron, where / "megatron", model=model)
    fed = frameworks.fed_by(reference)
    return Pair(model, reference, frameworks.recorded(frameworks.mindformers, where / "mindformers", model=model, **fed))


def test_a_pair_of_a_family_is_aligned(pair: Pair) -> None:
    frameworks.aligned(pair.reference, pair.candidate)


def test_losses_gradients_and_weights_of_a_family_agree(pair: Pair) -> None:
    ours, theirs = open_run(pair.reference), open_run(pair.candidate)
    losses = [(one["loss"], other["loss"]) for one, other in zip(ours.scalars(), theirs.scalars(), strict=True)]
    assert len(losses) == frameworks.STEPS
    assert max(abs(other / one - 1) for one, other in losses) < 1e-6
    assert set(ours.gradients(0)) == set(theirs.gradients(0)) == set(ours.local_norms(0))
    for name, gradient in ours.gradients(0).items():
        assert relative_error(gradient, theirs.gradients(0)[name]) < 1e-5, name
    assert all(np.array_equal(weights, theirs.weights(0)[name]) for name, weights in ours.weights(0).items())


def test_hugging_face_agrees_on_a_family(pair: Pair) -> None:
    """What the layers for multi-token prediction predict has no say in the loss; Hugging Face's model leaves them out."""
    run = open_run(pair.reference)
    loss, gradients = third_opinion(run)
    assert loss == pytest.approx(run.scalars()[0]["loss"], rel=1e-6)
    assert set(gradients) <= set(run.gradients(0))
    if pair.model not in OTHER_LOSSES:
        assert set(gradients) == set(run.gradients(0))
        for name, gradient in gradients.items():
            assert relative_error(gradient, run.gradients(0)[name]) < 1e-5, name


def test_the_bias_of_experts_moves_alike(pair: Pair) -> None:
    """Training moves it by the counts of tokens, without a gradient: it is recorded with the weights, and has no gradient."""
    ours, theirs = open_run(pair.reference), open_run(pair.candidate)
    last = frameworks.STEPS
    biases = [name for name in ours.weights(0) if name.endswith("e_score_correction_bias")]
    assert bool(biases) == ("deepseek" in pair.model)
    for name in biases:
        assert name not in ours.gradients(0)
        assert ours.weights(last)[name].any()
        assert np.array_equal(ours.weights(last)[name], theirs.weights(last)[name])


def assert_weights(run: Run, source: Path) -> None:
    weights, opened = run.weights(0), open_checkpoint(source).tensors
    assert opened.keys() == weights.keys()
    assert all(np.array_equal(opened[name].read(), array) for name, array in weights.items())


def test_weights_of_a_family_go_through_every_form(pair: Pair, tmp_path: Path) -> None:
    convert_weights(pair.reference, tmp_path / "hf", "huggingface")
    for to, choices in (("megatron", Choices(layers="local")), ("megatron", Choices()), ("mindspore", Choices())):
        convert_weights(tmp_path / "hf", tmp_path / f"{to}_{choices.layers}", to, choices)
        assert_weights(open_run(pair.reference), tmp_path / f"{to}_{choices.layers}")


@pytest.mark.slow
def test_both_frameworks_start_a_family_from_converted_weights(pair: Pair, tmp_path: Path) -> None:
    """Those after a step, which no framework draws."""
    source, model = pair.reference.with_name(f"{pair.reference.name}@1"), pair.model
    convert_weights(source, tmp_path / "mg", "megatron", Choices(layers="local"))
    load = ("--ckpt-format", "torch", "--load", str(tmp_path / "mg"), "--finetune", "--no-load-optim", "--no-load-rng")
    given = {"model": model, "WEIGHTS": "0", "REPLAY_BATCHES": pair.reference}
    frameworks.megatron(tmp_path, change={"--train-iters": "1"}, flags=load, RUN=tmp_path / "megatron", **given).succeeded()
    convert_weights(source, tmp_path / "a.ckpt", "mindspore-ckpt")
    change = {"load_checkpoint": str(tmp_path / "a.ckpt"), "lr_schedule.total_steps": 1}
    frameworks.mindformers(tmp_path, change=change, RUN=tmp_path / "mindformers", **given).succeeded()
    wanted = open_run(pair.reference).weights(1)
    for side in ("megatron", "mindformers"):
        found = open_run(tmp_path / side).weights(0)
        assert found.keys() == wanted.keys()
        assert [name for name in wanted if not np.array_equal(found[name], wanted[name])] == []


LAYOUTS: Mapping[str, tuple[str, dict[str, str | None]]] = {
    "qwen2 in two tensor-parallel ranks": ("families/qwen2", {"--tensor-model-parallel-size": "2"}),
    "qwen3 in two pipeline stages": ("families/qwen3", {"--pipeline-model-parallel-size": "2"}),
    "qwen3_moe in two expert-parallel ranks": ("families/qwen3_moe", {"--expert-model-parallel-size": "2", "--micro-batch-size": "2"}),
    "deepseek_v3_mtp in two expert-parallel ranks": (ALWAYS, {"--expert-model-parallel-size": "2"}),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", LAYOUTS)
def test_a_layout_of_a_family_is_that_of_one_rank(tmp_path: Path, case: str) -> None:
    model, change = LAYOUTS[case]
    alone = {"--micro-batch-size": change["--micro-batch-size"]} if "--micro-batch-size" in change else {}
    one = frameworks.recorded(frameworks.megatron, tmp_path / "one", model=model, change=alone)
    two = frameworks.recorded(frameworks.megatron, tmp_path / "two", model=model, change=change, ranks=2, **frameworks.fed_by(one))
    frameworks.aligned(one, two)
    assert set(open_run(one).weights(0)) == set(open_run(two).weights(0))
    assert all(np.array_equal(weights, open_run(two).weights(0)[name]) for name, weights in open_run(one).weights(0).items())


def test_recording_a_family_changes_nothing(pair: Pair, tmp_path: Path) -> None:
    """Losses as they are printed, of a run that records nothing but these and of the recorded one."""
    plain = frameworks.megatron(tmp_path, model=pair.model, RUN=tmp_path / "run").succeeded()
    assert plain.code == 0
    lean, full = (open_run(path).scalars() for path in (tmp_path / "run", pair.reference))
    assert [(row["loss"], row["grad_norm"]) for row in lean] == [(row["loss"], row["grad_norm"]) for row in full]
