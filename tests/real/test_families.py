"""Every family of ``launch/families``: Megatron recorded, MindFormers on the same weights and batches, Hugging Face as a third opinion.

MindFormers builds all of these by its newer models (``use_legacy: False``).
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from align_hooks import Run, open_run
from align_hooks.checkpoints.convert import ConversionOptions, convert_weights
from align_hooks.checkpoints.forms import open_checkpoint
from align_hooks.comparison.pipeline import compare
from align_hooks.quantities.weights import NO_FAMILY
from chosen import slow_but
from real import frameworks, huggingface
from real.frameworks import Made

STEPS = 10
TENSORS: Mapping[str, tuple[int, int]] = {
    "qwen2": (27, 0),
    "qwen3": (25, 0),
    "qwen3_moe": (69, 0),
    "deepseek_v3": (91, 2),
    "deepseek_v3_mtp": (133, 3),
}
"""How many tensors a family's model has here, and how many of them are buffers that training moves: biases of experts."""
TERMS: Mapping[str, Mapping[str, float]] = {
    "qwen3_moe": {"balance": 1e-3},
    "deepseek_v3_mtp": {"prediction": 0.3},
    "glm4_moe": {"prediction": 0.3},
}
"""The weights of what a family's loss has beside the language model's, in its files of ``launch``."""
BIASED = [name for name, (_, buffers) in TENSORS.items() if buffers]
MEGATRON: Mapping[str, tuple[int, int]] = {"glm4_moe": (141, 3), "gpt_oss": (186, 0), "minimax_m2": (71, 2)}
"""The same of the families that only Megatron trains."""
QUICK = ("deepseek_v3", *MEGATRON)
"""Those that every run of the tests trains; the others are slow only because they are many."""


def families(*names: str) -> pytest.MarkDecorator:
    """A test of each of these families."""
    return pytest.mark.parametrize("family", slow_but(names, *QUICK))


def megatron(family: str, **given: object) -> Run:
    """What Megatron recorded of a family; a layer specification stands beside the arguments."""
    specified = frameworks.launched(family, "py")
    own = {"environment": {"PYTHONPATH": str(specified.parent)}} if specified.exists() else {}
    return open_run(frameworks.recorded(frameworks.megatron, family=family, **own, **given))


def mindformers(family: str, reference: Run, *, of_model: Mapping[str, object] | None = None, **given: object) -> Run:
    """What MindFormers recorded on the weights and batches of a reference, with keys of its model."""
    if of_model:
        given["change"] = {f"model.model_config.{key}": value for key, value in of_model.items()}
    return open_run(frameworks.recorded(frameworks.mindformers, family=family, **{**frameworks.fed_by(reference.path), **given}))


@pytest.fixture(scope="module")
def references(real_corpus: Path) -> Made:
    """Megatron, ten steps of each family."""
    return Made(lambda family: megatron(family, change={"--train-iters": str(STEPS)}))


@pytest.fixture(scope="module")
def candidates(references: Made) -> Made:
    """MindFormers on the weights and batches of these."""
    return Made(lambda family: mindformers(family, references[family]))


def aligned(reference: Run, candidate: Run, what: str) -> None:
    """That a pair is aligned, and gradients of the first step within 1e-5."""
    gradients = frameworks.furthest(reference.gradients(0), candidate.gradients(0))
    print(f"{what}: gradients within {gradients:.1e}")
    assert gradients < 1e-5
    frameworks.aligned(reference.path, candidate.path)


@families(*TENSORS)
def test_a_pair_is_aligned(family: str, references: Made, candidates: Made) -> None:
    reference, candidate = references[family], candidates[family]
    aligned(reference, candidate, family)
    losses = frameworks.loss_errors(reference, candidate)
    assert len(losses) == STEPS
    print(f"{family}: losses within {losses[0]:.1e}, later {max(losses):.1e}")
    assert losses[0] < 1e-6
    assert max(losses) < 2e-6


@families(*TENSORS)
def test_both_sides_have_the_same_tensors_and_start_from_the_same_bits(family: str, references: Made, candidates: Made) -> None:
    runs = references[family], candidates[family]
    ours, theirs = (run.weights(0) for run in runs)
    count, buffers = TENSORS[family]
    assert len(ours) == count
    assert set(ours) == set(theirs)
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours)
    trained = [set(run.gradients(0)) for run in runs]
    assert trained[0] == trained[1]
    assert len(trained[0]) == count - buffers
    assert runs[0].manifest["model"] == runs[1].manifest["model"]
    assert all(run.self_check.contradictions == () for run in runs)


def biases(run: Run, updates: int) -> dict[str, np.ndarray]:
    """The biases of a run's experts, by their names."""
    weights = run.weights(updates)
    return {name: weights[name] for name in weights if name.endswith("e_score_correction_bias")}


@families(*BIASED)
def test_the_bias_of_experts_moves_and_is_the_same_to_the_bit_on_both_sides(family: str, references: Made, candidates: Made) -> None:
    runs = references[family], candidates[family]
    assert [run.weight_steps() for run in runs] == [list(range(STEPS + 1))] * 2
    for updates in range(STEPS + 1):
        ours, theirs = (biases(run, updates) for run in runs)
        assert len(ours) == TENSORS[family][1]
        assert ours.keys() == theirs.keys()
        assert all(np.array_equal(ours[name], theirs[name]) for name in ours), updates
    first, last = (biases(runs[0], updates) for updates in (0, STEPS))
    assert all((first[name] != last[name]).any() for name in first)


@pytest.mark.slow
@pytest.mark.parametrize("family", BIASED)
def test_a_run_goes_on_from_a_bias_that_has_moved(family: str, references: Made) -> None:
    """Both sides, one step from the reference's weights after five."""
    reference = references[family]
    fed = {"LOAD_WEIGHTS": f"{reference.path}@5", "REPLAY_BATCHES": f"{reference.path}@0"}
    runs = [megatron(family, change={"--train-iters": "1"}, **fed)]
    runs.append(mindformers(family, reference, change={"lr_schedule.total_steps": 1}, **fed))
    wanted = biases(reference, 5)
    assert all(bias.any() for bias in wanted.values())
    for run in runs:
        loaded = biases(run, 0)
        assert all(np.array_equal(loaded[name], bias) for name, bias in wanted.items())
    frameworks.aligned(*(run.path for run in runs))


LAYOUTS: Mapping[str, Mapping[str, object]] = {
    "qwen3": {"use_contiguous_weight_layout_attention": True, "use_interleaved_weight_layout_mlp": False},
    "deepseek_v3": {"mla_qkv_concat": False, "use_interleaved_weight_layout_mlp": False},
}
"""What MindFormers lays out otherwise than by default in a family: queries, keys and values, gates, and latent attention's projections."""


@pytest.mark.slow
@pytest.mark.parametrize("family", LAYOUTS)
def test_a_pair_is_aligned_in_mindformers_other_layouts(family: str, references: Made, candidates: Made) -> None:
    run = mindformers(family, references[family], of_model=LAYOUTS[family])
    native = [{shard.native for shard in each.shards(0)} for each in (candidates[family], run)]
    assert (native[0] != native[1]) == ("mla_qkv_concat" in LAYOUTS[family])
    aligned(references[family], run, f"{family} in other layouts")


@pytest.mark.slow
@pytest.mark.parametrize("family", TENSORS)
def test_weights_after_each_of_three_injected_updates_are_the_references(family: str, references: Made) -> None:
    reference = references[family]
    first = f"{reference.path}@0-2"
    run = mindformers(family, reference, REPLAY_BATCHES=first, INJECT_GRADIENTS=first)
    assert run.facts.injected.steps == (0, 1, 2)
    for updates in (1, 2, 3):
        worst = frameworks.furthest(reference.weights(updates), run.weights(updates))
        print(f"{family}: weights after update {updates} within {worst:.1e}")
        assert worst < 1e-6
    frameworks.aligned(reference.path, run.path)


@pytest.mark.parametrize("side", ["references", "candidates"])
@pytest.mark.parametrize("step", [0, STEPS - 1])
@families(*TENSORS)
def test_hugging_face_agrees_on_the_recorded_weights(family: str, step: int, side: str, request: pytest.FixtureRequest) -> None:
    """At the last step too, when biases of experts have moved."""
    agreed(family, request.getfixturevalue(side)[family], step, side)


@pytest.mark.parametrize("step", [0, STEPS - 1])
@families(*MEGATRON)
def test_hugging_face_agrees_with_megatron_alone(family: str, step: int, references: Made) -> None:
    run = references[family]
    agreed(family, run, step, "Megatron")
    count, buffers = MEGATRON[family]
    assert (len(run.weights(step)), len(run.gradients(step))) == (count, count - buffers)
    assert run.self_check.contradictions == ()


def agreed(family: str, run: Run, step: int, what: str) -> None:
    """That Hugging Face's model has the loss and the gradients of a step."""
    loss, gradients = huggingface.opinion(run, step, **TERMS.get(family, {}))
    worst = frameworks.furthest(gradients, huggingface.in_stacks(run.gradients(step)))
    apart = abs(loss - run.scalars()[step]["loss"]) / loss
    print(f"{family}, {what}, step {step}: loss within {apart:.1e}, gradients {worst:.1e}")
    assert apart < 1e-6
    assert worst < 1e-5


@families(*TENSORS, *MEGATRON)
def test_weights_of_a_family_go_through_every_form(family: str, tmp_path: Path, references: Made) -> None:
    reference = references[family]
    convert_weights(reference.path, tmp_path / "hf", "huggingface")
    for to, choices in (
        ("megatron", ConversionOptions(layers="local")),
        ("megatron", ConversionOptions()),
        *([("mindspore", ConversionOptions())] if family in TENSORS else []),
    ):
        convert_weights(tmp_path / "hf", tmp_path / f"{to}_{choices.layers}", to, choices)
        weights, opened = reference.weights(0), open_checkpoint(tmp_path / f"{to}_{choices.layers}").tensors
        assert opened.keys() == weights.keys()
        assert all(np.array_equal(opened[name].read(), array) for name, array in weights.items())


@pytest.mark.slow
@pytest.mark.parametrize("family", TENSORS)
def test_both_frameworks_start_from_converted_weights(family: str, tmp_path: Path, references: Made) -> None:
    """Those after an update, which no framework draws."""
    reference = references[family]
    source = reference.path.with_name(f"{reference.path.name}@1")
    convert_weights(source, tmp_path / "mg", "megatron", ConversionOptions(layers="local"))
    load = ("--ckpt-format", "torch", "--load", str(tmp_path / "mg"), "--finetune", "--no-load-optim", "--no-load-rng")
    given = {"family": family, "WEIGHTS": "0", "REPLAY_BATCHES": f"{reference.path}@0"}
    frameworks.megatron(tmp_path, change={"--train-iters": "1"}, flags=load, RUN=tmp_path / "megatron", **given).succeeded()
    convert_weights(source, tmp_path / "a.ckpt", "mindspore-ckpt")
    change = {"load_checkpoint": str(tmp_path / "a.ckpt"), "lr_schedule.total_steps": 1}
    frameworks.mindformers(tmp_path, change=change, RUN=tmp_path / "mindformers", **given).succeeded()
    wanted = reference.weights(1)
    for side in ("megatron", "mindformers"):
        found = open_run(tmp_path / side).weights(0)
        assert found.keys() == wanted.keys()
        assert [name for name in wanted if not np.array_equal(found[name], wanted[name])] == []


VARIANTS: Mapping[str, tuple[str, Mapping[str, str | None], Mapping[str, object]]] = {
    "tied": ("qwen3", {"--untie-embeddings-and-output-weights": None}, {"tie_word_embeddings": True}),
    "YaRN": (
        "deepseek_v3",
        {"--rope-type": "yarn", "--rotary-scaling-factor": "4", "--mscale": "1.0", "--mscale-all-dim": "1.0"},
        {"position_embedding_type": "yarn", "rotary_scaling_factor": 4.0, "mscale": 1.0, "mscale_all_dim": 1.0}
        | {"max_position_embeddings": 4096},  # from which both frameworks scale
    ),
    "Kimi-K2": (
        "deepseek_v3",
        {
            **{"--moe-router-num-groups": "1", "--moe-router-group-topk": "1", "--moe-router-topk-scaling-factor": "2.827"},
            **{"--rope-type": "yarn", "--rotary-scaling-factor": "32", "--mscale": "1.0", "--mscale-all-dim": "1.0"},
            **{"--rotary-base": "50000"},
        },
        {},
    ),
    "heads that are not normalised": ("glm4_moe", {"--qk-layernorm": None}, {}),
    "windows by a list": ("gpt_oss", {"--window-attn-skip-freq": "[0,1,1]", "--mscale": "0.7"}, {}),
    "no windows, no YaRN": (
        "gpt_oss",
        {"--window-size": None, "--window-attn-skip-freq": None, "--position-embedding-type": "rope", "--rotary-scaling-factor": None},
        {},
    ),
    "a dense layer first": ("qwen3_moe", {"--moe-layer-freq": "[0,1]"}, {}),
    "weights of the chosen as they are": ("qwen3_moe", {"--moe-router-pre-softmax": ""}, {}),
}
"""What a family leaves free, as both frameworks say it; nothing for MindFormers where Hugging Face's opinion of Megatron is enough."""


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIANTS)
def test_what_a_family_leaves_free_is_in_its_configuration(name: str, real_corpus: Path) -> None:
    family, flags, keys = VARIANTS[name]
    reference = megatron(family, change=flags)
    agreed(family, reference, 0, name)
    if keys:
        candidate = mindformers(family, reference, of_model=keys)
        frameworks.aligned(reference.path, candidate.path)
        agreed(family, candidate, 0, name)


AS_SHIPPED: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "fused, with latent attention": ("deepseek_v3", {"hidden_act": "fusedswiglu"}),
    "split": ("qwen3", {"hidden_act": "swiglu"}),
    "fused": ("qwen3", {"hidden_act": "swiglu", "bias_swiglu_fusion": True}),
    "split, halves": ("qwen3", {"hidden_act": "swiglu", "use_interleaved_weight_layout_mlp": False}),
    "fused, halves": ("qwen3", {"hidden_act": "fusedswiglu", "use_interleaved_weight_layout_mlp": False}),
    "norms by the key": ("qwen3", {"model_type": "telechat3", "architectures": ["TeleChat3ForCausalLM"], "qk_layernorm": True}),
}
"""What MindFormers' own YAML files write of a family that is built and named otherwise, and computes the same."""


@pytest.mark.slow
@pytest.mark.parametrize("name", AS_SHIPPED)
def test_what_the_shipped_files_write_is_of_the_family(name: str, references: Made) -> None:
    family, keys = AS_SHIPPED[name]
    run = mindformers(family, references[family], of_model=keys)
    assert run.manifest["model"] == references[family].manifest["model"]
    aligned(references[family], run, f"{family}, {name}")
    agreed(family, run, 0, name)


@pytest.mark.slow
def test_a_factor_behind_the_router_that_no_family_has_is_aligned_where_both_sides_have_it(real_corpus: Path) -> None:
    """As MindFormers' own file of a Qwen3-MoE writes it, of which Hugging Face's model knows nothing."""
    plain = {"ACTIVATIONS": None, "ACTIVATIONS_TENSORS": None}  # points of no family have no common names
    change = {"--train-iters": "3", "--moe-router-topk-scaling-factor": "1.5"}
    reference = megatron("qwen3_moe", change=change, **plain)
    candidate = mindformers("qwen3_moe", reference, of_model={"routed_scaling_factor": 1.5}, **plain)
    assert all("moe_router_topk_scaling_factor is 1.5, not None" in run.manifest["model"][NO_FAMILY] for run in (reference, candidate))
    frameworks.aligned(reference.path, candidate.path)


def per_token(family: str) -> tuple[Run, Run]:
    """Both sides with a loss that is the mean over all tokens of a step."""
    reference = megatron(family, flags=("--calculate-per-token-loss",), change={"--train-iters": "3"})
    return reference, mindformers(family, reference, change={"calculate_per_token_loss": True, "lr_schedule.total_steps": 3})


@pytest.mark.slow
@pytest.mark.parametrize("family", ["qwen3", "qwen3_moe"])
def test_a_loss_per_token_is_aligned(real_corpus: Path, family: str) -> None:
    runs = per_token(family)
    assert all(run.facts.training.per_token_loss for run in runs)
    frameworks.aligned(*(run.path for run in runs))


@pytest.mark.slow
def test_a_loss_per_token_weighs_predicted_tokens_otherwise_and_that_is_named(real_corpus: Path) -> None:
    """Megatron divides by the tokens that have one to predict, MindFormers by all: 127 of 128."""
    reference, candidate = per_token("deepseek_v3_mtp")
    comparison = compare(reference, candidate)
    assert comparison.first is not None and comparison.first.name == "loss terms"
    ours, theirs = (run.rows[0].terms or {} for run in (reference, candidate))
    assert theirs["multi_token_prediction"] / ours["multi_token_prediction"] == pytest.approx(127 / 128, rel=1e-6)


@families("qwen3_moe", "deepseek_v3_mtp")
def test_the_terms_of_the_loss_are_those_of_the_reference(family: str, references: Made, candidates: Made) -> None:
    for ours, theirs in zip(references[family].rows, candidates[family].rows, strict=True):
        assert ours.terms is not None and theirs.terms is not None
        assert any(ours.terms.values())
        for name, term in ours.terms.items():
            assert theirs.terms[name] == pytest.approx(term, rel=1e-5)
        assert ours.objective_loss == pytest.approx(ours.loss + sum(ours.terms.values()), rel=1e-9)
        assert theirs.objective_loss == pytest.approx(theirs.loss + sum(theirs.terms.values()), rel=1e-9)
