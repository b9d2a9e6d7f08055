"""What a misspelt name may mean."""

import pytest

from align_hooks.names.nearest import nearest

KINDS = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.o_proj", "self_attn.core", "mlp.up_proj", "mlp.gate_proj", "input_layernorm")
NAMES = ["model.embed_tokens.weight", *(f"model.layers.{layer}.{kind}.weight" for layer in range(12) for kind in KINDS), "lm_head.weight"]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("model.layers.1.q_proj", "model.layers.1.self_attn.q_proj.weight"),
        ("layers.11.o_proj.weight", "model.layers.11.self_attn.o_proj.weight"),
        ("model.layers.3.mlp.up_prj.weight", "model.layers.3.mlp.up_proj.weight"),
        ("embed_tokens", "model.embed_tokens.weight"),
        ("head.weight", "lm_head.weight"),
    ],
)
def test_a_name_of_that_kind_in_that_layer_is_meant(written: str, meant: str) -> None:
    assert nearest(written, NAMES) == [meant]


def test_several_are_of_several_kinds() -> None:
    points = [name.removesuffix(".weight") for name in NAMES]
    found = nearest("model.layers.*.q_proj", points, 3)
    assert len(found) == 3 and found[0].endswith("self_attn.q_proj")
    assert len({name.rpartition(".")[2] for name in found}) == 3


def test_nothing_is_meant_by_what_is_like_nothing() -> None:
    assert nearest("optimizer", NAMES) == []
    assert nearest("anything", []) == []
