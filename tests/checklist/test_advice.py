"""Advice that was once wrong or incomplete: what is told now, all of it, and that nothing differs once it is written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from align_hooks.checklist.change import Action
from align_hooks.checklist.judge import Outcome
from align_hooks.checklist.result import check
from align_hooks.configuration.mindformers import read_yaml
from align_hooks.configuration.values import Value
from align_hooks.messages import message, rendered
from checklist.exercises import DATA, EXPERTS, LATENT, NEW, OLD, megatron, mindformers, mindformers_tree, row, to_change

LR, PARALLEL, WRAPPER = "lr_schedule", "parallel_config", "runner_wrapper"
LLAMA3 = "extend_method: LLAMA3; scaling_factor.factor: 8.0; scaling_factor.low_freq_factor: 1.0; scaling_factor.high_freq_factor: 4.0; \
scaling_factor.original_max_position_embeddings: 8192"
PIPED = {"use_parallel": True, f"{PARALLEL}.data_parallel": 2, f"{PARALLEL}.pipeline_stage": 2, f"{PARALLEL}.micro_batch_num": 4}
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any], dict[str, str]]] = {
    # style, flags, keys, and row to what is told
    "betas that are swapped": (
        *(OLD, {"adam-beta1": 0.8, "adam-beta2": 0.99}, {"optimizer.betas": [0.99, 0.8]}),
        {"beta1": "optimizer.betas: [0.8, 0.99]", "beta2": "optimizer.betas: [0.8, 0.99]"},
    ),
    "betas that nobody set": (
        *(OLD, {"adam-beta1": 0.8, "adam-beta2": 0.99}, {"optimizer.betas": None}),
        {"beta1": "optimizer.betas: [0.8, 0.99]", "beta2": "optimizer.betas: [0.8, 0.99]"},
    ),
    "a larger batch, which leaves fewer steps": (
        *(OLD, {"global-batch-size": 4, "micro-batch-size": 4}, {}),
        {"global_batch_size": "runner_config.batch_size: 4", "train-iters": "train_dataset.data_loader.sizes: [40, 0, 0]"},
    ),
    "a larger batch of a data set that is read twice": (
        OLD,
        {"global-batch-size": 256, "micro-batch-size": 256, "train-iters": 2000},
        {"train_dataset.data_loader.sizes": [8000, 0, 0], "runner_config.epochs": 2, "runner_config.batch_size": 4},
        {"global_batch_size": "runner_config.batch_size: 256", "train-iters": "train_dataset.data_loader.sizes: [256000, 0, 0]"},
    ),
    "a linear decay with an end": (
        *(OLD, {"lr-decay-style": "linear", "min-lr": 1e-5}, {f"{LR}.type": "LinearWithWarmUpLR"}),
        {"min_lr": f"{LR}.type: PolynomialWithWarmUpLR; {LR}.lr_end: 1.0e-05"},
    ),
    "a schedule that falls at its end": (
        OLD,
        {"lr-decay-style": "WSD", "lr-wsd-decay-style": "linear", "lr-wsd-decay-iters": 4, "min-lr": 1e-5, "lr-warmup-iters": 2},
        {f"{LR}.warmup_ratio": 0.0},
        {
            "lr_decay_style": f"{LR}.type: WarmUpStableDecayLR; {LR}.decay_start_steps: 6",
            "min_lr": f"{LR}.lr_end: 1.0e-05",
            "lr_warmup_iters": f"{LR}.warmup_steps: 2; {LR}.warmup_ratio: null",
        },
    ),
    "a warm-up in samples that is whole steps": (
        OLD,
        {"train-iters": None, "train-samples": 40, "global-batch-size": 4, "lr-warmup-samples": 8},
        {"runner_config.batch_size": 4, "train_dataset.data_loader.sizes": [40, 0, 0]},
        {"lr_warmup_iters": f"{LR}.warmup_steps: 2"},
    ),
    "a loss of every token alike": (
        NEW,
        {"calculate-per-token-loss": ""},
        {},
        {"loss_of_every_token_alike": "calculate_per_token_loss: True"},
    ),
    "a residual behind the norm": (
        *(NEW, {"apply-residual-connection-post-layernorm": ""}, {}),
        {"residual_after_the_norm": "apply_residual_connection_post_layernorm: True"},
    ),
    "masks of documents": (
        *(OLD, {"reset-attention-mask": "", "eod-mask-loss": "", "seq-length": 2048}, {"m.seq_length": 2048}),
        {"reset_attention_mask": f"{DATA}.create_compressed_eod_mask: True", "eod_mask_loss": f"{DATA}.eod_mask_loss: True"},
    ),
    "masks of documents, for a compressed one too short": (
        *(OLD, {"reset-attention-mask": "", "seq-length": 2047}, {"m.seq_length": 2047}),
        {"reset_attention_mask": f"{DATA}.create_attention_mask: True; {DATA}.reset_attention_mask: True"},
    ),
    "masks of documents, where no flash attention reads a compressed one": (
        *(OLD, {"reset-attention-mask": "", "seq-length": 2048}, {"m.seq_length": 2048, "m.use_flash_attention": False}),
        {"reset_attention_mask": f"{DATA}.create_attention_mask: True; {DATA}.reset_attention_mask: True"},
    ),
    "a split of three": (OLD, {"split": "949,50,1"}, {}, {"split": f"{DATA}.split: '949, 50, 1'"}),
    "a clip that is off": (
        *(OLD, {"clip-grad": 0.5}, {f"{WRAPPER}.use_clip_grad": False}),
        {"clip_grad": f"{WRAPPER}.use_clip_grad: True; {WRAPPER}.max_grad_norm: 0.5"},
    ),
    "a global batch over a pipeline": (
        *(OLD, {"global-batch-size": 64, "micro-batch-size": 2}, {**PIPED, "runner_config.batch_size": 2}),
        {"global_batch_size": f"{PARALLEL}.micro_batch_num: 16"},
    ),
    "a sequence of model and data": (
        *(OLD, {"seq-length": 256}, {f"{DATA}.seq_length": 128}),
        {"seq_length": f"seq_length: 256; {DATA}.seq_length: 256"},
    ),
    "Llama 3.1's positions": (OLD, {"use-rope-scaling": ""}, {"m.max_position_embedding": 16384}, {"rope_scaling": LLAMA3}),
    "an activation without a gate": (
        *(NEW, {"swiglu": None}, {}),
        dict.fromkeys(("activation_function", "gated_linear_unit"), "hidden_act: gelu; gated_linear_unit: False"),
    ),
    "shared experts by their number": (
        *(LATENT, {"moe-shared-expert-intermediate-size": 384}, {}),
        {"size_of_the_shared_experts": "n_shared_experts: 4"},
    ),
}


def test_a_row_that_follows_names_the_changes_that_it_follows() -> None:
    older = {"use_legacy": True, "m.type": "LlamaConfig"}
    found = row(check(megatron(NEW, {}), mindformers(NEW, older)), "type_in_which_the_residual_is_added")
    assert to_change(found) == rendered(message("change.follows", changes="compute_dtype"))


@pytest.mark.parametrize("case", CASES)
def test_it_is_told_whole_and_clean_as_told(case: str, tmp_path: Path) -> None:
    style, flags, keys, told = CASES[case]
    reference, candidate = megatron(style, flags), mindformers(style, keys)
    before = check(reference, candidate)
    assert {one.row.id: to_change(one) for one in before.of(Outcome.DIFFERENT)} == told
    (tmp_path / candidate.source).write_text(written(style, keys), encoding="utf-8")
    after = check(reference, read_yaml(before.block, "mended.yaml", tmp_path))
    assert (after.differing, after.of(Outcome.NOT_TOLD), after.exit_code) == ([], (), 0)


def written(style: str, keys: dict[str, Any]) -> str:
    """The text of a MindFormers YAML."""
    return yaml.safe_dump(mindformers_tree(style, keys))


def test_a_micro_batch_is_told_with_its_count_so_that_the_global_batch_stays() -> None:
    keys = {"use_parallel": True, "runner_config.batch_size": 1, "runner_config.gradient_accumulation_steps": 4}
    before = check(megatron(OLD, {"micro-batch-size": 2, "global-batch-size": 4}), mindformers(OLD, keys))
    change = row(before, "micro_batch_size").change
    assert change is not None and change.optional
    assert {edit.key: edit.value for edit in change.edits} == {
        "runner_config.batch_size": 2,
        "runner_config.gradient_accumulation_steps": 2,
    }


COUNT = f"{PARALLEL}.micro_batch_num"
ROWS_OF_MICRO_BATCHES = ("micro_batch_size", "micro_batches_of_a_step")
STAND_ALONE, DATA_PARALLEL = {"use_parallel": False}, {"use_parallel": True, "parallel.parallel_mode": 0, "device_num": 1}


@pytest.mark.parametrize("parallel", [STAND_ALONE, DATA_PARALLEL], ids=["stand-alone", "data parallel"])
def test_where_mindformers_accumulates_nothing_both_rows_say_so_and_what_the_reference_is_to_be(parallel: dict[str, Any]) -> None:
    reference = megatron(OLD, {"micro-batch-size": 2, "global-batch-size": 4, "data-parallel-size": 1})
    result = check(reference, mindformers(OLD, parallel | {"runner_config.batch_size": 4}))
    told = {name: row(result, name).change for name in ROWS_OF_MICRO_BATCHES}
    assert {name: (one.action, one.value, one.why) for name, one in told.items()} == {
        "micro_batch_size": (Action.CHANGE_REFERENCE, "4", message("cannot.accumulate")),
        "micro_batches_of_a_step": (Action.CHANGE_REFERENCE, "1", message("cannot.accumulate")),
    }
    assert [key for key in result.edits if "accumulation" in key.key] == []


@pytest.mark.parametrize(
    ("parallel", "count"),
    [
        ({"parallel.parallel_mode": 1}, "runner_config.gradient_accumulation_steps"),
        (
            {"parallel.parallel_mode": 1, **PIPED, f"{PARALLEL}.data_parallel": 1, f"{PARALLEL}.micro_batch_num": 1},
            f"{PARALLEL}.micro_batch_num",
        ),
    ],
    ids=["accumulation", "pipeline"],
)
def test_where_it_does_both_rows_are_told_the_same(parallel: dict[str, Any], count: str) -> None:
    flags = {"micro-batch-size": 2, "global-batch-size": 4, "data-parallel-size": 1}
    flags |= {"pipeline-model-parallel-size": 2} if "pipeline_stage" in str(parallel) else {}
    result = check(megatron(OLD, flags), mindformers(OLD, {"use_parallel": True, **parallel, "runner_config.batch_size": 4}))
    told = [{edit.key: edit.value for edit in row(result, name).change.edits} for name in ROWS_OF_MICRO_BATCHES]
    assert told == [{"runner_config.batch_size": 2, count: 2}] * 2


def test_how_many_micro_batches_there_are_is_told_by_the_setting_that_counts_them() -> None:
    """And not by the pipeline's, which says which setting counts; and what it would do to the global batch is told."""
    reference = megatron(OLD, {"micro-batch-size": 1, "global-batch-size": 4})
    reference = replace(reference, values={**reference.values, "data_parallel_size": Value(1)})
    sizes = {"parallel.parallel_mode": 1, f"{PARALLEL}.data_parallel": 4, f"{PARALLEL}.pipeline_stage": 1}
    keys = {"use_parallel": True, "runner_config.batch_size": 1, **sizes}
    change = row(check(reference, mindformers(OLD, keys)), "micro_batches_of_a_step").change
    assert change is not None and change.optional
    assert [edit.key for edit in change.edits] == ["runner_config.gradient_accumulation_steps"]
    assert (change.parts, change.worth) == ("global_batch_size", False)


def test_a_warm_up_that_is_no_whole_number_of_steps_has_no_setting() -> None:
    flags = {"train-iters": None, "train-samples": 40, "global-batch-size": 4, "lr-warmup-samples": 10}
    keys = {"runner_config.batch_size": 4, "train_dataset.data_loader.sizes": [40, 0, 0]}
    change = row(check(megatron(OLD, flags), mindformers(OLD, keys)), "lr_warmup_iters").change
    assert change is not None and (change.action, change.value) == (Action.NONE, "2.5")


def test_the_path_of_data_is_to_be_filled_in() -> None:
    change = row(check(megatron(OLD, {"data-path": "0.3 /a/one 0.7 /b/two"}), mindformers(OLD, {})), "data_path").change
    assert change is not None and (change.action, change.edits) == (Action.COME_TO, ())


def test_a_table_of_the_models_own_file_is_taken_along(tmp_path: Path) -> None:
    """A table of the YAML takes the place of the whole table of ``config.json``: one of its numbers alone would lose the others."""
    scaling = '{"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096, "mscale": 1.0, "mscale_all_dim": 1.0}'
    (tmp_path / "config.json").write_text('{"rope_scaling": ' + scaling + "}", encoding="utf-8")
    names = ("type", "factor", "original_max_position_embeddings", "mscale", "mscale_all_dim")
    keys = {**{f"m.rope_scaling.{name}": None for name in names}, "pretrained_model_dir": "."}
    (tmp_path / "latent.yaml").write_text(written(LATENT, keys), encoding="utf-8")
    candidate = read_yaml(written(LATENT, keys), "latent.yaml", tmp_path)
    reference = megatron(LATENT, {"rotary-scaling-factor": 40})
    before = check(reference, candidate)
    assert before.differing == ["rotary_scaling_factor", "stretch_of_latent_attentions_scores"]
    assert {edit.key.rpartition(".")[2]: edit.value for edit in before.edits} == {
        "type": "yarn",
        "factor": 40,
        "original_max_position_embeddings": 4096,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
    }
    assert check(reference, read_yaml(before.block, "mended.yaml", tmp_path)).differing == []


def test_nothing_is_told_of_experts_that_mindformers_does_not_read() -> None:
    before = check(megatron(EXPERTS, {"moe-z-loss-coeff": 0.001}), mindformers(EXPERTS, {}))
    change = row(before, "z-loss").change
    assert change is not None and change.action is Action.NONE
