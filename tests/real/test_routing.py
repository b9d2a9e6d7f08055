"""The experts of each token, recorded on both sides and replayed between them; near ties are put into the weights.

In the model of ``launch/families/deepseek_v3_mtp`` a token is given to all experts of two groups of four. Here the last three groups have
nearly the same router, so that roundings decide which of them a token is given to.
"""

import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from align_hooks import Run, open_run
from align_hooks.comparison.metrics.limits import DEFAULTS
from align_hooks.comparison.pipeline import compare
from align_hooks.comparison.stage_result import Status
from align_hooks.messages import rendered
from real import frameworks
from real.frameworks import Train

pytestmark = pytest.mark.slow
FAMILY, STEPS = "deepseek_v3_mtp", 10
NEARLY = 1e-5
"""How far apart, relative, the routers of the tied groups are: a hundred roundings."""


def tied(where: Path, weights: Path) -> None:
    """Write a checkpoint whose routers nearly tie."""
    shutil.copytree(weights, where)
    tensors, random = load_file(where / "model.safetensors"), np.random.default_rng(0)
    for name in sorted(tensors):
        if name.endswith("mlp.gate.weight"):
            router = tensors[name]
            for group in (slice(4, 6), slice(6, 8)):
                router[group] = router[2:4] * (1 + NEARLY * random.standard_normal(router[2:4].shape)).astype(np.float32)
    save_file(tensors, where / "model.safetensors", metadata={"format": "pt"})


def trained(train: Train, family: str = FAMILY, **given: object) -> Run:
    """What was recorded of a training, with the experts of each token."""
    return open_run(frameworks.recorded(train, family=family, ROUTING="all", **given))


@pytest.fixture(scope="module")
def reference(real_corpus: Path) -> Run:
    """Megatron with near ties, everything recorded."""
    first = frameworks.kept(frameworks.megatron, family=FAMILY, change={"--train-iters": "1"}, RUN="run", WEIGHTS=0).run
    weights = frameworks.derived(tied, first / "step_0" / "rank_0" / "weights")
    return trained(frameworks.megatron, change={"--train-iters": str(STEPS)}, LOAD_WEIGHTS=weights)


@pytest.fixture(scope="module")
def free(reference: Run) -> Run:
    """MindFormers on the same weights and batches, its tokens choosing by themselves."""
    return trained(frameworks.mindformers, **frameworks.fed_by(reference.path))


def others(reference: Run, candidate: Run, step: int) -> list[int]:
    """How many tokens of a step each layer gave to other experts."""
    ours, theirs = reference.routing(step), candidate.routing(step)
    assert list(ours) == list(theirs) == [f"model.layers.{layer}.mlp.gate" for layer in (1, 2, 3)]
    return [int((ours[name] != theirs[name]).any(axis=2).sum()) for name in ours]


def test_near_ties_part_a_pair_and_are_told_by_the_routing(reference: Run, free: Run) -> None:
    changed = others(reference, free, 0)
    assert all(0 < count < 64 for count in changed)
    assert max(frameworks.loss_errors(reference, free)) > 1e-4
    first = compare(reference, free).first
    assert first is not None and first.name == "routing"
    assert f"{changed[0]} of 512" in rendered(first.findings[0].what)


@pytest.mark.parametrize("which", ["reference", "free"])
def test_counts_are_those_of_the_choices(which: str, request: pytest.FixtureRequest) -> None:
    run = request.getfixturevalue(which)
    for step in (0, STEPS - 1):
        counts, routing = run.expert_counts(step), run.routing(step)
        assert list(counts) == list(routing)
        assert all(np.array_equal(counts[name], np.bincount(routing[name].ravel(), minlength=8)) for name in counts)
        assert all(routing[name].shape == (4, 128, 4) for name in routing)


def test_with_the_experts_of_the_reference_mindformers_is_aligned(reference: Run, free: Run) -> None:
    replayed = trained(frameworks.mindformers, REPLAY_ROUTING=reference.path, **frameworks.fed_by(reference.path))
    distance = frameworks.furthest(reference.gradients(0), replayed.gradients(0))
    later = frameworks.furthest(reference.gradients(STEPS - 1), replayed.gradients(STEPS - 1))
    loss = max(frameworks.loss_errors(reference, replayed))
    print(f"losses within {loss:.1e}, gradients {distance:.1e}, at the last step {later:.1e}")
    assert loss < 1e-6
    assert distance < 1e-5
    assert later < 1e-4
    own, chosen = others(reference, replayed, 0), others(reference, free, 0)
    assert own[0] == chosen[0]  # what is recorded stays the router's own choice, and the first router is given the same
    assert sum(own) > 0
    assert replayed.facts.routed.run_id == reference.facts.run_id
    assert replayed.facts.routed.steps == tuple(range(STEPS))
    comparison = compare(reference, replayed)  # routers that are made to tie choose by roundings, and nothing else differs
    assert {result.name for result in comparison.stages if result.status is Status.DIFFERENT} == {"routing"}
    same = {result.name for result in comparison.stages if result.status is Status.SAME}
    assert {"token losses", "loss terms", "local norms", "gradients", "later losses", "free-running steps"} <= same
    assert "experts of each token" in {change["what"] for change in replayed.manifest["overrides"]}


def test_with_the_experts_of_mindformers_megatron_is_aligned(free: Run) -> None:
    fed = frameworks.fed_by(free.path) | {"REPLAY_ROUTING": f"{free.path}@0-3"}
    replayed = trained(frameworks.megatron, change={"--train-iters": "4"}, **fed)
    losses = frameworks.loss_errors(free, replayed, strict=False)
    assert len(losses) == 4
    assert max(losses) < 1e-6
    assert frameworks.furthest(free.gradients(0), replayed.gradients(0)) < 1e-5


def test_recomputed_activations_are_given_the_same_experts(free: Run) -> None:
    """Each micro-batch passes a router twice: without gradients, and again with them."""
    fed = frameworks.fed_by(f"{free.path}@0-1") | {"LOAD_WEIGHTS": free.path, "REPLAY_ROUTING": f"{free.path}@0-1"}
    flags = ("--recompute-granularity", "full", "--recompute-method", "uniform", "--recompute-num-layers", "1")
    change = {"--train-iters": "2", "--micro-batch-size": "1"}
    replayed = trained(frameworks.megatron, change=change, flags=flags, **fed)
    losses = frameworks.loss_errors(free, replayed, strict=False)
    assert len(losses) == 2
    assert max(losses) < 1e-6
    assert all(len(replayed.routing(step)[name]) == 4 for step in (0, 1) for name in replayed.routing(step))


@pytest.mark.parametrize("train", [frameworks.megatron, frameworks.mindformers])
def test_recording_the_experts_changes_no_bit(reference: Run, train: Train) -> None:
    """Losses and weights of two steps, with batches and routing recorded and without."""
    short = {frameworks.megatron: {"--train-iters": "2"}, frameworks.mindformers: {"lr_schedule.total_steps": 2}}[train]
    fed = {"REPLAY_BATCHES": f"{reference.path}@0-1", "LOAD_WEIGHTS": reference.path}
    given = {"family": FAMILY, "change": short, "RUN": "run", "WEIGHTS": "2", **fed}
    runs = [open_run(frameworks.kept(train, **given, **asked).run) for asked in ({"BATCHES": "all", "ROUTING": "all"}, {})]
    assert [row["loss"] for row in runs[0].scalars()] == [row["loss"] for row in runs[1].scalars()]
    ours, theirs = (run.weights(2) for run in runs)
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("family", ["qwen3_moe", "deepseek_v3"])
def test_in_bfloat16_a_rounding_of_the_weights_moves_tokens(real_corpus: Path, family: str) -> None:
    """Megatron against itself, every weight moved by one eps."""
    given = {"family": family, "change": {"--train-iters": "2"}, "flags": ("--bf16",)}
    reference = trained(frameworks.megatron, **given)
    moved = trained(frameworks.megatron, PERTURB="1", **given, **frameworks.fed_by(reference.path))
    share = furthest_share(reference, moved)
    print(f"{family}: up to {share:.3f} of the tokens of a layer")
    assert 0 < share < DEFAULTS["bfloat16"].ties


def test_two_layouts_in_bfloat16_are_honest_although_their_tokens_change_experts(real_corpus: Path) -> None:
    """Tensor parallelism adds up in bfloat16: the first losses are further apart than the limit of a model without experts."""
    given = {"family": "qwen3_moe", "change": {"--train-iters": "2"}}
    reference = trained(frameworks.megatron, flags=("--bf16",), **given)
    flags = ("--bf16", "--tensor-model-parallel-size", "2", "--sequence-parallel")
    candidate = trained(frameworks.megatron, flags=flags, ranks=2, **given, **frameworks.fed_by(reference.path))
    share = furthest_share(reference, candidate)
    said = frameworks.compare(reference.path, candidate.path)
    print(f"up to {share:.3f} of the tokens of a layer; {said.output.splitlines()[0]}")
    assert share > 0
    assert said.code in (0, 4), said.output


def furthest_share(reference: Run, candidate: Run) -> float:
    """The largest share of tokens that a layer gave to other experts, in two steps."""
    layers = [(run.routing(step) for run in (reference, candidate)) for step in (0, 1)]
    return max(float((ours[name] != theirs[name]).any(axis=2).mean()) for ours, theirs in layers for name in ours)
