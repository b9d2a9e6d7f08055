"""MindFormers' PyNative trainer in two processes of a CPU, by a stand-in for hyper-parallel, against Megatron-LM on one rank.

Everything of MindFormers' own runs: its plan of the model's parts, its collectives of tensor and expert parallelism, its global norm, its
optimizer. The stand-in (``scripts/hyper_stand_in``) divides parameters and sums gradients as hyper-parallel does, on a device untried.
"""

from pathlib import Path

import numpy as np
import pytest

from align_hooks import Run, Verdict, compare, open_run
from real import frameworks
from real.frameworks import EVERYTHING, Made

SCRIPT = Path(__file__).parent / "scripts" / "two_ranks.py"
STEPS = 3
SHARDED = {"parallelism.data_parallel_shard": -1}
REPLICATED = {"parallelism.data_parallel_shard": 1}
TENSOR = {"parallelism.tensor_parallel": 2, "parallelism.sequence_parallel": True}
EXPERTS = {"parallelism.expert_parallel": 2}


def two_ranks() -> tuple[str, ...]:
    """Two workers of msrun, each attached to, with the stand-in in place."""
    return (*frameworks.msrun(), str(SCRIPT))


@pytest.fixture(scope="module")
def references(real_corpus: Path) -> Made:
    """Megatron-LM, a few steps of each family, with the experts of each token."""

    def made(family: str) -> Run:
        routing = None if family == "qwen3" else "all"
        return open_run(frameworks.recorded(frameworks.megatron, family=family, change={"--train-iters": str(STEPS)}, ROUTING=routing))

    return Made(made)


def trained(family: str, reference: Run, change: dict[str, object], **given: object) -> Run:
    """What two ranks recorded on the weights and batches of a reference."""
    asked = {**EVERYTHING, **frameworks.fed_by(reference.path), "RUN": "run", "family": family, **given}
    return open_run(frameworks.kept(frameworks.pynative, launcher=two_ranks, change={"training.steps": STEPS} | change, **asked).run)


def agreeing(reference: Run, candidate: Run) -> str:
    """What is said of a pair that agrees."""
    gradients, losses = frameworks.furthest(reference.gradients(0), candidate.gradients(0)), frameworks.loss_errors(reference, candidate)
    print(f"gradients within {gradients:.1e}, losses within {max(losses):.1e}")
    assert gradients < 1e-5
    assert max(losses) < 1e-6
    assert candidate.self_check.contradictions == ()
    return frameworks.aligned(reference.path, candidate.path).output


@pytest.mark.slow
@pytest.mark.parametrize("change", [SHARDED, REPLICATED], ids=["fully sharded", "replicated"])
def test_data_parallel_ranks_are_aligned_with_one_rank_of_megatron(change: dict[str, object], references: Made) -> None:
    reference = references["qwen3"]
    candidate = trained("qwen3", reference, change)
    ours, theirs = reference.weights(0), candidate.weights(0)
    assert ours.keys() == theirs.keys()
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours)
    said = agreeing(reference, candidate)
    assert all(stage in said for stage in ("activations", "activation gradients", "token losses", "local norms"))


@pytest.mark.slow
def test_tensor_parallel_ranks_hold_their_parts(references: Made) -> None:
    reference = references["qwen3"]
    candidate = trained("qwen3", reference, TENSOR, ACTIVATIONS=None)
    agreeing(reference, candidate)


@pytest.mark.slow
@pytest.mark.parametrize("change", [SHARDED, EXPERTS], ids=["fully sharded", "expert-parallel"])
def test_ranks_of_a_model_with_experts_are_aligned(change: dict[str, object], references: Made) -> None:
    """Routing, the experts' bias and latent attention with it."""
    reference = references["deepseek_v3"]
    candidate = trained("deepseek_v3", reference, change, ROUTING="all")
    for name, chosen in reference.routing(0).items():
        assert np.array_equal(np.asarray(chosen), np.asarray(candidate.routing(0)[name]))
    agreeing(reference, candidate)


@pytest.mark.slow
@pytest.mark.parametrize("change", [SHARDED, TENSOR], ids=["fully sharded", "tensor-parallel"])
def test_updates_from_injected_gradients_are_megatrons(change: dict[str, object], references: Made) -> None:
    reference = references["qwen3"]
    fed = {"INJECT_GRADIENTS": f"{reference.path}@0-2", "ACTIVATIONS": None}
    candidate = trained("qwen3", reference, change, **fed)
    for updates in (1, 2, 3):
        assert frameworks.furthest(reference.weights(updates), candidate.weights(updates)) < 1e-6, updates
    frameworks.aligned(reference.path, candidate.path)


@pytest.mark.slow
def test_replayed_experts_and_a_teacher_are_given_by_each_ranks_rows(references: Made) -> None:
    reference = references["deepseek_v3"]
    led = {"REPLAY_ROUTING": f"{reference.path}@0-1", "TEACHER": f"{reference.path}@0-1", "REPLAY_BATCHES": f"{reference.path}@0-1"}
    candidate = trained("deepseek_v3", reference, EXPERTS, ROUTING="all", **led)
    frameworks.aligned(reference.path, candidate.path)


@pytest.mark.slow
def test_gradients_that_copies_do_not_share_are_named(references: Made) -> None:
    """The stand-in leaves the sum over copies out, as an all-reduce that is not called does."""
    candidate = trained("qwen3", references["qwen3"], REPLICATED, environment={"PLANTED": "unreduced"})
    found = compare(references["qwen3"], candidate)
    assert found.verdict is Verdict.DIVERGED
    assert found.blame is not None
    assert found.blame.causes[0] == "ranks_not_reduced"
