"""What ``check`` once told wrong of real pairs: a difference that was none, one that it did not see, advice that did not mend it."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from align_hooks.checklist.judge import Outcome
from align_hooks.checklist.result import check
from align_hooks.configuration.megatron import read_command
from align_hooks.configuration.source import read
from align_hooks.messages import message
from align_hooks.report.check_text import in_absent_file, render_check
from checklist.exercises import EXPERTS, LATENT, NEW, OLD, megatron, mindformers, row, to_change

ONLY_LOSS = [{"type": "MFLossMonitor"}]
MOVED = "callbacks: [{type: MFLossMonitor}, {type: TopkBiasBalanceCallback}]"
LOADER, COLUMNS = "train_dataset.data_loader", "train_dataset.input_columns"
OF_HANDLERS = {f"{LOADER}.type": "HFDataLoader", **dict.fromkeys([f"{LOADER}.config.{name}" for name in ("split", "seed", "data_path")])}
CUT = {"use_parallel": True, "parallel_config.model_parallel": 2, "parallel_config.use_seq_parallel": True}
SPARSE = {"num-experts": 16, "moe-aux-loss-coeff": 0.01}
BIASED = {"m.moe_router_enable_expert_bias": True, "callbacks": ONLY_LOSS}
LONG_RESETS, LONG = {"reset-attention-mask": "", "seq-length": 2048}, {"m.seq_length": 2048}
"""A sequence that a compressed mask takes."""
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any], str, Outcome, str]] = {
    # style, flags, keys, the row, how it comes out, and what to change
    "ids of positions that nobody reads": (NEW, {"reset-position-ids": ""}, {}, "reset_position_ids", Outcome.HARMLESS, ""),
    "a window that both write otherwise": (NEW, {"window-size": "128,0"}, {"m.window_size": [128, 0]}, "sliding_window", Outcome.SAME, ""),
    "a window that is none": (NEW, {}, {"m.window_size": [-1, -1]}, "sliding_window", Outcome.SAME, ""),
    "another window": (
        *(NEW, {"window-size": "(127,0)"}, {"m.window_size": [128, 0]}),
        *("sliding_window", Outcome.DIFFERENT, "window_size: [127, 0]"),
    ),
    "an optimizer without bias correction": (
        *(NEW, {}, {"optimizer.type": "FusedAdamWeightDecay"}),
        "optimizer",
        Outcome.DIFFERENT,
        "optimizer.type: AdamW; optimizer.betas: [0.9, 0.95]; leave optimizer.beta1 out; leave optimizer.beta2 out",
    ),
    "a name that an older model does not read": (OLD, {}, {"m.initializer_range": 0.5}, "init_method_std", Outcome.SAME, ""),
    "a bias that nothing moves": (
        *(LATENT, {"moe-router-enable-expert-bias": ""}, BIASED),
        *("that_bias_is_moved", Outcome.DIFFERENT, MOVED),
    ),
    "handlers that make other lengths": (
        *(NEW, {}, {**OF_HANDLERS, f"{LOADER}.handler": [{"type": "take", "n": 8}, {"type": "PackingHandler", "seq_length": 256}]}),
        *("seq_length", Outcome.DIFFERENT, f"{LOADER}.handler: [{{n: 8, type: take}}, {{seq_length: 128, type: PackingHandler}}]"),
    ),
    "documents by a mask whose lengths are a column": (
        *(NEW, LONG_RESETS, LONG | {COLUMNS: ["input_ids", "labels"], "parallel.dataset_strategy": [[1, 1], [1, 1]]}),
        *("reset_attention_mask", Outcome.DIFFERENT),
        f"{LOADER}.config.create_compressed_eod_mask: True; {COLUMNS}: [input_ids, labels, actual_seq_len]; "
        "parallel.dataset_strategy: [[1, 1], [1, 1], [1, 1]]",
    ),
    "documents by a mask that nobody is fed": (
        *(OLD, LONG_RESETS, LONG | {f"{LOADER}.config.reset_attention_mask": True, COLUMNS: ["input_ids", "labels"]}),
        *("reset_attention_mask", Outcome.DIFFERENT),
        f"{LOADER}.config.create_compressed_eod_mask: True; {COLUMNS}: [input_ids, labels, actual_seq_len]",
    ),
    "no document ends": (
        *(NEW, {}, {f"{LOADER}.config.create_compressed_eod_mask": True, COLUMNS: ["input_ids", "labels", "actual_seq_len"]}),
        *("reset_attention_mask", Outcome.DIFFERENT),
        f"{LOADER}.config.create_compressed_eod_mask: False; {COLUMNS}: [input_ids, labels]",
    ),
    "a loss that the candidate's model never adds": (
        *(OLD, SPARSE, {"moe_config.expert_num": 16} | CUT),
        *("load_balancing_type", Outcome.HARMLESS, ""),
    ),
    "groups that the grouped product passes over": (
        *(OLD, SPARSE | {"moe-router-num-groups": 8, "moe-router-group-topk": 4, "moe-router-topk": 8}),
        {"m.type": "DeepseekV3Config", "moe_config.expert_num": 16, "moe_config.use_gmm": True},
        *("groups_of_experts", Outcome.DIFFERENT),
        "moe_config.n_group: 8; moe_config.topk_group: 4; moe_config.topk_method: noaux_tc; moe_config.use_gmm: False; "
        "moe_config.capacity_factor: 0.0",
    ),
    "a tokenizer that another fork patches": (
        *(OLD, {"vocab-size": None, "patch-tokenizer-type": "MixtralTokenizer"}, {"m.vocab_size": 33}),
        *("rows_of_the_embedding", Outcome.NOT_TOLD, ""),
    ),
    "a length of the schedule that only the data tell": (
        *(OLD, {"lr-decay-style": "cosine"}, {"lr_schedule.type": "CosineWithWarmUpLR", "train_dataset.data_loader.sizes": None}),
        *("lr_decay_iters", Outcome.NOT_TOLD, "lr_schedule.total_steps: 10"),
    ),
    "what a class that is not known may have by default": (
        *(OLD, {}, {"m.type": "StrangeConfig"}),
        *("normalization", Outcome.NOT_TOLD, ""),
    ),
    "a batch that the ranks do not divide": (
        *(OLD, {"global-batch-size": 6}, {"use_parallel": True, "parallel_config.data_parallel": 4}),
        *("global_batch_size", Outcome.DIFFERENT),
        "6 is no multiple of the 4 data-parallel ranks: change parallel_config.data_parallel, and the devices with it",
    ),
    "stages that lists have an entry for": (
        *(OLD, {"pipeline-model-parallel-size": 2}, {"parallel_config.pipeline_stage": 4, "m.offset": [0, 0, 0, 0]}),
        *("pipeline_stage", Outcome.ROUNDING),
        "optional: parallel_config.pipeline_stage: 2, with as many entries in model.model_config.offset; then check again, for the global "
        "batch may change with it",
    ),
    "micro-batches that would change the batch": (
        *(OLD, {"global-batch-size": 4, "data-parallel-size": 1}, {"use_parallel": True, "parallel_config.data_parallel": 4}),
        *("micro_batches_of_a_step", Outcome.ROUNDING),
        "not worth it alone: runner_config.gradient_accumulation_steps: 4; changing it alone would change global_batch_size",
    ),
    "a scaler of half precision that is not there": (NEW, {"hysteresis": 4}, {}, "hysteresis", Outcome.UNUSED, ""),
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_told_right(case: str) -> None:
    style, flags, keys, name, outcome, change = CASES[case]
    one = row(check(megatron(style, flags), mindformers(style, keys)), name)
    assert (one.outcome, to_change(one)) == (outcome, change)


def test_a_thousand_million_layers_take_no_memory() -> None:
    checklist = check(megatron(EXPERTS, {"num-layers": 1_000_000_000}), mindformers(EXPERTS, {}))
    assert row(checklist, "num_layers").outcome is Outcome.DIFFERENT
    assert row(checklist, "layers_with_experts").outcome is Outcome.NOT_TOLD


SEEDS = "seed (1234 against 42): it decides the first weights where none are loaded, and the order of data that are shuffled"
REPORTS: dict[str, tuple[tuple[str, dict[str, Any]], tuple[str, dict[str, Any]], tuple[str, ...], tuple[str, ...]]] = {
    # flags, keys, what stands in the report, and what does not
    "seeds that decide": ((OLD, {"load": None}), (OLD, {"seed": 42}), (SEEDS,), ()),
    "seeds that decide nothing": ((OLD, {}), (OLD, {"seed": 42}), (), ("seed (1234",)),
    "one line each": (
        *((OLD, {"log-progress": ""}), (OLD, {"m.type": "LlamaConfig", "m.qkv_has_bias": True, "output_dir": "x"})),
        ("not covered, reference: 1 setting (--all lists it)", "candidate: of no family of models", "settings follow it (--all)"),
        ("these do not", "log_progress"),
    ),
    "a part of no steps": ((OLD, {"lr-warmup-fraction": 0.2}), (OLD, {"lr_schedule.warmup_ratio": 0}), (" 0.2 ", " 0 "), ("None ",)),
    "a class that is gone": ((OLD, {}), (OLD, {"m.type": "InternLM2Config", "m.has_bias": False}), ("1.5 is the last that has it",), ()),
}


@pytest.mark.parametrize("case", REPORTS)
def test_a_report_says_it_in_few_lines(case: str) -> None:
    (style, flags), (other, keys), there, away = REPORTS[case]
    console = Console(file=io.StringIO(), width=200)
    render_check(check(megatron(style, flags), mindformers(other, keys)), console)
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    assert [words for words in there if words not in printed] == [] and [words for words in away if words in printed] == [], printed


def test_a_script_that_was_given_no_arguments_says_so_first(tmp_path: Path) -> None:
    (tmp_path / "train.sh").write_text("torchrun pretrain_gpt.py --num-layers $1 --lr 1e-3\n", encoding="utf-8")
    notes = check(read(str(tmp_path / "train.sh"), {}), mindformers(OLD, {})).sides[0].notes
    assert notes[0] == message("configuration.arguments_missing", script="train.sh")


def test_a_backend_of_mindspeed_is_known() -> None:
    words = "--num-layers 2 --lr 1e-3 --train-iters 8 --use-fused-rmsnorm --use-fused-swiglu"
    sides = [read_command(f"torchrun pretrain_gpt.py {words}{more}", {}) for more in ("", " --ai-framework mindspore")]
    done = check(*sides)
    assert (done.uncovered, [name for name, *_ in done.unlike]) == ([], ["ai_framework"])


def test_what_stands_in_no_file_of_the_model_is_not_sought_there() -> None:
    one = mindformers(NEW, {"pretrained_model_dir": "/nowhere", "m.seq_length": None, "lr_schedule.total_steps": None})
    named = {checked.row.id for checked in in_absent_file(check(megatron(NEW, {}), one))}
    assert named and not {"seq_length", "lr_decay_iters"} & named
