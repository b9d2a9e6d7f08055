"""Megatron's Muon: state, groups, updates and injected gradients. EMERGING_OPTIMIZERS names a checkout of Emerging-Optimizers (v0.2.0)."""

from pathlib import Path

import numpy as np
import pytest

from align_hooks import Run, compare, open_run
from align_hooks.comparison.finding import Term
from align_hooks.comparison.stage_result import Status
from align_hooks.messages import Side
from chosen import slow
from real import frameworks
from real.test_optimizer import only_its_state_is_missing
from worded import arguments, messages
from zoo.cases import MUON
from zoo.run import SCRIPTS

pytestmark = pytest.mark.skipif(not frameworks.EMERGING_OPTIMIZERS, reason=frameworks.NO_EMERGING_OPTIMIZERS)
ADAM, MOMENTUM = ("exp_avg", "exp_avg_sq"), "momentum_buffer"
HALF = {**MUON, "--bf16": "", "--attention-softmax-in-fp32": ""}
STAGE = "weights after an update"


@pytest.fixture(scope="module")
def muon(real_corpus: Path) -> Run:
    return open_run(frameworks.recorded(frameworks.megatron, change=MUON))


def test_the_state_of_each_group_is_recorded_under_its_own_names(muon: Run) -> None:
    by_parameter = muon.facts.optimizer.by_parameter()
    moved = {name for name, group in by_parameter.items() if group.optimizer == "TensorParallelMuon"}
    assert len(by_parameter) == 21
    assert len(moved) == 14
    assert not {"model.embed_tokens.weight", "lm_head.weight", "model.norm.weight"} & moved
    for updates in range(frameworks.STEPS + 1):
        moments = muon.optimizer_state(updates).moments
        assert set(moments[MOMENTUM]) == moved
        assert [set(moments[moment]) for moment in ADAM] == [by_parameter.keys() - moved] * 2
        assert all(tensor.any() for tensor in moments[MOMENTUM].values()) == bool(updates)


def test_hyper_parameters_are_those_that_the_optimizer_holds(real_corpus: Path, muon: Run) -> None:
    held = next(group for group in muon.facts.optimizer.groups if group.momentum is not None)
    assert (held.momentum, held.nesterov, held.scale_mode, held.extra_scale_factor) == (0.9, False, "spectral", 1.0)
    assert (held.products, held.weight_decay_method, len(held.coefficients)) == ("float32", "decoupled", 5)
    assert held.coefficients[0] == (4.0848, -6.8946, 2.927)
    assert sorted(len(matrix.parameters) for matrix in held.matrices) == [1] * 10 + [2] * 2


@pytest.fixture(scope="module")
def injected(muon: Run) -> Run:
    given = {**frameworks.fed_by(muon.path), "INJECT_GRADIENTS": muon.path}
    return open_run(frameworks.recorded(frameworks.megatron, change={**MUON, "--micro-batch-size": "1"}, **given))


def test_three_injected_updates_follow_the_formula_within_a_millionth(muon: Run, injected: Run) -> None:
    assert injected.facts.injected.steps == (0, 1, 2)
    assert frameworks.furthest(muon.gradients(1), injected.gradients(1)) > 0
    for updates in (1, 2, 3):
        assert frameworks.furthest(muon.weights(updates), injected.weights(updates)) <= 1e-6
        ours, theirs = (run.optimizer_state(updates).moments[MOMENTUM] for run in (muon, injected))
        assert frameworks.furthest(ours, theirs) <= 1e-6
    stage = frameworks.stage(compare(muon, injected), STAGE)
    assert stage.status is Status.SAME
    followed = [part.arguments for part in messages(stage.summary) if part.id == "after_update.of_matrices"]
    assert [(each["side"], each["count"], each["matrices"], each["all"]) for each in followed] == [(side, 3, 12, 12) for side in Side]
    frameworks.aligned(muon.path, injected.path)


def test_a_loaded_state_goes_on(muon: Run) -> None:
    run = open_run(frameworks.recorded(frameworks.megatron, change=MUON, REPLAY_BATCHES=muon.path, LOAD_WEIGHTS=f"{muon.path}@2"))
    assert [run.optimizer_state(step).updates for step in range(4)] == [2, 3, 4, 5]
    for moment, tensors in muon.optimizer_state(2).moments.items():
        assert all((run.optimizer_state(0).moments[moment][name] == tensor).all() for name, tensor in tensors.items())
    assert arguments("after_update.of_matrices", frameworks.stage(compare(run, run), STAGE).summary)["count"] == 3


def test_another_optimizers_state_is_refused_in_one_line(tmp_path: Path, muon: Run) -> None:
    done = frameworks.megatron(tmp_path, RUN="run", LOAD_WEIGHTS=f"{muon.path}@2")
    assert done.code == 2
    (line,) = [line for line in done.output.splitlines() if "LOAD_WEIGHTS: the record has no exp_avg" in line]
    assert "which AdamW updates here" in line


PLANTED = {
    "muon_momentum": (Term.MOMENTUM, "muon_momentum"),
    "muon_coefficients": (Term.COEFFICIENTS, "muon_iteration"),
    "muon_scale": (Term.SCALE, "muon_scale"),
}


@pytest.mark.parametrize("fault", ["muon_coefficients", slow("muon_momentum"), slow("muon_scale")])
def test_a_planted_fault_is_found_and_named(muon: Run, fault: str) -> None:
    planted = {"script": SCRIPTS["megatron"], "environment": {"PLANTED": fault}}
    run = frameworks.recorded(frameworks.megatron, change=MUON, **planted, **frameworks.fed_by(muon.path))
    judged = frameworks.diverged(muon.path, run)
    assert frameworks.first(judged).name == STAGE
    term, cause = PLANTED[fault]
    assert [finding.term for finding in frameworks.first(judged).findings] == [term]
    assert judged.blame.causes == (cause,)


@pytest.mark.slow
def test_embeddings_in_the_wrong_group_are_found_before_any_number(muon: Run) -> None:
    planted = {"script": SCRIPTS["megatron"], "environment": {"PLANTED": "muon_embeddings"}}
    judged = frameworks.diverged(
        muon.path, frameworks.recorded(frameworks.megatron, change=MUON, **planted, **frameworks.fed_by(muon.path))
    )
    found = frameworks.first(judged).findings[0]
    assert (found.name, found.reference, found.candidate) == ("optimizer", "Adam", "Muon")
    assert set(found.names) == {"model.embed_tokens.weight", "lm_head.weight"}


VARIANTS = {
    "moonlight": {
        "--muon-nesterov": "",
        "--muon-coefficient-type": "simple",
        "--muon-momentum": "0.95",
        "--muon-extra-scale-factor": "0.2",
    },
    "fused": {"--muon-no-split-qkv": "", "--muon-scale-mode": "unit_rms_norm", "--muon-coefficient-type": "polar_express"},
    "medium": {"--muon-fp32-matmul-prec": "medium"},
    "blockwise": {"--tensor-model-parallel-size": "2"},
    "distributed": {"--tensor-model-parallel-size": "2", "--muon-tp-mode": "distributed"},
}


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_other_settings_and_layouts_follow_the_formula(real_corpus: Path, variant: str) -> None:
    change = VARIANTS[variant]
    ranks = 2 if "--tensor-model-parallel-size" in change else None
    run = frameworks.recorded(frameworks.megatron, change={**MUON, **change}, ranks=ranks)
    followed = arguments("after_update.of_matrices", frameworks.stage(compare(run, run), STAGE).summary)
    assert followed["matrices"] == followed["all"] == (8 if variant == "fused" else 12)
    assert frameworks.stage(compare(run, run), STAGE).status is Status.SAME


@pytest.mark.slow
@pytest.mark.parametrize("family", ["deepseek_v3", "qwen3_moe"])
def test_latent_attention_and_experts_follow_the_formula(real_corpus: Path, family: str) -> None:
    run = frameworks.recorded(frameworks.megatron, family=family, change=MUON)
    followed = arguments("after_update.of_matrices", frameworks.stage(compare(run, run), STAGE).summary)
    assert followed["matrices"] == followed["all"] >= 42


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["tensor by tensor", "in buffers"])
def test_a_rank_of_the_layer_wise_optimizer_holds_nothing_of_what_others_update(real_corpus: Path, layout: str) -> None:
    """Both layouts of its weights: the one of a ``model_provider`` gives the rest to a distributed optimizer."""
    script = {"script": frameworks.SCRIPTS / "model_provider.py"} if layout == "in buffers" else {}
    one = frameworks.recorded(frameworks.megatron, change=HALF)
    given = {"change": {**HALF, "--use-distributed-optimizer": ""}, "ranks": 2, **script, **frameworks.fed_by(one)}
    two = open_run(frameworks.recorded(frameworks.megatron, **given))
    frameworks.aligned(one, two.path)
    matrices = {name for name, group in two.facts.optimizer.by_parameter().items() if group.momentum is not None}
    held = [{shard.name for shard in two.shards(rank)} & matrices for rank in (0, 1)]
    assert len(matrices) == 14
    assert held[0] | held[1] == matrices
    assert not held[0] & held[1]
    assert all(held)
    loaded = open_run(frameworks.recorded(frameworks.megatron, **given | {"LOAD_WEIGHTS": f"{one}@2", "REPLAY_BATCHES": None}))
    before = open_run(one).optimizer_state(2).moments
    assert all(equal(tensors, loaded.optimizer_state(0).moments[moment]) for moment, tensors in before.items())


def equal(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> bool:
    return set(ours) == set(theirs) and all((theirs[name] == tensor).all() for name, tensor in ours.items())


@pytest.mark.slow
def test_recording_changes_nothing(tmp_path: Path, muon: Run) -> None:
    done = frameworks.megatron(tmp_path, change=MUON, RUN="run", WEIGHTS=str(frameworks.STEPS)).succeeded()
    assert done.code == 0
    assert equal(dict(open_run(tmp_path / "run").weights(frameworks.STEPS)), dict(muon.weights(frameworks.STEPS)))


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["lion", "adaptive_muon"])
def test_of_an_optimizer_that_nobody_knows_all_but_its_state_is_recorded(real_corpus: Path, optimizer: str) -> None:
    only_its_state_is_missing(frameworks.kept(frameworks.megatron, change={"--optimizer": optimizer}, RUN="run", **frameworks.EVERYTHING))
