"""MindFormers' PyNative trainer against Megatron-LM, against the static graph, and against itself without us."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from align_hooks import Run, open_run
from chosen import slow_but
from real import frameworks
from real.frameworks import EVERYTHING, Made

STEPS = 10
QUICK = "deepseek_v3"
"""The family that every run of the tests trains: latent attention, experts with a bias, groups and shared experts."""
FAMILIES = ("qwen3", "deepseek_v3", "deepseek_v3_mtp")
WITHOUT = {"ROUTING": None, "DETERMINISTIC": 1}


def recording(family: str) -> dict[str, object]:
    """The variables by which everything of a family is recorded."""
    return {**EVERYTHING, "ROUTING": None if family == "qwen3" else "all"}


@pytest.fixture(scope="module")
def references(real_corpus: Path) -> Made:
    """Megatron-LM, ten steps of each family."""
    return Made(lambda family: open_run(frameworks.recorded(frameworks.megatron, family=family, change={"--train-iters": str(STEPS)})))


@pytest.fixture(scope="module")
def routed(real_corpus: Path) -> Made:
    """The same, with the experts of each token."""
    more = {"change": {"--train-iters": str(STEPS)}}
    return Made(lambda family: open_run(frameworks.recorded(frameworks.megatron, family=family, ROUTING="all", **more)))


def trained(family: str, reference: Run, **given: object) -> Run:
    """What the PyNative trainer recorded on the weights and batches of a reference."""
    asked = {"family": family, "RUN": "run", **recording(family), **frameworks.fed_by(reference.path), **given}
    return open_run(frameworks.kept(frameworks.pynative, **asked).run)


@pytest.fixture(scope="module")
def candidates(references: Made) -> Made:
    """The PyNative trainer, ten steps of two micro-batches, on the weights and batches of these."""
    return Made(lambda family: trained(family, references[family], change={"training.steps": STEPS}))


@pytest.mark.parametrize("family", slow_but(FAMILIES, QUICK))
def test_a_pair_is_aligned(family: str, references: Made, candidates: Made) -> None:
    reference, candidate = references[family], candidates[family]
    gradients = frameworks.furthest(reference.gradients(0), candidate.gradients(0))
    losses = frameworks.loss_errors(reference, candidate)
    print(f"{family}: gradients within {gradients:.1e}, losses within {losses[0]:.1e}, later {max(losses):.1e}")
    assert gradients < 1e-5
    assert len(losses) == STEPS
    assert max(losses) < 1e-6
    said = frameworks.aligned(reference.path, candidate.path).output
    assert all(stage in said for stage in ("activations", "activation gradients", "token losses", "local norms"))
    ours, theirs = reference.weights(0), candidate.weights(0)
    assert ours.keys() == theirs.keys()
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours)
    assert reference.manifest["model"] == candidate.manifest["model"]
    assert candidate.self_check.contradictions == ()
    assert max(frameworks.sketch_errors(candidate)) < 1e-6


@pytest.mark.parametrize("family", slow_but(FAMILIES[1:], QUICK))
def test_the_bias_of_experts_moves_as_in_megatron_to_the_bit(family: str, references: Made, candidates: Made) -> None:
    for updates in range(STEPS + 1):
        ours, theirs = (run[family].weights(updates) for run in (references, candidates))
        biases = [name for name in ours if name.endswith("e_score_correction_bias")]
        assert biases
        assert all(np.array_equal(ours[name], theirs[name]) for name in biases), updates
        assert updates == 0 or all(ours[name].any() for name in biases)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_updates_from_injected_gradients_are_megatrons(family: str, references: Made, routed: Made) -> None:
    """Replayed experts beside them, where the model has any."""
    reference = references[family] if family == "qwen3" else routed[family]
    fed = {"INJECT_GRADIENTS": f"{reference.path}@0-2", "REPLAY_BATCHES": f"{reference.path}@0-2"}
    replayed = {} if family == "qwen3" else {"REPLAY_ROUTING": reference.path}
    candidate = trained(family, reference, **fed, **replayed)
    for updates in (1, 2, 3):
        error = frameworks.furthest(reference.weights(updates), candidate.weights(updates))
        print(f"{family}: weights after {updates} injected updates within {error:.1e}")
        assert error < 1e-6
    frameworks.aligned(reference.path, candidate.path)


@pytest.mark.slow
def test_replayed_experts_are_taken_in_the_place_of_the_routers_own(routed: Made) -> None:
    """A model of other weights chooses otherwise, and trains on the experts that it is given; recorded is what it would choose itself."""
    reference = routed[QUICK]
    steps = {"REPLAY_BATCHES": f"{reference.path}@0-1", "LOAD_WEIGHTS": None, "ACTIVATIONS_TENSORS": "*.gate.weights"}
    own, led = (trained(QUICK, reference, **steps, **more) for more in ({}, {"REPLAY_ROUTING": f"{reference.path}@0-1"}))
    for name in reference.routing(0):
        wanted = np.asarray(reference.routing(0)[name])
        assert (np.asarray(own.routing(0)[name]) != wanted).any()
        assert (np.asarray(led.routing(0)[name]) != wanted).any()
        weighed = led.activations(0).tensor(f"{name}.weights") != 0
        assert np.array_equal(np.argwhere(weighed)[:, 2].reshape(wanted.shape), wanted)


@pytest.mark.slow
def test_a_teacher_gives_each_block_the_references_input(references: Made) -> None:
    """An error planted in the weights of one block is in that block alone."""
    reference = references["qwen3"]
    candidate = trained("qwen3", reference, TEACHER=f"{reference.path}@0-1", REPLAY_BATCHES=f"{reference.path}@0-1")
    frameworks.aligned(reference.path, candidate.path)
    assert candidate.manifest["forced"]["steps"] == "0-1" or candidate.manifest["forced"]


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_the_static_graph_and_the_pynative_trainer_are_aligned(family: str, references: Made) -> None:
    """The migration of a MindFormers user, who has no Megatron-LM: one version of MindFormers trains both."""
    reference = references[family]
    static = frameworks.recorded(frameworks.mindformers, family=family, **frameworks.fed_by(reference.path))
    frameworks.aligned(static, trained(family, open_run(static), change={"training.local_batch_size": 4}).path)


@pytest.mark.slow
def test_a_deepseek_v4_is_recorded_and_its_choices_are_replayed(references: Made) -> None:
    """Of experts, and of the positions that sparse attention sees; both runs on the tokens of another model."""
    batches = {"REPLAY_BATCHES": f"{references['qwen3'].path}@0-2", "LOAD_WEIGHTS": None}
    own = trained("deepseek_v4", references["qwen3"], ROUTING="all", **batches)
    assert {"model.layers.1.self_attn.q_a_proj", "model.layers.3.mlp", "model.norm", "lm_head"} <= set(own.activations(0).names)
    assert own.scalars()[0]["terms"]["sparse_attention_indexer"] > 0
    indexers = [name for name in own.routing(0) if name.endswith(".indexer")]
    assert indexers and {np.asarray(own.routing(0)[name]).shape for name in indexers} == {(4, 128, 16)}
    asked = {"ROUTING": "all", **batches, "SEED": "7", "ACTIVATIONS_TENSORS": "*.gate.weights"}
    led = trained("deepseek_v4", references["qwen3"], **asked, REPLAY_ROUTING=f"{own.path}@0-2")
    for layer in (1, 2, 3):  # the experts of a hash layer, the first, follow from its table
        wanted = np.asarray(own.routing(0)[f"model.layers.{layer}.mlp.gate"])
        weighed = led.activations(0).tensor(f"model.layers.{layer}.mlp.gate.weights") != 0
        assert np.array_equal(np.argwhere(weighed)[:, 2].reshape(wanted.shape), wanted)
    assert all((np.asarray(led.routing(0)[name]) != np.asarray(own.routing(0)[name])).any() for name in indexers)


@pytest.mark.slow
def test_a_loss_made_in_chunks_is_aligned_without_token_losses(routed: Made) -> None:
    """Only the predicting layer's loss makes those of tokens, and they are not taken for the model's."""
    reference = routed["deepseek_v3_mtp"]
    candidate = trained("deepseek_v3_mtp", reference, change={"model.chunk_loss_num": 4})
    frameworks.aligned(reference.path, candidate.path)
    assert candidate.batch(0).token_losses is None


@pytest.mark.slow
@pytest.mark.parametrize("family", ["qwen3", "deepseek_v3_mtp"])
def test_a_newer_mindspore_is_aligned_too(family: str, references: Made) -> None:
    """MindFormers 2.1 asks for one that is newer still, which the package index lacks."""
    candidate = trained(family, references[family], mindspore="2.10.0")
    assert candidate.facts.versions["mindspore"] == "2.10.0"
    frameworks.aligned(references[family].path, candidate.path)


@pytest.mark.slow
def test_the_static_graph_of_2_0_is_aligned(references: Made, tmp_path: Path) -> None:
    """It rounds nothing; and without hyper-parallel, which the package index lacks, it starts only with what stands in for it."""
    reference = references["qwen3"]
    command = ["-m", "align_hooks.ms_side", str(frameworks.LAUNCH / "run_mindformer.py"), "--config"]
    fed = frameworks.REHEARSAL | frameworks.fed_by(reference.path) | recording("qwen3") | {"RUN": "run", "ACTIVATIONS": "none"}
    path = {"PYTHONPATH": str(frameworks.wheel("mindformers", "2.0.0"))}
    frameworks.python(tmp_path, [*command, str(frameworks.launched("qwen3", "yaml"))], fed, path)
    frameworks.aligned(reference.path, tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize("family", ["qwen3", "deepseek_v3_mtp"])
def test_what_2_0_rounds_is_found_where_it_is(family: str, references: Made) -> None:
    """MindFormers 2.0.0 rounds the hidden states to bf16 before the output layer, whatever ``compute_dtype`` says."""
    reference = references[family]
    candidate = trained(family, reference, version="2.0.0")
    judged = frameworks.diverged(reference.path, candidate.path)
    assert frameworks.first(judged).name == "token losses"
    assert "rounding of the hidden states to bfloat16 before the output layer" in frameworks.compare(reference.path, candidate.path).line


def final(where: Path) -> Mapping[str, np.ndarray]:
    """What the trainer itself saved behind the last step."""
    files = sorted((where / "saved").rglob("*.safetensors"))
    assert len(files) == 2  # the model's and the optimizer's
    return {f"{file.stem[:16]} {name}": tensor for file in files for name, tensor in load_file(file).items()}


@pytest.mark.parametrize("family", slow_but(FAMILIES, "qwen3"))
def test_recording_leaves_the_trainer_bitwise_as_it_was(family: str, references: Made) -> None:
    saves = {"checkpoint.enable_save": True, "checkpoint.save_path": "saved", "checkpoint.save_interleaved_steps": frameworks.STEPS}
    given = {"family": family, "change": saves, **frameworks.fed_by(references[family].path)}
    plain, recorded = (frameworks.kept(frameworks.pynative, **given, **asked) for asked in ({}, {"RUN": "run", **recording(family)}))
    ours, theirs = final(plain.where), final(recorded.where)
    assert ours.keys() == theirs.keys()
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours)
    assert any(name.startswith("checkpoint-opt") for name in ours)
    printed = [[line.partition("step:[")[2] for line in run.output.splitlines() if "step:[" in line] for run in (plain, recorded)]
    without_times = [
        [[part for part in line.split(", ") if "time" not in part and "throughput" not in part] for line in run] for run in printed
    ]
    assert without_times[0] == without_times[1] != []


@pytest.mark.slow
def test_a_resumed_run_is_recorded_from_its_step_on_and_is_the_uninterrupted_one(references: Made) -> None:
    """Micro-batches of a resumed run are skipped in recorded batches as in the run's own data."""
    reference = references["deepseek_v3_mtp"]
    saves = {"checkpoint.enable_save": True, "checkpoint.save_path": "saved", "checkpoint.save_interleaved_steps": 2}
    given = {"family": "deepseek_v3_mtp", "RUN": "run", **recording("deepseek_v3_mtp"), "REPLAY_BATCHES": reference.path}
    whole = frameworks.kept(frameworks.pynative, change={**saves, "training.steps": 4}, LOAD_WEIGHTS=reference.path, **given)
    (half,) = whole.where.glob("saved/iteration_*2")
    loads = {"checkpoint.load_path": str(half), "training.steps": 4}
    resumed = frameworks.kept(frameworks.pynative, change=loads, **given)
    ours, theirs = open_run(whole.run), open_run(resumed.run)
    assert theirs.steps == [2, 3]
    for updates in (2, 3, 4):
        assert all(np.array_equal(ours.weights(updates)[name], theirs.weights(updates)[name]) for name in ours.weights(updates))
    frameworks.aligned(whole.run, resumed.run)


REFUSED = {
    "a YAML of the static graph": ({"runner_config": {"epochs": 1}}, "the YAML has runner_config, which the static graph's trainer reads"),
    "a misspelt section": ({"trainning": {}}, "a section trainning, of which the trainer reads nothing; did you mean training?"),
    "bf16 on a CPU": ({"model.compute_dtype": "bfloat16"}, "MindSpore has no bfloat16 on a CPU"),
    "adapters": ({"lora_config": {"target_modules": ".*"}}, "lora_config adds parameters that no family names"),
    "another model": ({"model.model_type": "qwen3_moe"}, "model.model_type is qwen3_moe, of which MindFormers has no PyNative model"),
    "growing batches": ({"training.rampup_batch_size": [2, 2, 8]}, "training.rampup_batch_size changes the rows of a step"),
}


@pytest.mark.parametrize("what", slow_but(REFUSED, "a misspelt section"))
def test_what_it_does_not_read_is_refused_by_name(what: str, tmp_path: Path) -> None:
    change, words = REFUSED[what]
    done = frameworks.pynative(tmp_path, change=change, RUN="run")
    assert (done.code, words in done.line) == (2, True), done.output
    assert len(done.ours.splitlines()) == 1


@pytest.mark.slow
def test_a_yaml_of_the_pynative_trainer_is_refused_by_the_static_graph(tmp_path: Path) -> None:
    yaml = frameworks.launched("pynative/qwen3", "yaml")
    command = ["-m", "align_hooks.ms_side", str(frameworks.LAUNCH / "run_mindformer.py"), "--config", str(yaml)]
    done = frameworks.python(tmp_path, command, {**frameworks.REHEARSAL, "RUN": "run"}, {})
    assert done.code == 2
    assert "which only MindFormers' PyNative trainer reads; train with --mode 1" in done.line


@pytest.mark.slow
def test_tokens_of_the_padding_id_are_said_to_be_hidden(references: Made) -> None:
    """A replay sets the id to one that never occurs; on its own data the run says what the model does."""
    reference = references["qwen3"]
    said = frameworks.kept(frameworks.pynative, **frameworks.fed_by(reference.path), change={"model.pad_token_id": 32}, RUN="run").ours
    assert "model.pad_token_id: 32 -> -1 (ALIGN_HOOKS_REPLAY_BATCHES)" in said


@pytest.mark.slow
def test_nothing_is_done_on_a_step_that_was_not_selected(references: Made) -> None:
    reference = references["qwen3"]
    asked = dict.fromkeys(("BATCHES", "GRADIENTS", "ACTIVATIONS", "LOCAL_NORMS", "SKETCHES"), "1")
    run = open_run(frameworks.kept(frameworks.pynative, RUN="run", **asked, **frameworks.fed_by(reference.path)).run)
    assert run.steps == [0, 1, 2]
    assert run.batch_steps() == [1]
    assert [step for step in run.steps if run.has("gradients", step)] == [1]
    assert json.loads((run.path / "run.json").read_text())["trainer"] == "PyNative"
