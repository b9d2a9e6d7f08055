"""Advice that was once wrong or incomplete: what is told now, all of it, and that nothing differs once it is written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from align_hooks.checklist.change import Action
from align_hooks.checklist.result import check
from align_hooks.configuration.mindformers import read_yaml
from align_hooks.configuration.values import Value
from align_hooks.messages import message, rendered
from checklist.exercises import LATENT, NEW, OLD, megatron, mindformers, mindformers_tree, row, to_change

LR, PARALLEL, WRAPPER = "lr_schedule", "parallel_config", "runner_wrapper"
PIPED = {"use_parallel": True, f"{PARALLEL}.data_parallel": 2, f"{PARALLEL}.pipeline_stage": 2, f"{PARALLEL}.micro_batch_num": 4}


def test_a_row_that_follows_names_the_changes_that_it_follows() -> None:
    older = {"use_legacy": True, "m.type": "LlamaConfig"}
    found = row(check(megatron(NEW, {}), mindformers(NEW, older)), "type_in_which_the_residual_is_added")
    assert to_change(found) == rendered(message("change.follows", changes="compute_dtype"))


def written(style: str, keys: dict[str, Any]) -> str:
    """The text of a MindFormers YAML."""
    return yaml.safe_dump(mindformers_tree(style, keys))


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
