"""Where a tensor stands in its model, by its name."""

import pytest

from align_hooks.comparison.metrics.model_positions import KINDS, place


@pytest.mark.parametrize(
    ("name", "column", "kind"),
    [
        ("model.embed_tokens.weight", "embed", "embed_tokens"),
        ("model.layers.0.self_attn.q_proj.weight", "0", "self_attn.q_proj"),
        ("model.layers.11.self_attn.q_proj.bias", "11", "self_attn.q_proj.bias"),
        ("model.layers.3.block_sparse_moe.experts.17.w2.weight", "3", "block_sparse_moe.experts.*.w2"),
        ("model.norm.weight", "head", "norm"),
        ("lm_head.weight", "head", "lm_head"),
        ("lm_head.weight#padding", "head", "lm_head.weight#padding"),
        ("layers.9.x", "9", "x"),
        ("model.layers.99999999999999999999.x.weight", "999999", "x"),
        ("", "head", ""),
    ],
)
def test_layer_and_kind(name: str, column: str, kind: str) -> None:
    assert (place(name).column, place(name).kind) == (column, kind)


def test_the_order_is_that_of_a_forward_pass() -> None:
    names = ["model.embed_tokens.weight"]
    for layer in (0, 2, 10):
        names += [f"model.layers.{layer}.{kind}.weight" for kind in KINDS if "." in kind or "layernorm" in kind]
        names += [f"model.layers.{layer}.unheard_of.weight"]
    names += ["model.norm.weight", "lm_head.weight", "lm_head.weight#padding", "other.weight"]
    backwards = names[::-1]
    assert sorted(backwards, key=place) == names
