"""The names of points, their order, and what each is made from."""

import random

from align_hooks.names import points
from align_hooks.names.points import consumers, in_order, place, sources

BLOCK = (
    *("input", "input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.query", "self_attn.key"),
    *("self_attn.value", "self_attn.core", "self_attn.o_proj", "residual", "post_attention_layernorm", "mlp.gate_proj", "mlp.up_proj"),
    *("mlp.activation", "mlp.down_proj"),
)
DENSE = (
    "model.embed_tokens",
    *(name for layer in (0, 1, 10) for name in (*(f"model.layers.{layer}.{kind}" for kind in BLOCK), f"model.layers.{layer}")),
    *("model.norm", "lm_head", "token_losses"),
)


def test_points_stand_in_the_order_of_a_forward_pass() -> None:
    shuffled = random.Random(1).sample(DENSE, len(DENSE))
    assert in_order(shuffled) == list(DENSE)


def test_every_point_but_the_first_is_made_from_points_before_it() -> None:
    made_from = sources(DENSE)
    assert made_from["model.embed_tokens"] == ()
    for index, name in enumerate(DENSE[1:], 1):
        assert made_from[name] and set(made_from[name]) <= set(DENSE[:index]), name
    assert made_from["model.layers.1.input"] == ("model.layers.0",)
    assert made_from["model.layers.10.input"] == ("model.layers.1",)
    assert made_from["model.layers.0"] == ("model.layers.0.residual", "model.layers.0.mlp.down_proj")
    assert made_from["model.norm"] == ("model.layers.10",)


def test_what_a_filter_left_out_is_passed_over() -> None:
    known = [name for name in DENSE if not name.endswith(("q_proj", "query", "input", "input_layernorm", "core"))]
    made_from = sources(known)
    assert made_from["model.layers.0.self_attn.o_proj"] == (
        "model.embed_tokens",
        "model.layers.0.self_attn.key",
        "model.layers.0.self_attn.value",
    )
    assert made_from["model.layers.1.self_attn.k_proj"] == ("model.layers.0",)


def test_the_users_of_a_point_are_the_other_way_round() -> None:
    users = consumers(sources(DENSE))
    assert users["model.layers.0.residual"] == ("model.layers.0.post_attention_layernorm", "model.layers.0")
    assert users["token_losses"] == ()
    assert sorted((name, user) for name, of_name in users.items() for user in of_name) == sorted(
        (source, name) for name, read in sources(DENSE).items() for source in read
    )


def test_experts_stand_side_by_side_and_predicting_layers_lead_to_no_norm() -> None:
    names = ["model.layers.0", *(f"model.layers.1.mlp.experts.{expert}" for expert in range(12)), "model.layers.1.mlp", "model.layers.1"]
    names += ["model.layers.2.enorm", "model.layers.2.eh_proj", "model.layers.2", "model.norm"]
    assert in_order(reversed(names)) == names
    made_from = sources(names)
    assert made_from["model.layers.1.mlp"] == tuple(f"model.layers.1.mlp.experts.{expert}" for expert in range(12))
    assert made_from["model.norm"] == ("model.layers.1",) and made_from["model.layers.2.enorm"] == ()
    assert all(points.is_of_experts(name) is ("experts" in name) for name in names)


def test_predicting_layers_read_embedded_tokens_and_normalised_hidden_states() -> None:
    """The first those of the model, each further one those of the one before it; without a norm on record, what that is made from."""
    names = [points.EMBEDDING, "model.layers.0", points.FINAL_NORM]
    names += [f"model.layers.{layer}.{kind}" for layer in (1, 2) for kind in ("enorm", "hnorm", "eh_proj", "shared_head.norm")]
    made_from = sources(names)
    assert made_from["model.layers.1.enorm"] == made_from["model.layers.2.enorm"] == (points.EMBEDDING,)
    assert made_from["model.layers.1.hnorm"] == (points.FINAL_NORM,)
    assert made_from["model.layers.2.hnorm"] == ("model.layers.1.shared_head.norm",)
    assert consumers(made_from)[points.FINAL_NORM] == ("model.layers.1.hnorm",)
    assert sources([name for name in names if name != points.FINAL_NORM])["model.layers.1.hnorm"] == ("model.layers.0",)


def test_a_frameworks_own_names_have_a_place_too() -> None:
    own = ["megatron:decoder.layers.0.input", "megatron:decoder.layers.0.cross_attention", "megatron:decoder.layers.0", "model.norm"]
    assert [place(name).layer for name in own[:3]] == [0, 0, 0]
    assert sources(own)["model.norm"] == ("megatron:decoder.layers.0",)
