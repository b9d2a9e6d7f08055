"""Configurations of public checkpoints: each is of its family, with these tensors, and is what is written of such a model."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from align_hooks.checkpoints.model import ConfiguredModel, model_of
from align_hooks.data_file import sections
from align_hooks.families.family import Decoder, RoutingConfig
from align_hooks.names.stacks import slots

FILE = Path(__file__).with_name("public.txt")
LINES = sections(FILE)
LATENT = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
OWN_NAME = {"kimi_k2": "deepseek_v3"}
"""``model_type`` of a model that is recorded as another's."""


def config(name: str) -> dict[str, Any]:
    keys = {key: json.loads(value) for key, _, value in (line.partition(": ") for line in LINES[name]) if value}
    return (config(keys.pop("like")) if "like" in keys else {}) | keys


@pytest.fixture(params=LINES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def model(name: str) -> ConfiguredModel:
    return model_of(config(name), FILE)


def test_its_tensors_are_the_familys(name: str, model: ConfiguredModel) -> None:
    wanted = {tensor: tuple(json.loads(shape)) for tensor, _, shape in (line.partition(" -> ") for line in LINES[name]) if shape}
    places = slots(wanted, model.family.stacks)
    assert wanted
    pieces = {tensor: slot.shape(wanted[slot.stack]) for tensor, slot in places.items()}
    stacks = {slot.stack for slot in places.values()}
    for tensor, shape in {tensor: shape for tensor, shape in wanted.items() if tensor not in stacks}.items() | pieces.items():
        assert model.shape(tensor) == shape, tensor
    assert all(len([one for one in places.values() if one.stack == stack]) % wanted[stack][0] == 0 for stack in stacks)
    for tensor in (line.removeprefix("no ") for line in LINES[name] if line.startswith("no ")):
        assert model.shape(tensor) is None
        assert tensor not in set(model.required())


def test_it_is_what_is_written_of_such_a_model(name: str, model: ConfiguredModel) -> None:
    given = config(name)
    written = model.family.huggingface(built(model, given))
    scaling = written.get("rope_scaling")
    written["rope_scaling"] = {key: scaling[key] for key in given["rope_scaling"]} if isinstance(scaling, Mapping) else scaling
    given["model_type"] = OWN_NAME.get(given["model_type"], given["model_type"])
    assert {key: written.get(key) for key in given} == given


def built(model: ConfiguredModel, given: Mapping[str, Any]) -> Decoder:
    """The facts of a model that Megatron-LM would build by a configuration."""
    layers, size = given["num_hidden_layers"], model.sizes["head"] or 0
    routing = RoutingConfig(
        model.experts,
        given["num_experts_per_tok"],
        tuple(layer >= given.get("first_k_dense_replace", 0) for layer in range(layers)),
        factor=given.get("routed_scaling_factor", 1.0),
        shared=model.sizes["shared_ffn"],
    )
    return Decoder(
        *(model.dims(), given["hidden_size"], layers, given["rms_norm_eps"], given["rope_theta"], given["max_position_embeddings"]),
        tied=given["tie_word_embeddings"],
        routing=routing,
        latent={key: given[key] for key in LATENT} if "kv_lora_rank" in given else None,
        predicted=given.get("num_nextn_predict_layers", 0),
        rope_scaling=given.get("rope_scaling"),
        rotary_part=given.get("partial_rotary_factor", given.get("rotary_dim", size) / size),
        normalised_heads=given.get("use_qk_norm"),
        window=given.get("sliding_window"),
        windowed=tuple(layer % 2 == 0 for layer in range(layers)),
    )
