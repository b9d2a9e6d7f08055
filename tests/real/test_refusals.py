"""What cannot work is refused before training starts, in one line that names the thing and the way out."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from chosen import slow_but
from real import frameworks
from real.frameworks import Train


def refused(train: Train, *parts: str, **given: object) -> None:
    """Training of what is given is refused before its first step, in one line with these parts."""
    done = frameworks.kept(train, 2, **given)
    lines = [line for line in done.ours.splitlines() if " -> " not in line and "capturing gradients takes" not in line]
    assert len(lines) == 1, done.ours
    for part in parts:
        assert part in lines[0]
    assert "iteration        1/" not in done.output
    assert "step:[    1/" not in done.output


@pytest.fixture(scope="session")
def broken(reference: Path) -> Path:
    """Weights of the reference with a NaN in them."""
    return frameworks.derived(with_a_nan, reference)


def with_a_nan(weights: Path, reference: Path) -> None:
    shutil.copytree(reference / "step_0" / "rank_0" / "weights", weights)
    tensors = load_file(weights / "model.safetensors")
    tensors["model.norm.weight"][3] = np.nan
    save_file(tensors, weights / "model.safetensors")


SHAPE = "mlp.down_proj.weight is [64, 128], this model has [64, 96]"
MEGATRON = {
    "a type that no CPU has": ({}, ("--fp8-format", "hybrid"), {}, "--fp8-format only an accelerator can follow"),
    "gradients that lie elsewhere": ({}, ("--optimizer-cpu-offload",), {"RUN": "run"}, "kept with --optimizer-cpu-offload"),
    "sequence length": ({"--seq-length": "64"}, (), {"REPLAY_BATCHES": "{reference}"}, "has sequence length 128, this run 64"),
    "batch size": ({"--global-batch-size": "8"}, (), {"REPLAY_BATCHES": "{reference}"}, "has 4 rows, this run consumes 8 a step"),
    "ids": ({"--vocab-size": "128"}, (), {"REPLAY_BATCHES": "{reference}"}, "this model's vocabulary ends at 127"),
    "shapes": ({"--ffn-hidden-size": "96"}, (), {"LOAD_WEIGHTS": "{reference}"}, SHAPE),
    "names": ({"--num-layers": "3"}, (), {"LOAD_WEIGHTS": "{reference}"}, "model.layers.2.input_layernorm.weight [64] is missing"),
    "NaN": ({}, (), {"LOAD_WEIGHTS": "{broken}"}, "model.norm.weight holds NaN or infinity"),
    "a step that is never made": ({}, (), {"RUN": "run", "GRADIENTS": "0,7"}, "step 7 is never made, the last is 2"),
    "weights of another family": ({}, ("--qk-layernorm",), {"LOAD_WEIGHTS": "{weights}"}, "self_attn.k_norm.weight [16] is missing"),
}


@pytest.mark.parametrize("case", slow_but(MEGATRON, "NaN"))
def test_megatron_refuses(case: str, reference: Path, broken: Path) -> None:
    change, flags, variables, part = MEGATRON[case]
    weights = reference / "step_0" / "rank_0" / "weights"
    given = {name: value.format(reference=reference, broken=broken, weights=weights) for name, value in variables.items()}
    refused(frameworks.megatron, part, change=change, flags=flags, **given)


MINDFORMERS: dict[str, tuple[dict[str, object], dict[str, object], str]] = {
    "sink mode": ({"runner_config.sink_mode": True, "runner_config.sink_size": 10}, {"DEVICE": None, "RUN": "run"}, "set sink_mode: False"),
    "bfloat16 on a CPU": ({"model.model_config.compute_dtype": "bfloat16"}, {}, "set compute_dtype: float32"),
    "sequence length": ({"model.model_config.seq_length": 64}, {"REPLAY_BATCHES": "{reference}"}, "has sequence length 128, this run 64"),
    "ids": ({"model.model_config.vocab_size": 100}, {"REPLAY_BATCHES": "{reference}"}, "this model's vocabulary ends at 99"),
    "a schedule of the data's length": (
        {"lr_schedule.type": "CosineWithWarmUpLR", "lr_schedule.total_steps": -1},
        {"REPLAY_BATCHES": "{reference}"},
        "set total_steps in the YAML, or ALIGN_HOOKS_LEARNING_RATE",
    ),
    "shapes": ({"model.model_config.intermediate_size": 96}, {"REPLAY_BATCHES": "{reference}", "LOAD_WEIGHTS": "{reference}"}, SHAPE),
    "NaN": ({}, {"REPLAY_BATCHES": "{reference}", "LOAD_WEIGHTS": "{broken}"}, "model.norm.weight holds NaN or infinity"),
    "a teacher of a loss per token": (
        {"calculate_per_token_loss": True},
        {"REPLAY_BATCHES": "{reference}@0", "LOAD_WEIGHTS": "{reference}", "TEACHER": "{reference}@0"},
        "with calculate_per_token_loss gradients are divided by the tokens behind the backward pass",
    ),
}


@pytest.mark.parametrize("case", slow_but(MINDFORMERS, "shapes"))
def test_mindformers_refuses(case: str, reference: Path, broken: Path) -> None:
    change, variables, part = MINDFORMERS[case]
    given = {name: value and value.format(reference=reference, broken=broken) for name, value in variables.items()}
    refused(frameworks.mindformers, part, change=change, **given)


def test_everything_that_a_configuration_is_refused_for_is_said_at_once(real_corpus: Path) -> None:
    flags = ("--fp8-format", "hybrid", "--iterations-to-skip", "2", "--inprocess-restart")
    done = frameworks.kept(frameworks.megatron, 2, flags=flags, RUN="run")
    assert [line for line in done.ours.splitlines() if " -> " not in line] == [
        "align_hooks: ALIGN_HOOKS_DEVICE=cpu: --fp8-format only an accelerator can follow; leave it out",
        "align_hooks: --iterations-to-skip makes steps that train nothing and cannot be recorded; leave it out",
        "align_hooks: --inprocess-restart trains anew inside a process whose record has begun; "
        "leave it out, torchrun's own restarts are recorded",
    ]


@pytest.mark.slow
def test_latent_attention_that_tensor_parallel_ranks_get_wrong_is_refused(real_corpus: Path) -> None:
    flags = ("--tensor-model-parallel-size", "2")
    refused(frameworks.megatron, "--multi-latent-attention", family="deepseek_v3", flags=flags, RUN="run")


@pytest.mark.slow
def test_a_model_of_the_static_graph_in_pynative_mode_is_refused(real_corpus: Path) -> None:
    given = {"family": "qwen3", "change": {"context.mode": 1}, "RUN": "run"}
    refused(frameworks.mindformers, "context.mode is 1", "set mode: 0 in the YAML", **given)


@pytest.mark.slow
@pytest.mark.parametrize("source", [".", "step_0/rank_0/weights"], ids=["record", "directory"])
def test_a_newer_model_refuses_weights_of_another_family(source: str, reference: Path) -> None:
    given = {"REPLAY_BATCHES": reference, "LOAD_WEIGHTS": reference / source}
    refused(frameworks.mindformers, "model.layers.0.self_attn.k_norm.weight [32] is missing", family="qwen3", **given)


@pytest.mark.slow
def test_a_key_that_a_newer_model_does_not_know_is_the_frameworks_own_error_and_names_none_of_ours(reference: Path) -> None:
    """MindFormers 1.9 lists every key that its ``TransformerConfig`` has not; 2.1 warns of it and trains."""
    given = {"change": {"model.model_config.invented": 1}, "RUN": "run", "DETERMINISTIC": 1, "LEARNING_RATE": 1e-4}
    done = frameworks.kept(frameworks.mindformers, 1, family="qwen3", **given, **frameworks.fed_by(reference))
    assert set(re.findall(r"`(\w+)` is unexpected in TransformerConfig", done.output)) == {"invented"}
    assert all(" -> " in line for line in done.ours.splitlines())
