"""What a YAML says is what MindFormers' own trainer builds, and names that it does not read are known to the CheckList."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from align_hooks.checklist import newer_names
from align_hooks.checklist.row import Effect
from align_hooks.checklist.tables import ROWS
from align_hooks.checklist.writable import usable
from align_hooks.configuration.mindformers import MODEL, read_yaml
from real import advice
from real.advice import FAMILIES, base, long

TRAINING = """
optimizer.betas: optimizer.beta2 = 0.95
optimizer.eps: optimizer.eps = 1.0e-8
lr_schedule.learning_rate: schedule.learning_rate = 0.001
runner_wrapper.scale_sense: wrapper.scale_sense = 1.0
runner_wrapper.use_clip_grad: wrapper.use_clip_grad = true
D.split: data.split = '1, 0, 0'
D.seed: data.random_seed = 1234
D.data_path: data.blend = [[/mnt/wiki_text_document], [1.0]]
train_dataset.data_loader.sizes: data.steps = 10
runner_config.batch_size: run.global_batch_size = 1
seed: run.seed = 1234
"""
NEWER = """
m.num_hidden_layers: transformer.num_layers = 2
m.hidden_size: transformer.hidden_size = 64
m.intermediate_size: transformer.ffn_hidden_size = 128
m.num_attention_heads: transformer.num_attention_heads = 4
m.vocab_size: network.model.vocab_size = 256
m.seq_length: transformer.seq_length = 128
m.rms_norm_eps: transformer.layernorm_epsilon = 1.0e-5
m.hidden_dropout: transformer.hidden_dropout = 0.0
"""
OF_EXPERTS = """
m.num_experts_per_tok: transformer.moe_router_topk = 2
m.moe_intermediate_size: transformer.moe_ffn_hidden_size = 96
m.routed_scaling_factor: transformer.moe_router_topk_scaling_factor = 1.0
"""
LATENT = """
m.q_lora_rank: transformer.q_lora_rank = 24
m.kv_lora_rank: transformer.kv_lora_rank = 32
m.n_routed_experts: transformer.num_moe_experts = 8
m.first_k_dense_replace: transformer.first_k_dense_replace = 1
m.rope_scaling.type: transformer.position_embedding_type = yarn
m.rope_scaling.original_max_position_embeddings: transformer.max_position_embeddings = 4096
"""
BUILT = {
    "llama": """
m.num_layers: model.num_layers = 2
m.hidden_size: model.hidden_size = 64
m.intermediate_size: model.intermediate_size = 128
m.num_heads: model.num_heads = 4
m.vocab_size: model.vocab_size = 256
m.rms_norm_eps: model.rms_norm_eps = 1.0e-5
m.init_method_std: model.init_method_std = 0.02
""",
    "qwen3": NEWER + "m.head_dim: transformer.kv_channels = 16\n",
    "qwen3_moe": NEWER + OF_EXPERTS + "m.num_experts: transformer.num_moe_experts = 8\n",
    "deepseek_v3": NEWER + OF_EXPERTS + LATENT,
    "telechat3": NEWER + "m.head_dim: transformer.kv_channels = 16\n",
    "telechat3_moe": NEWER + OF_EXPERTS + LATENT,
}
"""Family to keys that its base sets, where each shows, and the value."""


@cache
def bases() -> dict[str, dict[str, Any]]:
    """What the bases build, and one whose rates warm up."""
    asked = {family: base(family) for family in FAMILIES}
    asked["warm"] = advice.changed(base("llama"), {"lr_schedule.type": "LinearWithWarmUpLR", "lr_schedule.warmup_steps": 5})
    return dict(zip(asked, advice.read_back([advice.text(keys) for keys in asked.values()]), strict=True))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_base_is_built_with_what_it_says(family: str) -> None:
    found, keys, wrong = bases()[family], base(family), {}
    assert "refused" not in found, found["refused"]
    for line in filter(None, (TRAINING + BUILT[family]).splitlines()):
        key, _, rest = line.partition(": ")
        field, _, value = rest.partition(" = ")
        if long(key) not in keys or found["built"].get(field) != yaml.safe_load(value):
            wrong[key] = (keys.get(long(key)), field, found["built"].get(field))
    assert wrong == {}


def test_the_rates_are_those_of_the_schedule() -> None:
    rates = bases()["warm"]["built"]["schedule.rates"]
    assert len(rates) == 60
    assert rates[:7] == pytest.approx([0, 2e-4, 4e-4, 6e-4, 8e-4, 1e-3, 8e-4], abs=1e-9)


TRIED = """
m.num_layers | 3
m.num_hidden_layers | 3
m.hidden_size | 128
m.intermediate_size | 96
m.multiple_of | 32 | m.intermediate_size: null
m.ffn_dim_multiplier | 2 | m.intermediate_size: null, m.multiple_of: 32
m.num_heads | 2
m.num_attention_heads | 2
m.n_kv_heads | 2
m.num_key_value_heads | 2
m.head_dim | 32
m.sliding_window | 32
m.use_sliding_window | false | m.sliding_window: 32
m.use_sliding_window | true | m.sliding_window: 32
m.window_size | [32, 0]
m.normalization | LayerNorm
m.rms_norm_eps | 0.001
m.apply_residual_connection_post_layernorm | true
m.hidden_act | gelu
m.hidden_act | swiglu
m.gated_linear_unit | false | m.hidden_act: gelu
m.gated_linear_unit | false
m.add_bias_linear | true
m.attn_proj_has_bias | true
m.mlp_has_bias | true
m.qkv_has_bias | true
m.attention_bias | true
m.qk_layernorm | true | m.qk_layernorm: false
m.qk_layernorm | false
m.use_qk_norm | true | m.qk_layernorm: null
m.use_qk_norm | false | m.qk_layernorm: null
m.tie_word_embeddings | true
m.untie_embeddings_and_output_weights | false
m.vocab_size | 512
m.padded_vocab_size | 512
m.padded_vocab_size | 512 | m.vocab_size: null
m.max_position_embedding | 256
m.max_position_embeddings | 256 | m.rope_scaling: null, m.position_embedding_type: rope
m.extend_method | PI | m.scaling_factor: 2.0
m.extend_method | NTK | m.scaling_factor: 2.0
m.extend_method | YARN
m.position_embedding_type | none | m.rope_scaling: null
m.position_embedding_type | yarn | m.rope_scaling: null
m.position_embedding_type | rope | m.rope_scaling: null
m.rope_scaling.type | yarn | m.rope_scaling.factor: 2.0
m.rope_scaling.type | llama3 | m.rope_scaling.factor: 2.0
m.rope_scaling.type | linear | m.rope_scaling.factor: 2.0
m.rope_scaling.rope_type | yarn | m.rope_scaling.factor: 2.0, m.rope_scaling.type: null
m.rope_scaling.rope_type | llama3 | m.rope_scaling.factor: 2.0, m.rope_scaling.type: null
m.rope_scaling.rope_type | linear | m.rope_scaling.factor: 2.0, m.rope_scaling.type: null
m.rope_scaling.factor | 4.0 | m.rope_scaling.type: yarn, m.rope_scaling.factor: 2.0
m.rope_scaling.factor | 4.0 | m.rope_scaling.type: llama3, m.rope_scaling.factor: 2.0
m.rope_scaling.original_max_position_embeddings | 64 | m.rope_scaling.type: yarn, m.rope_scaling.factor: 2.0
m.rope_scaling.mscale | 0.3 | m.rope_scaling.type: yarn, m.rope_scaling.factor: 2.0
m.rope_scaling.mscale_all_dim | 0.3 | m.rope_scaling.type: yarn, m.rope_scaling.factor: 2.0
m.mscale | 0.3 | m.rope_scaling.type: yarn, m.rope_scaling.factor: 2.0, m.rope_scaling.mscale: null
m.mscale | 0.3 | m.position_embedding_type: yarn, m.rope_scaling: null
m.mscale_all_dim | 0.3 | m.rope_scaling.type: yarn, m.rope_scaling.factor: 2.0, m.rope_scaling.mscale_all_dim: null
m.mscale_all_dim | 0.3 | m.position_embedding_type: yarn, m.rope_scaling: null
m.rotary_scaling_factor | 4.0 | m.rope_scaling.type: yarn, m.rope_scaling.factor: null
m.rotary_scaling_factor | 4.0 | m.position_embedding_type: yarn, m.rope_scaling: null
m.scaling_factor | 4.0 | m.extend_method: PI
m.scaling_factor | 4.0 | m.rope_scaling.type: yarn, m.rope_scaling.factor: null
m.scaling_factor.factor | 4.0 | m.rope_scaling: null
m.use_rope_scaling | true
m.no_position_embedding | true
m.no-position-embedding | true
m.theta | 500000.0
m.rope_theta | 500000.0
m.rotary_percent | 0.5 | m.rope_scaling: null, m.position_embedding_type: rope
m.partial_rotary_factor | 0.5
m.rotary_interleaved | true
m.rope_interleave | true
m.rotary_seq_len_interpolation_factor | 2.0
m.mrope_section | [2, 2, 4]
m.init_method_std | 0.5
m.initializer_range | 0.5
m.attention_dropout | 0.25
m.hidden_dropout | 0.25
m.attention_dropout_rate | 0.25
m.hidden_dropout_rate | 0.25
m.multi_latent_attention | true
m.multi_latent_attention | false
m.q_lora_rank | 16
m.kv_lora_rank | 16
m.qk_nope_head_dim | 192
m.qk_head_dim | 192
m.qk_rope_head_dim | 32
m.qk_pos_emb_head_dim | 32
m.v_head_dim | 32
m.num_experts | 16
m.n_routed_experts | 16
m.num_moe_experts | 16
m.first_k_dense_replace | 2 | m.first_k_dense_replace: 1
m.first_k_dense_replace | 1
m.moe_layer_freq | [0, 1] | m.first_k_dense_replace: null
m.moe_layer_freq | 2 | m.first_k_dense_replace: null
m.moe_layer_freq | [0, 1] | m.first_k_dense_replace: 0
m.num_experts_per_tok | 4
m.moe_router_topk | 4
m.moe_intermediate_size | 64
m.moe_ffn_hidden_size | 64
m.moe_shared_expert_intermediate_size | 64
m.n_shared_experts | 2
m.shared_expert_num | 2
m.use_shared_expert_gating | true
m.moe_router_score_function | softmax
m.moe_router_score_function | sigmoid
m.norm_topk_prob | false
m.moe_router_pre_softmax | true
m.n_group | 4
m.n_groups | 4
m.moe_router_num_groups | 4 | m.moe_router_num_groups: 2, m.moe_router_group_topk: 2, m.n_group: null, m.topk_group: null
m.topk_group | 2 | m.n_group: 4, m.topk_group: 1
m.moe_router_group_topk | 2 | m.moe_router_num_groups: 4, m.moe_router_group_topk: 4, m.n_group: null, m.topk_group: null
m.routed_scaling_factor | 2.5
m.moe_router_topk_scaling_factor | 2.5 | m.routed_scaling_factor: null
m.moe_router_enable_expert_bias | true | m.moe_router_score_function: sigmoid
m.moe_router_bias_update_rate | 0.25 | m.moe_router_enable_expert_bias: true, m.moe_router_score_function: sigmoid
m.moe_aux_loss_coeff | 0.25
m.moe_router_load_balancing_type | gbs_aux_loss | m.moe_aux_loss_coeff: 0.25
m.moe_router_load_balancing_type | seq_aux_loss | m.moe_aux_loss_coeff: 0.25
m.moe_z_loss_coeff | 0.25
m.z_loss_factor | 0.25
m.capacity_factor | 1.5
m.moe_expert_capacity_factor | 1.5
m.moe_token_drop_policy | position
m.enable_sdrop | true
m.moe_pad_expert_input_to_capacity | true
m.router_dense_type | bfloat16
m.moe_router_dtype | bfloat16
m.moe_input_jitter_eps | 0.25
m.use_fused_ops_topkrouter | true
m.moe_router_fusion | true
m.moe_grouped_gemm | false
m.moe_grouped_gemm | true | m.moe_grouped_gemm: null
m.moe_permute_fusion | true
m.moe_shared_expert_overlap | true
m.num_nextn_predict_layers | 1
m.mtp_num_layers | 1
m.mtp_loss_factor | 0.25 | m.num_nextn_predict_layers: 1
m.mtp_loss_scaling_factor | 0.25 | m.num_nextn_predict_layers: 1
m.mtp_loss_scaling_factor | 0.25 | m.mtp_num_layers: 1
m.compute_dtype | float16
m.param_init_type | bfloat16
m.params_dtype | bfloat16
m.layernorm_compute_type | bfloat16
m.layernorm_compute_dtype | bfloat16
m.softmax_compute_type | bfloat16 | m.use_flash_attention: false
m.softmax_compute_dtype | bfloat16 | m.use_flash_attention: false
m.use_flash_attention | false | m.use_flash_attention: true
m.rotary_dtype | bfloat16
m.embedding_init_type | bfloat16
m.fp32_residual_connection | true
m.residual_dtype | float32
m.bias_swiglu_fusion | true
m.bias_swiglu_fusion | true | m.hidden_act: swiglu
m.use_fused_swiglu | true
m.apply_rope_fusion | true
m.use_fused_rope | true
m.fused_norm | false
m.fused_rms_norm | false
m.calculate_per_token_loss | true
m.seq_length | 64
m.use_eod_attn_mask_compression | true | m.seq_length: 4096, m.max_position_embeddings: 4096
"""
"""A key, a value that is not the base's, and what else is set for it to count. Left out is what one process cannot tell: what splits."""
NOT_BUILT = ("transformer.", "network.generation_config", "network.model.config.", "callbacks.MFLossMonitor.", "wrapper.total_num_layers")
"""What is converted, printed, or asked for by what splits and saves a model, and computes nothing."""


def tries(family: str) -> dict[str, list[tuple[advice.Keys, advice.Keys]]]:
    """Keys that a family may be advised, and what is tried: the keys without it and with it."""
    candidate = read_yaml(advice.text(base(family)), "x.yaml", Path())
    rows = [row for row in ROWS if row.effect is not Effect.NOTHING]
    advised = {key for row in rows for key in row.mindformers.keys if key.startswith(MODEL) and usable([key], candidate)}
    found: dict[str, list[tuple[advice.Keys, advice.Keys]]] = {}
    for line in TRIED.strip().splitlines():
        key, value, more = [*map(str.strip, line.split("|")), ""][:3]
        if long(key) in advised or key.removeprefix("m.") in newer_names.unread(family):
            with_more = advice.changed(base(family), yaml.safe_load(f"{{{more}}}"))
            found.setdefault(key, []).append((with_more, advice.changed(with_more, {key: yaml.safe_load(value)})))
    return found


@cache
def outcomes(family: str) -> dict[str, list[str]]:
    """What became of each try of a key: ``read``, ``unread``, or what MindFormers refuses it with."""
    tried = tries(family)
    asked = [advice.text(keys) for pairs in tried.values() for pair in pairs for keys in pair]
    answers = dict(zip(asked, advice.read_back(asked), strict=True))
    return {
        key: [outcome(answers[advice.text(without)], answers[advice.text(with_it)]) for without, with_it in pairs]
        for key, pairs in tried.items()
    }


def outcome(without: dict[str, Any], with_it: dict[str, Any]) -> str:
    """What a key does to what is built."""
    if "refused" in with_it:
        return str(with_it["refused"])
    if "refused" in without:
        return "read"
    before, after = without["built"], with_it["built"]
    moved = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    return "read" if any(not name.startswith(NOT_BUILT) for name in moved) else "unread"


@pytest.mark.slow
@pytest.mark.parametrize("family", newer_names.EVERY)
def test_names_that_are_not_read_are_known(family: str) -> None:
    """In both directions: of all keys that a row may advise, and of all that the table holds."""
    found = outcomes(family)
    real = {key.removeprefix("m.") for key, became in found.items() if "read" not in became}
    ours = newer_names.unread(family)
    values = {name for families, name, _ in newer_names.REFUSED_VALUES if family in families}
    known = newer_names.refused(family) | newer_names.ignored(family) | values
    assert {"not read, not known": sorted(real - ours - known), "known, and read": sorted(ours - real)} == {
        "not read, not known": [],
        "known, and read": [],
    }


@cache
def values() -> dict[tuple[str, str, object], str]:
    """What each value that is said to be refused is answered with, by family, name and value; empty where it is built."""
    asked = [(family, name, value) for families, name, value in newer_names.REFUSED_VALUES for family in families]
    found = advice.read_back([advice.text(with_value(*one)) for one in asked])
    return {one: str(answer.get("refused", "")) for one, answer in zip(asked, found, strict=True)}


def with_value(family: str, name: str, value: object) -> advice.Keys:
    """A base with one value, and with what rope_scaling must hold too."""
    scaling = {"m.rope_scaling": None, "m.rope_scaling.factor": 2.0} if name.startswith("rope_scaling.") else {}
    return advice.changed(base(family), {**scaling, f"m.{name}": value})


@pytest.mark.slow
@pytest.mark.parametrize("family", newer_names.EVERY)
def test_values_that_are_said_to_be_refused_are(family: str) -> None:
    assert {(name, value): why for (one, name, value), why in values().items() if one == family and not why} == {}
    assert newer_names.refuses(family, "bias_swiglu_fusion", True, {})
    assert not newer_names.refuses(family, "bias_swiglu_fusion", True, {"hidden_act": "swiglu"})


@pytest.mark.slow
def test_a_value_that_is_taken_with_another() -> None:
    """``bias_swiglu_fusion: True`` wants ``hidden_act: swiglu``."""
    keys = {f"m.{name}": True for name in newer_names.UNLESS} | {f"m.{name}": value for name, value in newer_names.UNLESS.values()}
    for answer in advice.read_back([advice.text(advice.changed(base(family), keys)) for family in newer_names.EVERY]):
        assert answer["built"]["transformer.hidden_act"] == "fusedswiglu"
