"""What is no difference is not told as one, by whatever name it goes; and what looks alike and is not is told."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from align_hooks.checklist.canonical_values import RopeWavelengths, Scaling
from align_hooks.checklist.judge import RowOutcome
from align_hooks.checklist.resolvers.data import is_blank
from align_hooks.checklist.resolvers.schedule import SCHEDULES
from align_hooks.checklist.result import CLEAN, DIFFERS, check
from align_hooks.checklist.schedules import SHAPES
from align_hooks.configuration.megatron import read_command, read_script
from align_hooks.configuration.mindformers import read_yaml
from align_hooks.messages import rendered
from checklist.exercises import DATA, NEW, OLD, checked, megatron, mindformers, row, to_change
from checklist.test_first_weights import source
from worded import ids

NONE = (RowOutcome.SAME, RowOutcome.HARMLESS, RowOutcome.UNUSED)
"""How a row comes out that is no difference."""


# ---- schedules


def schedule(kind: str, **more: Any) -> dict[str, Any]:
    """Keys of a schedule that any class takes."""
    usual = {"type": kind, "total_steps": 10, "warmup_steps": 2, "lr_end": 0.0}
    return {f"lr_schedule.{name}": value for name, value in (usual | more).items()}


@pytest.mark.parametrize("alias", SCHEDULES)
def test_another_name_of_a_schedule_is_no_other_schedule(alias: str) -> None:
    named, other = (mindformers(NEW, schedule(kind, t_max=10, t_0=5)) for kind in (SCHEDULES[alias], alias))
    found = check(named, other)
    assert (found.exit_code, found.differing, found.courses[0].same) == (CLEAN, [], True)
    assert row(found, "lr_decay_style").outcome is RowOutcome.SAME


@pytest.mark.parametrize(("style", "alias"), [("constant", "constant_with_warmup"), ("linear", "linear"), ("cosine", "cosine")])
def test_another_name_of_a_schedule_is_megatrons(style: str, alias: str) -> None:
    flags = {"lr-decay-style": style, "lr-warmup-iters": 2}
    found = checked(NEW, flags, schedule(alias))
    assert (row(found, "lr_decay_style").outcome, row(found, "constant_learning_rate").outcome) == (RowOutcome.SAME, RowOutcome.SAME)
    assert found.courses[0].same is True
    assert found.exit_code == CLEAN
    assert checked(NEW, flags | {"lr-warmup-iters": 3}, schedule(alias)).exit_code == DIFFERS


def test_the_other_names_are_those_that_mindformers_registers() -> None:
    text = source("mindformers", "core/lr/build_lr.py")
    found = re.findall(r"register_cls\(\s*(\w+), module_type=MindFormerModuleType.LR, alias=\"(\w+)\"\)", text)
    assert {alias: name for name, alias in found} == SCHEDULES
    assert set(SCHEDULES.values()) <= SHAPES.keys()


def test_no_trap_is_seen_in_another_name() -> None:
    for kind in ("cosine", "CosineWithWarmUpLR"):
        found = checked(NEW, {}, schedule(kind, warmup_steps=None))
        assert "pitfall.no_warm_up" not in ids(found.sides[1].pitfalls)
    assert "pitfall.no_warm_up" in ids(checked(NEW, {}, schedule("linear", warmup_steps=None)).sides[1].pitfalls)


# ---- lengths


EPOCHS = {"runner_config.epochs": 2, "train_dataset.data_loader.sizes": [1000, 0, 0], "lr_schedule.total_steps": -1}
SAMPLES: dict[str, Any] = {"train-iters": None, "train-samples": 2000}
COSINE = {"lr_schedule.type": "CosineWithWarmUpLR", "lr_schedule.lr_end": 0.0}


@pytest.mark.parametrize("batch", [1, 4, 8])
def test_two_epochs_of_a_thousand_samples_are_two_thousand_samples(batch: int) -> None:
    flags = SAMPLES | {"global-batch-size": batch, "micro-batch-size": batch, "lr-decay-style": "cosine"}
    found = checked(NEW, flags, EPOCHS | COSINE | {"runner_config.batch_size": batch})
    for name in ("train-samples", "train-iters", "lr_decay_iters"):
        assert row(found, name).outcome is RowOutcome.SAME, name
    assert row(found, "train-samples").reference.canonical == 2000
    assert (found.courses[0].same, found.exit_code) == (True, CLEAN)


def test_fewer_epochs_are_fewer_samples() -> None:
    found = checked(NEW, SAMPLES | {"lr-decay-style": "cosine"}, EPOCHS | COSINE | {"runner_config.epochs": 1})
    assert row(found, "train-samples").outcome is RowOutcome.HARMLESS
    assert row(found, "lr_decay_iters").outcome is RowOutcome.DIFFERENT
    assert (found.courses[0].same, found.exit_code) == (False, DIFFERS)


def test_a_warm_up_of_no_whole_number_of_steps_is_told_and_cannot_be_written() -> None:
    """Megatron-LM counts ten samples, two and a half steps of four; MindFormers takes whole steps."""
    flags = SAMPLES | {"global-batch-size": 4, "micro-batch-size": 4, "lr-warmup-samples": 10}
    keys = EPOCHS | {"runner_config.batch_size": 4}
    for steps in (2, 3):
        found = checked(NEW, flags, keys | {"lr_schedule.warmup_steps": steps})
        one = row(found, "lr_warmup_iters")
        assert (one.outcome, one.reference.canonical, one.candidate.canonical) == (RowOutcome.DIFFERENT, 2.5, steps)
        assert "warmup_steps: 2.5" not in to_change(one)
        assert found.courses[0].same is False
    whole = checked(NEW, flags | {"lr-warmup-samples": 12}, keys | {"lr_schedule.warmup_steps": 3})
    assert (row(whole, "lr_warmup_iters").outcome, whole.courses[0].same, whole.exit_code) == (RowOutcome.SAME, True, CLEAN)


# ---- bounds of Llama 3.1's scaling

LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
OTHERS: dict[str, Any] = {"low_freq_factor": 2.0, "high_freq_factor": 8.0, "original_max_position_embeddings": 4096}


def scaled(**others: Any) -> dict[str, Any]:
    """Llama 3.1's scaling as an older YAML writes it."""
    return {"m.extend_method": "LLAMA3"} | {f"m.scaling_factor.{name}": value for name, value in (LLAMA3 | others).items()}


@pytest.mark.parametrize("name", OTHERS)
def test_other_bounds_are_a_difference(name: str) -> None:
    one = row(checked(OLD, {"use-rope-scaling": ""}, scaled(**{name: OTHERS[name]})), "rope_scaling")
    assert one.outcome is RowOutcome.DIFFERENT
    assert ids(one.candidate.shown) == ["canonical_value.scaling_bounds"]
    assert f"{name}: {LLAMA3[name]:g}" in to_change(one).replace(".0", "")


@pytest.mark.parametrize("name", OTHERS)
def test_other_bounds_of_the_models_own_file_are_a_difference(tmp_path: Path, name: str) -> None:
    text = "use_legacy: False\npretrained_model_dir: .\nmodel: {model_config: {use_rope_scaling: True}}\n"
    for table, outcome in ((LLAMA3, RowOutcome.SAME), (LLAMA3 | {name: OTHERS[name]}, RowOutcome.DIFFERENT)):
        (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen3", "rope_scaling": {**table, "rope_type": "llama3"}}))
        other = read_yaml(text, "qwen3.yaml", tmp_path)
        assert row(check(megatron(NEW, {"use-rope-scaling": ""}), other), "rope_scaling").outcome is outcome


def test_mindspeed_has_arguments_for_the_bounds() -> None:
    words = "torchrun pretrain_gpt.py --num-layers 2 --use-mcore-models --moe-tp-extend-ep --rope-scaling-type llama3 --low-freq-factor 2"
    one = row(check(read_command(words, {}), mindformers(OLD, scaled(low_freq_factor=2.0))), "rope_scaling")
    assert one.reference.canonical == Scaling("llama3", 8.0, RopeWavelengths(low=2.0))
    assert one.outcome is RowOutcome.SAME


# ---- what does no harm


@pytest.mark.parametrize(
    ("path", "blank"),
    [
        *(("your data path", True), ("/path/to/data_text_document", True), ("<data>", True), ("your_data_path", True), ("xxx", True)),
        *(("/data/wiki_text_document", False), ("alpaca", False), ("0.3 /a/one 0.7 /b/two", False), ("/pathology/text_document", False)),
    ],
)
def test_a_path_that_is_to_be_filled_in_is_no_data(path: str, blank: bool) -> None:
    assert is_blank(path) is blank


def test_data_that_is_no_megatrons_is_shuffled_by_the_seed_of_the_run() -> None:
    loader = "train_dataset.data_loader"
    keys = {key: None for key in mindformers(OLD, {}).values if key.startswith(f"{DATA}.")} | {f"{loader}.type": "MindDataset"}
    reference, candidate = (mindformers(OLD, keys | {f"{loader}.dataset_dir": "/mnt/wiki", "seed": seed}) for seed in (1234, 7))
    apart = row(check(reference, candidate), "seed_of_the_data")
    assert (apart.outcome, to_change(apart)) == (RowOutcome.DIFFERENT, "seed: 1234")
    assert row(check(reference, reference), "seed_of_the_data").outcome is RowOutcome.SAME


@pytest.mark.parametrize(("version", "kind"), [("1.9", "cosine"), ("1.4", "constant")])
def test_a_section_that_is_not_there_is_filled_in_since_1_5(version: str, kind: str) -> None:
    keys = {key: None for key in mindformers(OLD, {}).values if key.startswith("lr_schedule.")} | {"optimizer.learning_rate": 1e-4}
    held = row(check(megatron(OLD, {}), mindformers(OLD, keys), mindformers=version), "lr_decay_style")
    assert rendered(held.candidate.shown) == kind


def test_the_script_says_its_defaults_where_a_variable_that_nothing_sets_may_say_more() -> None:
    done = check(read_command("python pretrain_gpt.py --num-layers 2 ${EXTRA}", {}), mindformers(OLD, {}))
    assert row(done, "beta2").outcome is RowOutcome.DIFFERENT and done.gaps


def test_a_loop_over_arguments_that_are_not_given_is_never_done() -> None:
    loop = 'for ARGUMENT in "$@"; do VALUE="${ARGUMENT:$LENGTH+1}"; export "$KEY"="$VALUE"; LR=5; done'
    script = f"LR=1e-4\n{loop}\ntorchrun pretrain_gpt.py --num-layers 2 --lr $LR\n"
    read = read_script(script, "train.sh", {})
    assert (read.values["lr"].value, read.values["lr"].unknown, read.gaps) == (1e-4, None, ())
    assert read_script(script, "train.sh", {}, ["KEY=1"]).gaps


@pytest.mark.parametrize(("command", "followed"), [("cp -t /out", True), ("-0 -n 1 rm", True), ("-I {} bash", False), ("$COMMAND", False)])
def test_a_command_that_moves_files_sets_nothing(command: str, followed: bool) -> None:
    script = f"ls | xargs {command}\ntorchrun pretrain_gpt.py --num-layers 2\n"
    assert (read_script(script, "train.sh", {}).gaps == ()) is followed
