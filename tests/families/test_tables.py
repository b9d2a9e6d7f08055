"""Both sides' tables against the parameters of a real Hugging Face Llama."""

from types import SimpleNamespace

import numpy as np
import pytest
from msgspec.structs import replace
from transformers import LlamaConfig, LlamaForCausalLM

from align_hooks.errors import RefusedRun
from align_hooks.families.llama import _intermediate_size
from align_hooks.names.blocks import Dims
from align_hooks.names.table import NameTable
from tables import MEGATRON_LLAMA, MINDFORMERS_LLAMA

LAYERS, HIDDEN = 3, 8
DIMS = Dims(heads=4, groups=2, head_dim=2, ffn=12, vocabulary=11, padded=11)
QKV = (DIMS.heads + 2 * DIMS.groups) * DIMS.head_dim

BEHIND = ("self_attention.linear_proj.weight", "mlp.linear_fc2.weight")
NORMS = ("input_layernorm.weight", "pre_mlp_layernorm.weight")
NORMS_IN_LINEAR = ("self_attention.linear_qkv.layer_norm_weight", "mlp.linear_fc1.layer_norm_weight")
"""The same in Transformer Engine, where a norm is a part of the linear layer behind it."""
FUSED = {"self_attention.linear_qkv.weight": QKV, "mlp.linear_fc1.weight": 2 * DIMS.ffn}
EXTRA_STATE = [name.replace(".weight", "._extra_state") for name in (*BEHIND, *FUSED)]
MEGATRON_LAYER = dict.fromkeys((*NORMS, *BEHIND), HIDDEN) | FUSED
TE_LAYER = dict.fromkeys((*NORMS_IN_LINEAR, *BEHIND), HIDDEN) | FUSED | dict.fromkeys(EXTRA_STATE, 0)
MEGATRON_ENDS = {
    "embedding.word_embeddings.weight": DIMS.vocabulary,
    "decoder.final_layernorm.weight": HIDDEN,
    "output_layer.weight": DIMS.vocabulary,
}
TE_ENDS = MEGATRON_ENDS | {"output_layer._extra_state": 0}
BESIDE = dict.fromkeys(("attention_norm.weight", "attention.wo.weight", "ffn_norm.weight", "feed_forward.w2.weight"), HIDDEN)
MINDFORMERS_LAYER = {
    **BESIDE,
    **{"attention.wq.weight": DIMS.heads * DIMS.head_dim},
    **dict.fromkeys(("attention.wk.weight", "attention.wv.weight"), DIMS.groups * DIMS.head_dim),
    **dict.fromkeys(("feed_forward.w1.weight", "feed_forward.w3.weight"), DIMS.ffn),
}
CONCAT_LAYER = {**BESIDE, "attention.w_qkv.weight": QKV, "feed_forward.w_gate_hidden.weight": 2 * DIMS.ffn}
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
    sizes = {"hidden_size": HIDDEN, "intermediate_size": DIMS.ffn, "num_hidden_layers": LAYERS, "vocab_size": DIMS.vocabulary}
    heads = {"num_attention_heads": DIMS.heads, "num_key_value_heads": DIMS.groups, "head_dim": DIMS.head_dim}
    config = LlamaConfig(**sizes, **heads, max_position_embeddings=16, tie_word_embeddings=False)
    return {name: tensor.numpy() for name, tensor in LlamaForCausalLM(config).state_dict().items()}


@pytest.mark.parametrize(("table", "ends", "prefix", "layer"), MODELS.values(), ids=MODELS)
def test_a_whole_model_maps_to_exactly_hugging_faces_names_and_shapes(
    table: NameTable, ends: dict[str, int], prefix: str, layer: dict[str, int], huggingface: dict[str, np.ndarray]
) -> None:
    """And what of it is no parameter is extra state of Transformer Engine."""
    natives = ends | {f"{prefix}.{number}.{name}": rows for number in range(LAYERS) for name, rows in layer.items()}
    pieces: list[str] = []
    for native, rows in natives.items():
        fused = table.fused(native, (rows,), DIMS)
        assert (fused is None) is native.endswith("._extra_state")
        if fused is not None:
            pieces += fused.pieces
            whole = fused.join(huggingface)
            assert len(whole) == rows
            for name, piece in fused.split(whole):
                np.testing.assert_array_equal(piece, huggingface[name], strict=True)
    assert sorted(pieces) == sorted(huggingface)


@pytest.mark.parametrize("pair", [*zip(NORMS, NORMS_IN_LINEAR, strict=True)])
def test_the_two_norms_have_one_name_with_both_layer_specs(pair: tuple[str, str]) -> None:
    local, engine = (MEGATRON_LLAMA.fused(f"decoder.layers.1.{name}", (HIDDEN,), DIMS) for name in pair)
    assert local.pieces == engine.pieces


def test_both_sides_meet_in_the_same_tensors(huggingface: dict[str, np.ndarray]) -> None:
    megatron = MEGATRON_LLAMA.fused("decoder.layers.2.self_attention.linear_qkv.weight", (QKV,), DIMS)
    mindformers = MINDFORMERS_LLAMA.fused("model.layers.2.attention.w_qkv.weight", (QKV,), DIMS)
    assert dict(megatron.split(megatron.join(huggingface))).keys() == dict(mindformers.split(mindformers.join(huggingface))).keys()


def test_gate_and_up_are_one_after_the_other_in_megatron_and_row_by_row_in_mindformers(huggingface: dict[str, np.ndarray]) -> None:
    megatron = MEGATRON_LLAMA.fused("decoder.layers.0.mlp.linear_fc1.weight", (2 * DIMS.ffn,), DIMS)
    mindformers = MINDFORMERS_LLAMA.fused("model.layers.0.feed_forward.w_gate_hidden.weight", (2 * DIMS.ffn,), DIMS)
    gate, up = (huggingface[f"model.layers.0.mlp.{name}_proj.weight"] for name in ("gate", "up"))
    np.testing.assert_array_equal(megatron.join(huggingface), np.concatenate([gate, up]))
    np.testing.assert_array_equal(mindformers.join(huggingface)[0::2], gate)
    np.testing.assert_array_equal(mindformers.join(huggingface)[1::2], up)


@pytest.mark.parametrize(
    ("table", "native"),
    [(MEGATRON_LLAMA, "decoder.layers.1.self_attention.linear_qkv.weight"), (MINDFORMERS_LLAMA, "model.layers.1.attention.w_qkv.weight")],
    ids=["Megatron", "MindFormers"],
)
def test_fused_attention_stands_group_by_group_on_both_sides(table: NameTable, native: str, huggingface: dict[str, np.ndarray]) -> None:
    query, key, value = (huggingface[f"model.layers.1.self_attn.{name}_proj.weight"] for name in "qkv")
    groups = [part for at in (0, 2) for part in (query[2 * at : 2 * at + 4], key[at : at + 2], value[at : at + 2])]
    np.testing.assert_array_equal(table.fused(native, (QKV,), DIMS).join(huggingface), np.concatenate(groups))


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
def test_an_unknown_name_is_refused_by_name(table: NameTable, native: str) -> None:
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
def test_padded_vocabulary_rows_are_a_piece_of_their_own(table: NameTable, native: str, name: str) -> None:
    fused = table.fused(native, (16,), replace(DIMS, padded=16))
    assert {piece: tensor.tolist() for piece, tensor in fused.split(np.arange(16))} == {
        name: list(range(11)),
        f"{name}#padding": [11, 12, 13, 14, 15],
    }


def test_a_vocabulary_that_fits_has_no_padding() -> None:
    assert MEGATRON_LLAMA.fused("output_layer.weight", (11,), DIMS).pieces == ("lm_head.weight",)


def test_a_pipeline_stage_counts_layers_over_the_whole_model() -> None:
    fused = MEGATRON_LLAMA.fused("decoder.layers.1.mlp.linear_fc1.weight", (24,), DIMS, first_layer=10)
    assert fused.native == "decoder.layers.1.mlp.linear_fc1.weight"
    assert fused.pieces == ("model.layers.11.mlp.gate_proj.weight", "model.layers.11.mlp.up_proj.weight")


@pytest.mark.parametrize("native", FUSED)
def test_a_fused_parameter_of_another_size_is_refused(native: str) -> None:
    with pytest.raises(RefusedRun, match="does not have the layout"):
        MEGATRON_LLAMA.fused(f"decoder.layers.0.{native}", (20,), DIMS)


@pytest.mark.parametrize(
    ("said", "hidden", "multiple", "factor", "size"),
    [(352, 64, 256, None, 352), (None, 4096, 256, None, 11008), (None, 4096, 1024, 1.3, 14336)],  # as written, Llama 2 7B, Llama 3 8B
)
def test_the_feed_forward_size_of_an_older_llama(said: int | None, hidden: int, multiple: int, factor: float | None, size: int) -> None:
    config = SimpleNamespace(intermediate_size=said, hidden_size=hidden, multiple_of=multiple, ffn_dim_multiplier=factor)
    assert _intermediate_size(config) == size
