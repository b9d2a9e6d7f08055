"""What a framework refuses is no clean check, and settings that only several edits bring together are written together."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from align_hooks.checklist.canonical_values import UNSET
from align_hooks.checklist.fix import fixed
from align_hooks.checklist.judge import RowOutcome
from align_hooks.checklist.result import CLEAN, DIFFERS, check
from align_hooks.configuration.megatron import read_command
from align_hooks.configuration.mindformers import read_yaml
from align_hooks.configuration.values import ConfigurationError
from align_hooks.configuration.yaml_edits import with_settings
from checklist.exercises import EXPERTS, LATENT, NEW, OLD, megatron, mindformers, mindformers_tree, row

LR, DATA, MODEL = "lr_schedule", "train_dataset.data_loader", "model.model_config"
APART: dict[str, Any] = {"optimizer.betas": None, "optimizer.beta1": 0.9, "optimizer.beta2": 0.95}
REFUSED: list[tuple[str, dict[str, Any], str, dict[str, Any]]] = [
    (OLD, {"optimizer.weight_decay": "0.1"}, "pitfall.text_to_yaml", {"optimizer.weight_decay": 0.1}),
    (OLD, {f"{LR}.learning_rate": "1e-3"}, "pitfall.text_to_yaml", {f"{LR}.learning_rate": 0.001}),
    (OLD, {"optimizer.betas": ["0.9", 0.95]}, "pitfall.text_to_yaml", {"optimizer.betas": [0.9, 0.95]}),
    (OLD, {"optimizer.betas": ["0.9 #", 0.95]}, "pitfall.no_number", {"optimizer.betas": [0.9, 0.95]}),
    (OLD, {"m.rms_norm_eps": "1e-5"}, "pitfall.text_to_yaml", {f"{MODEL}.rms_norm_eps": 1e-5}),
    (OLD, {"m.num_layers": "2"}, "pitfall.text_to_yaml", {f"{MODEL}.num_layers": 2}),
    (OLD, {f"{LR}.warmup_steps": 0.2}, "pitfall.no_integer", {f"{LR}.warmup_steps": 0}),
    (NEW, {"m.hidden_dropout": 0}, "pitfall.no_float", {f"{MODEL}.hidden_dropout": 0.0}),
    (EXPERTS, {"m.moe_grouped_gemm": False}, "pitfall.no_other_product", {f"{MODEL}.moe_grouped_gemm": True}),
    (EXPERTS, {"m.rotary_base": 10000}, "pitfall.refused", {f"{MODEL}.rope_theta": 10000, f"{MODEL}.rotary_base": UNSET}),
    (EXPERTS, {"m.rotary_base": 10000, "m.rope_theta": 10000.0}, "pitfall.refused", {f"{MODEL}.rotary_base": UNSET}),
    (OLD, APART, "pitfall.betas", {"optimizer.betas": [0.9, 0.95], "optimizer.beta1": UNSET, "optimizer.beta2": UNSET}),
    (OLD, {"optimizer.beta2": 0.95}, "pitfall.betas", {"optimizer.beta2": UNSET}),
    (
        EXPERTS,
        {"m.num_layers": 2, "m.num_hidden_layers": None},
        "pitfall.refused",
        {f"{MODEL}.num_hidden_layers": 2, f"{MODEL}.num_layers": UNSET},
    ),
]
"""A base, the keys on it, the trap, and what is written; UNSET takes a key out."""


@pytest.mark.parametrize(("style", "keys", "pitfall", "edits"), REFUSED, ids=lambda value: str(value)[:40])
def test_what_is_refused_is_never_clean_and_is_mended(
    style: str, keys: dict[str, Any], pitfall: str, edits: dict[str, Any], tmp_path: Path
) -> None:
    file = tmp_path / "candidate.yaml"
    file.write_text(yaml.safe_dump(mindformers_tree(style, keys)))
    before = check(megatron(style, {}), read_yaml(file.read_text(), file.name, tmp_path))
    assert ([refusal.text.id for refusal in before.sides[1].refusals], before.exit_code) == ([pitfall], DIFFERS)
    written = {edit.key: edit.value for edit in before.edits}
    assert {key: (written[key], type(written[key])) for key in edits} == {key: (value, type(value)) for key, value in edits.items()}
    mended = fixed(str(file), before)
    after = check(megatron(style, {}), mended.configuration)
    assert (after.sides[1].refusals, after.exit_code) == ((), CLEAN)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a: 1\nb: 2\n", "a: 1\n"),
        ("b: 2\na: 1\n", "a: 1\n"),
        ("a: 1\nb:\n  - x\n  - y\nc: 3\n", "a: 1\nc: 3\n"),
        ("a: 1\r\nb: 2  # two\r\nc: 3\r\n", "a: 1\r\nc: 3\r\n"),
        ("a: &x 1\nb: *x\nc: 3\n", "a: &x 1\nc: 3\n"),
    ],
)
def test_a_key_is_taken_out_with_its_lines(before: str, after: str) -> None:
    assert with_settings(before, "x.yaml", {"b": None}) == after


@pytest.mark.parametrize("text", ["{a: 1, b: 2}\n", "a: 1\n"])
def test_a_key_that_stands_in_no_line_of_its_own_is_left_to_the_reader(text: str) -> None:
    with pytest.raises(ConfigurationError, match="take it out by hand"):
        with_settings(text, "x.yaml", {"b": None})


@pytest.mark.parametrize(("more", "outcome"), [("", RowOutcome.DIFFERENT), (" --no-shuffle", RowOutcome.SAME)])
def test_instructions_that_mindspeed_llm_shuffles(more: str, outcome: RowOutcome) -> None:
    reference = read_command(f"torchrun posttrain_gpt.py --num-layers 2 --lr 1e-3 --stage sft --is-instruction-dataset{more}", {})
    keys = dict.fromkeys(f"{DATA}.config.{key}" for key in ("split", "seed", "data_path"))
    keys |= {f"{DATA}.type": "MindDataset", f"{DATA}.shuffle": False}
    assert row(check(reference, mindformers(OLD, keys)), "shuffle").outcome is outcome


@pytest.mark.parametrize(("version", "held"), [("0.13.0", 1.0), ("0.14.0", 0.0), ("", 0.0)])
def test_a_default_of_megatron_by_its_version(version: str, held: float) -> None:
    result = check(megatron(LATENT, {"mscale-all-dim": None}), mindformers(LATENT, {}), megatron=version)
    assert row(result, "mscale_all_dim").reference.canonical == held
