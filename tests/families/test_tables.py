"""Both sides' tables against the parameters of a real Hugging Face Llama."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from transformers import LlamaConfig, LlamaForCausalLM

from align_hooks.errors import RefusedRun
from align_hooks.families.llama import _intermediate_size
from align_hooks.names.blocks import Dims
from align_hooks.names.table import Table
from tables import MEGATRON_LLAMA, MINDFORMERS_LLAMA

LAYERS, HIDDEN = 3, 8
DIMS = Dims(heads=4, groups=2, head_dim=2, ffn=12, vocabulary=11, padded=11)
QKV = (DIMS.heads + 2 * DIMS.groups) * DIMS.head_dim

MEGATRON_LAYER = {
    "input_layernorm.weight": HIDDEN,
    "self_attention.linear_qkv.weight": QKV,
    "self_attention.linear_proj.weight": HIDDEN,
    "pre_mlp_layernorm.weight": HIDDEN,
    "mlp.linear_fc1.weight": 2 * DIMS.ffn,
    "mlp.linear_fc2.weight": HIDDEN,
}
MEGATRON_ENDS = {
    "embedding.word_embeddings.weight": DIMS.vocabulary,
    "decoder.final_layernorm.weight": HIDDEN,
    "output_layer.weight": DIMS.vocabulary,
}
TE_LAYER = {
    "self_attention.linear_proj.weight": HIDDEN,
    "self_attention.linear_proj._extra_state": 0,
    "self_attention.linear_qkv.layer_norm_weight": HIDDEN,
    "self_attention.linear_qkv.weight": QKV,
    "self_attention.linear_qkv._extra_state": 0,
    "mlp.linear_fc1.layer_norm_weight": HIDDEN,
    "mlp.linear_fc1.weight": 2 * DIMS.ffn,
    "mlp.linear_fc1._extra_state": 0,
    "mlp.linear_fc2.weight": HIDDEN,
    "mlp.linear_fc2._extra_state": 0,
}
TE_ENDS = MEGATRON_ENDS | {"output_layer._extra_state": 0}
MINDFORMERS_LAYER = {
    "attention_norm.weight": HIDDEN,
    "attention.wq.weight": DIMS.heads * DIMS.head_dim,
    "attention.wk.weight": DIMS.groups * DIMS.head_dim,
    "attention.wv.weight": DIMS.groups * DIMS.head_dim,
    "attention.wo.weight": HIDDEN,
    "ffn_norm.weight": HIDDEN,
    "feed_forward.w1.weight": DIMS.ffn,
    "feed_forward.w3.weight": DIMS.ffn,
    "feed_forward.w2.weight": HIDDEN,
}
CONCAT_LAYER = {
    "attention_norm.weight": HIDDEN,
    "attention.w_qkv.weight": QKV,
    "attention.wo.weight": HIDDEN,
    "ffn_norm.weight": HIDDEN,
    "feed_forward.w_gate_hidden.weight": 2 * DIMS.ffn,
    "feed_forward.w2.weight": HIDDEN,
}
MINDFORMERS_ENDS = {
    "model.tok_embeddings.embedding_weight": DIMS.vocabulary,
    "model.norm_out.weight": HIDDEN,
    "lm_head.weight": DIMS.vocabulary,
}
MODELS = {
    "Megatron, local spec": (MEGATRON_LLAMA, MEGATRON_ENDS, "decoder.layers", MEGATRON_LAYER),
    "Megatron, Transformer Engine": (MEGATRON_LLAMA, TE_ENDS, "decoder.layers", TE_LAYER),
    "MindFormers": (MINDFORMERS_LLAMA, MINDFORMERS_ENDS, "model.layers", MINDFORMERS_LAYER),
    "MindFormers, qkv_concat": (MINDFORMERS_LLAMA, MINDFORMERS_ENDS, "model.layers", CONCAT_LAYER),
}


@pytest.fixture(scope="module")
def huggingface() -> dict[str, np.ndarray]:
    config = LlamaConfig(
        hidden_size=HIDDEN,
        intermediate_size=DIMS.ffn,
        num_hidden_layers=LAYERS,
        num_attention_heads=DIMS.heads,
        num_key_value_heads=DIMS.groups,
        head_dim=DIMS.head_dim,
        vocab_size=DIMS.vocabulary,
        max_position_embeddings=16,
        tie_word_embeddings=False,
    )
    return {name: tensor.numpy() for name, tensor in LlamaForCausalLM(config).state_dict().items()}


def natives(ends: dict[str, int], prefix: str, layer: dict[str, int], layers: int = LAYERS) -> dict[str, int]:
    """Every native name of a model to its rows."""
    return ends | {f"{prefix}.{number}.{name}": rows for number in range(layers) for name, rows in layer.items()}


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
def test_a_whole_model_maps_to_exactly_hugging_faces_names_and_shapes(model: tuple, huggingface: dict[str, np.ndarray]) -> None:
    table, *rest = model
    pieces: list[str] = []
    for native, rows in natives(*rest).items():
        fused = table.fused(native, (rows,), DIMS)
        if fused is not None:
            pieces += fused.pieces
            whole = fused.join(huggingface)
            assert len(whole) == rows
            for name, piece in fused.split(whole):
                np.testing.assert_array_equal(piece, huggingface[name], strict=True)
    assert sorted(pieces) == sorted(huggingface)


def test_only_extra_state_of_transformer_engine_is_no_parameter() -> None:
    none = [
        name for name, rows in natives(TE_ENDS, "decoder.layers", TE_LAYER).items() if MEGATRON_LLAMA.fused(name, (rows,), DIMS) is None
    ]
    assert len(none) == 1 + 4 * LAYERS
    assert all(name.endswith("._extra_state") for name in none)


def test_the_two_norms_have_one_name_with_both_layer_specs() -> None:
    names = [
        ("input_layernorm.weight", "self_attention.linear_qkv.layer_norm_weight"),
        ("pre_mlp_layernorm.weight", "mlp.linear_fc1.layer_norm_weight"),
    ]
    for pair in names:
        local, engine = (MEGATRON_LLAMA.fused(f"decoder.layers.1.{name}", (HIDDEN,), DIMS) for name in pair)
        assert local is not None
        assert engine is not None
        assert local.pieces == engine.pieces


def test_both_sides_meet_in_the_same_tensors(huggingface: dict[str, np.ndarray]) -> None:
    megatron = MEGATRON_LLAMA.fused("decoder.layers.2.self_attention.linear_qkv.weight", (QKV,), DIMS)
    mindformers = MINDFORMERS_LLAMA.fused("model.layers.2.attention.w_qkv.weight", (QKV,), DIMS)
    assert megatron is not None
    assert mindformers is not None
    assert dict(megatron.split(megatron.join(huggingface))).keys() == dict(mindformers.split(mindformers.join(huggingface))).keys()


def test_gate_and_up_are_one_after_the_other_in_megatron_and_row_by_row_in_mindformers(huggingface: dict[str, np.ndarray]) -> None:
    megatron = MEGATRON_LLAMA.fused("decoder.layers.0.mlp.linear_fc1.weight", (2 * DIMS.ffn,), DIMS)
    mindformers = MINDFORMERS_LLAMA.fused("model.layers.0.feed_forward.w_gate_hidden.weight", (2 * DIMS.ffn,), DIMS)
    assert megatron is not None
    assert mindformers is not None
    gate, up = (huggingface[f"model.layers.0.mlp.{name}_proj.weight"] for name in ("gate", "up"))
    np.testing.assert_array_equal(megatron.join(huggingface), np.concatenate([gate, up]))
    np.testing.assert_array_equal(mindformers.join(huggingface)[0::2], gate)
    np.testing.assert_array_equal(mindformers.join(huggingface)[1::2], up)


@pytest.mark.parametrize("table", [MEGATRON_LLAMA, MINDFORMERS_LLAMA], ids=["Megatron", "MindFormers"])
def test_fused_attention_stands_group_by_group_on_both_sides(table: Table, huggingface: dict[str, np.ndarray]) -> None:
    native = {"Megatron": "decoder.layers.1.self_attention.linear_qkv.weight", "MindFormers": "model.layers.1.attention.w_qkv.weight"}
    fused = table.fused(native[table.framework], (QKV,), DIMS)
    assert fused is not None
    query, key, value = (huggingface[f"model.layers.1.self_attn.{name}_proj.weight"] for name in "qkv")
    groups = [
        part for group in (0, 1) for part in (query[4 * group : 4 * group + 4], *(rows[2 * group : 2 * group + 2] for rows in (key, value)))
    ]
    np.testing.assert_array_equal(fused.join(huggingface), np.concatenate(groups))


@pytest.mark.parametrize(
    ("table", "native"),
    [
        (MEGATRON_LLAMA, "decoder.layers.0.mlp.router.expert_bias"),
        (MEGATRON_LLAMA, "decoder.layers.0.self_attention.linear_qkv.bias"),
        (MEGATRON_LLAMA, "decoder.layers.x.mlp.linear_fc2.weight"),
        (MEGATRON_LLAMA, "module.output_layer.weight"),
        (MEGATRON_LLAMA, "output_layer.weight2"),
        (MEGATRON_LLAMA, "outputXlayer.weight"),
        (MINDFORMERS_LLAMA, "model.layers.0.attention.wq.bias"),
        (MINDFORMERS_LLAMA, "decoder.layers.0.mlp.linear_fc2.weight"),
        (MINDFORMERS_LLAMA, "adam_m.lm_head.weight"),
    ],
)
def test_an_unknown_name_is_refused_by_name(table: Table, native: str) -> None:
    with pytest.raises(RefusedRun) as caught:
        table.fused(native, (8,), DIMS)
    assert f"{table.framework} parameter {native!r} has no canonical name" in str(caught.value)


@pytest.mark.parametrize(
    ("table", "native", "name"),
    [
        (MEGATRON_LLAMA, "embedding.word_embeddings.weight", "model.embed_tokens.weight"),
        (MEGATRON_LLAMA, "output_layer.weight", "lm_head.weight"),
        (MINDFORMERS_LLAMA, "model.tok_embeddings.embedding_weight", "model.embed_tokens.weight"),
        (MINDFORMERS_LLAMA, "lm_head.weight", "lm_head.weight"),
    ],
)
def test_padded_vocabulary_rows_are_a_piece_of_their_own(table: Table, native: str, name: str) -> None:
    padded = Dims(heads=4, groups=2, head_dim=2, ffn=12, vocabulary=11, padded=16)
    fused = table.fused(native, (16,), padded)
    assert fused is not None
    assert {piece: tensor.tolist() for piece, tensor in fused.split(np.arange(16))} == {
        name: list(range(11)),
        f"{name}#padding": [11, 12, 13, 14, 15],
    }


def test_a_vocabulary_that_fits_has_no_padding() -> None:
    fused = MEGATRON_LLAMA.fused("output_layer.weight", (11,), DIMS)
    assert fused is not None
    assert fused.pieces == ("lm_head.weight",)


def test_a_pipeline_stage_counts_layers_over_the_whole_model() -> None:
    fused = MEGATRON_LLAMA.fused("decoder.layers.1.mlp.linear_fc1.weight", (24,), DIMS, first_layer=10)
    assert fused is not None
    assert fused.native == "decoder.layers.1.mlp.linear_fc1.weight"
    assert fused.pieces == ("model.layers.11.mlp.gate_proj.weight", "model.layers.11.mlp.up_proj.weight")


@pytest.mark.parametrize("native", ["self_attention.linear_qkv.weight", "mlp.linear_fc1.weight"])
def test_a_fused_parameter_of_another_size_is_refused(native: str) -> None:
    with pytest.raises(RefusedRun, match="does not have the layout"):
        MEGATRON_LLAMA.fused(f"decoder.layers.0.{native}", (20,), DIMS)


def test_every_rule_has_a_name_of_its_own() -> None:
    for table in (MEGATRON_LLAMA, MINDFORMERS_LLAMA):
        assert len({rule.native for rule in table.rules}) == len(table.rules)


@pytest.mark.parametrize(
    ("said", "hidden", "multiple", "factor", "size"),
    [(352, 64, 256, None, 352), (None, 4096, 256, None, 11008), (None, 4096, 1024, 1.3, 14336)],  # as written, Llama 2 7B, Llama 3 8B
)
def test_the_feed_forward_size_of_an_older_llama(said: int | None, hidden: int, multiple: int, factor: float | None, size: int) -> None:
    config = SimpleNamespace(intermediate_size=said, hidden_size=hidden, multiple_of=multiple, ffn_dim_multiplier=factor)
    assert _intermediate_size(config) == size
