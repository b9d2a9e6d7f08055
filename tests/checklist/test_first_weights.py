"""How far the first weights of output projections spread: what each framework does, and where it does no harm."""

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from align_hooks.checklist.canonical_values import Spread
from align_hooks.checklist.edits import Action
from align_hooks.checklist.judge import JudgedRow, RowOutcome, judge
from align_hooks.configuration.megatron import read_command
from align_hooks.configuration.values import Configuration
from align_hooks.messages import message, rendered
from checklist.exercises import BASES, EXPERTS, LATENT, NEW, OLD, megatron, mindformers

RANDOM: dict[str, Any] = {"load_checkpoint": None}
MEGATRON: dict[str, tuple[dict[str, Any], Spread]] = {
    "plain": ({}, Spread.BY_DEPTH),
    "experts": ({"num-experts": 8}, Spread.BY_DEPTH),
    "prediction of several tokens": ({"mtp-num-layers": 1}, Spread.BY_DEPTH),
    "muP divides by the width too, and so it does all others": ({"use-mup": ""}, Spread.BY_DEPTH),
    "Megatron's own older models": ({"use-legacy-models": ""}, Spread.BY_DEPTH),
    "Xavier": ({"init-method-xavier-uniform": ""}, Spread.ALIKE),
    "hybrid": ({"hybrid-layer-pattern": "MEME"}, Spread.BY_DEPTH_ONCE),
    "hybrid by its older name": ({"hybrid-override-pattern": "MEME"}, Spread.BY_DEPTH_ONCE),
    "hybrid of 0.12": ({"is-hybrid-model": ""}, Spread.BY_DEPTH_ONCE),
}
MINDFORMERS: dict[str, tuple[str, dict[str, Any], Spread]] = {
    "older": (OLD, {}, Spread.ALIKE),
    "older with experts": (OLD, {"moe_config.expert_num": 4}, Spread.ALIKE),
    "another older": (OLD, {"m.type": "ChatGLM2Config"}, Spread.ALIKE),
    "dense": (NEW, {}, Spread.BY_DEPTH),
    "experts": (EXPERTS, {}, Spread.BY_DEPTH_BUT_EXPERTS),
    "shared experts and latent attention": (LATENT, {}, Spread.BY_DEPTH_BUT_EXPERTS),
}


def first_weights(one: Configuration, other: Configuration) -> JudgedRow:
    return next(checked for checked in judge(one, other) if checked.row.id == "initial_scale_of_output_projections")


@pytest.mark.parametrize(("flags", "spread"), MEGATRON.values(), ids=MEGATRON)
def test_megatron(flags: dict[str, Any], spread: Spread) -> None:
    found = first_weights(megatron(NEW, flags), mindformers(NEW, RANDOM))
    assert found.reference.canonical is spread
    assert (found.outcome is RowOutcome.SAME) is (spread is Spread.BY_DEPTH)


@pytest.mark.parametrize(("style", "keys", "spread"), MINDFORMERS.values(), ids=MINDFORMERS)
def test_mindformers(style: str, keys: dict[str, Any], spread: Spread) -> None:
    found = first_weights(megatron(style, {}), mindformers(style, keys | RANDOM))
    assert found.candidate.canonical is spread
    assert found.outcome is (RowOutcome.SAME if spread is Spread.BY_DEPTH else RowOutcome.DIFFERENT)


def test_no_setting_makes_them_alike() -> None:
    """Neither side is told to become another model; where the other loads weights, it is told to load them too."""
    one, other = megatron(EXPERTS, {}), mindformers(EXPERTS, RANDOM)
    told = [first_weights(one, other).change, first_weights(other, one).change]
    assert [(change.action, change.key) for change in told if change is not None] == [
        (Action.COME_TO, "load_checkpoint"),
        (Action.COME_TO, "load_checkpoint"),
    ]
    assert rendered(told[0].words if told[0] is not None else "").startswith("let load_checkpoint of the candidate load")


@pytest.mark.parametrize("style", [OLD, EXPERTS, LATENT])
def test_where_both_sides_load_weights_it_does_no_harm(style: str) -> None:
    one, loads = megatron(style, {}), mindformers(style, {})
    found = first_weights(one, loads)
    assert (found.outcome, found.why) == (RowOutcome.HARMLESS, message("harmless.both_load"))
    assert first_weights(one, mindformers(style, {"load_checkpoint": ""})).outcome is RowOutcome.DIFFERENT
    assert first_weights(megatron(style, {"load": None}), loads).outcome is RowOutcome.DIFFERENT


def test_weights_with_a_spread_of_their_own_are_not_told() -> None:
    rules = {"m.param_init_std_rules": [{"target": ".*", "init_method_std": 0.1}]}
    found = first_weights(megatron(NEW, {}), mindformers(NEW, rules))
    assert (found.outcome, found.why) == (RowOutcome.UNKNOWN, message("untold.initialised_by_name", name="param_init_std_rules"))
    assert first_weights(megatron(EXPERTS, {}), mindformers(EXPERTS, rules)).outcome is RowOutcome.HARMLESS


def test_two_sides_of_one_framework_agree() -> None:
    for style in BASES:
        assert first_weights(mindformers(style, RANDOM), mindformers(style, RANDOM)).outcome is RowOutcome.SAME
        assert first_weights(megatron(style, {}), megatron(style, {"num-layers": 4})).outcome is RowOutcome.SAME


def test_of_mindspeed_it_is_megatrons() -> None:
    words = "torchrun pretrain_gpt.py --num-layers 2 --use-mcore-models --noop-layers 1 --moe-tp-extend-ep"
    found = first_weights(read_command(words, {}), mindformers(NEW, RANDOM))
    assert (found.reference.canonical, found.outcome) == (Spread.BY_DEPTH, RowOutcome.SAME)


def source(package: str, file: str) -> str:
    """A file of an installed framework, which is not imported."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"{package} is not installed")
    return Path(spec.submodule_search_locations[0], file).read_text(encoding="utf-8")


def test_what_is_read_of_the_frameworks_is_so() -> None:
    """Where a release divides in experts too, this says so."""
    scaled = r"scaled_init_method_normal\(\s*self\.init_method_std,\s*self\.num_layers"
    core, newer = source("megatron", "core/transformer/transformer_config.py"), source("mindformers", "parallel_core/transformer_config.py")
    assert re.search(scaled, core)
    assert "multiplier=2.0 if not self.is_hybrid_model else 1.0" in core
    assert re.search(scaled, newer)
    assert "output_layer_init_method" in source("megatron", "core/transformer/moe/experts.py")
    experts = source("mindformers", "parallel_core/training_graph/transformer/moe/ffn.py")
    assert "output_layer_init_method" not in experts
    assert re.search(r"self\.weight2 = Parameter\(\s*self\.init_method\(", experts)
    older = source("mindformers", "models/llama/llama_transformer.py") + source("mindformers", "modules/layers.py")
    assert "Normal(sigma=init_method_std" in older
    assert not re.search(r"num_layers\b.*sqrt|sqrt.*num_layers", older)
