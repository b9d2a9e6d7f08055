"""Names that MindFormers 1.9's newer models do not take: what it passes over, what it refuses, and what to write instead.

1.6 to 1.8 read nearly all of them, and so do the guide and old YAML files. Which is which depends on the family, for Qwen3's classes
convert their configuration twice; tests build every family with every name.
"""

from __future__ import annotations

from collections.abc import Mapping

from align_hooks.configuration.values import Setting
from align_hooks.messages import Argument, message

NUM_EXPERTS = message("instead.num_experts", name="num_experts", other="n_routed_experts")
IGNORED: Mapping[str, Argument] = {
    "num_heads": "num_attention_heads",
    "n_kv_heads": "num_key_value_heads",
    "theta": "rope_theta",
    "param_init_type": "params_dtype",
    "qkv_has_bias": "attention_bias",
    "expert_num": NUM_EXPERTS,
    "num_experts_chosen": "num_experts_per_tok",
    "use_gating_sigmoid": "moe_router_score_function",
    "scoring_func": "moe_router_score_function",
    "balance_via_topk_bias": "moe_router_enable_expert_bias",
    "topk_bias_update_rate": "moe_router_bias_update_rate",
    "mtp_depth": "num_nextn_predict_layers",
    "aux_loss_alpha": "moe_aux_loss_coeff",
    "use_gmm": "moe_grouped_gemm",
    "use_fused_rope": "apply_rope_fusion",
    "use_fused_swiglu": "bias_swiglu_fusion",
    "use_fused_ops_permute": "moe_permute_fusion",
    "layernorm_compute_type": "layernorm_compute_dtype",
    "softmax_compute_type": "softmax_compute_dtype",
    "extend_method": "position_embedding_type",
    "scaling_factor": message("instead.either", name="rotary_scaling_factor", other="rope_scaling.factor"),
    "router_aux_loss_coef": "moe_aux_loss_coeff",
    "decoder_sparse_step": "moe_layer_freq",
    "mlp_only_layers": "moe_layer_freq",
    "router_dense_type": "moe_router_dtype",
}
"""Passed over with a warning, or without one, and what to write instead."""
READ_BY = {"router_dense_type": ("qwen3_moe", "telechat3_moe")}
"""Families that do read what the others pass over."""

INSTEAD: Mapping[str, Argument] = {
    **IGNORED,
    "num_layers": "num_hidden_layers",
    "rotary_base": "rope_theta",
    "ffn_hidden_size": "intermediate_size",
    "layernorm_epsilon": "rms_norm_eps",
    "moe_router_topk": "num_experts_per_tok",
    "num_query_groups": "num_key_value_heads",
    "init_method_std": "initializer_range",
    "add_qkv_bias": "attention_bias",
    "kv_channels": "head_dim",
    "moe_ffn_hidden_size": "moe_intermediate_size",
    "num_moe_experts": NUM_EXPERTS,
    "n_routed_experts": "num_experts",
    "qk_head_dim": "qk_nope_head_dim",
    "qk_pos_emb_head_dim": "qk_rope_head_dim",
    "moe_router_group_topk": "topk_group",
    "moe_router_num_groups": "n_group",
    "moe_router_topk_scaling_factor": "routed_scaling_factor",
    "mtp_num_layers": "num_nextn_predict_layers",
    "shared_expert_num": "n_shared_experts",
    "attention_dropout_rate": "attention_dropout",
    "hidden_dropout_rate": "hidden_dropout",
    "max_position_embedding": "max_position_embeddings",
    "padded_vocab_size": "vocab_size",
    "residual_dtype": "fp32_residual_connection",
    "fused_rms_norm": "fused_norm",
    "layer_norm_eps": "rms_norm_eps",
    "layer_norm_epsilon": "rms_norm_eps",
    "multi_query_group_num": "num_key_value_heads",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_embed": "hidden_size",
}
"""What to write instead of a name that is refused, where there is anything."""

EVERY = ("qwen3", "qwen3_moe", "deepseek_v3", "telechat3", "telechat3_moe")
"""The families that 1.9 trains."""
QWEN3 = ("qwen3", "qwen3_moe")
LATENT = ("deepseek_v3", "telechat3_moe")
WITH_EXPERTS = ("qwen3_moe", "deepseek_v3", "telechat3_moe")
REFUSED: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (EVERY, ("num_layers", "rotary_base", "ffn_hidden_size", "layernorm_epsilon", "num_query_groups", "init_method_std", "add_qkv_bias")),
    (EVERY, ("expert_tensor_parallel_size",)),
    (WITH_EXPERTS, ("moe_ffn_hidden_size", "moe_router_topk", "num_moe_experts")),
    (LATENT, ("moe_router_group_topk", "moe_router_num_groups", "moe_router_topk_scaling_factor", "mtp_num_layers", "shared_expert_num")),
    (("deepseek_v3",), ("qk_head_dim", "qk_pos_emb_head_dim")),
    (("qwen3", "telechat3"), ("kv_channels",)),
    (
        QWEN3,
        ("num_heads", "n_kv_heads", "theta", "qkv_has_bias", "aux_loss_alpha", "use_fused_swiglu", "extend_method", "n_layer", "n_head"),
    ),
    (QWEN3, ("layernorm_compute_type", "softmax_compute_type", "attention_dropout_rate", "hidden_dropout_rate", "residual_dtype")),
    (QWEN3, ("attn_proj_has_bias", "mlp_has_bias", "embedding_init_type", "fused_rms_norm", "layer_norm_eps", "layer_norm_epsilon")),
    (QWEN3, ("max_position_embedding", "moe_input_jitter_eps", "moe_pad_expert_input_to_capacity", "moe_per_layer_logging", "n_embed")),
    (QWEN3, ("mrope_section", "multi_query_group_num", "n_groups", "no_position_embedding", "padded_vocab_size", "rope_interleave")),
    (QWEN3, ("routing_policy", "use_gqa", "expand_ratio", "rope_ratio")),
    (("qwen3",), ("router_aux_loss_coef", "decoder_sparse_step", "mlp_only_layers")),
    (("qwen3_moe",), ("balance_via_topk_bias", "expert_num", "n_routed_experts", "num_experts_chosen", "scoring_func")),
    (("qwen3_moe",), ("use_gating_sigmoid",)),
)
"""Families, and the names whose presence ends their training before it begins."""


DENSE = ("qwen3", "telechat3")
TELECHAT3 = ("telechat3", "telechat3_moe")
PLAIN_ATTENTION = ("qwen3", "qwen3_moe", "telechat3")
WITHOUT_EFFECT: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (EVERY, ("multiple_of", "ffn_dim_multiplier", "sliding_window", "use_sliding_window", "use_qk_norm", "calculate_per_token_loss")),
    (EVERY, ("untie_embeddings_and_output_weights", "softmax_compute_dtype", "use_rope_scaling", "scaling_factor.factor")),
    (EVERY, ("partial_rotary_factor", "rotary_seq_len_interpolation_factor", "no-position-embedding")),
    (EVERY, ("moe_router_pre_softmax", "capacity_factor", "moe_expert_capacity_factor", "moe_token_drop_policy", "enable_sdrop")),
    (EVERY, ("moe_z_loss_coeff", "z_loss_factor", "use_fused_ops_topkrouter", "moe_router_fusion")),
    (PLAIN_ATTENTION, ("rotary_percent",)),
    (("telechat3_moe",), ("qk_nope_head_dim", "qk_rope_head_dim")),
)
"""Families, and names that mean something, and that what they train does not do: it does what it would do without them."""
UNREAD: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (QWEN3, ("qk_layernorm", "mtp_num_layers", "mtp_loss_scaling_factor")),
    (PLAIN_ATTENTION, ("fused_norm", "num_nextn_predict_layers", "mtp_loss_factor")),
    (PLAIN_ATTENTION, ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_head_dim", "qk_rope_head_dim", "qk_pos_emb_head_dim")),
    (PLAIN_ATTENTION, ("v_head_dim", "mscale", "mscale_all_dim", "rotary_scaling_factor")),
    (PLAIN_ATTENTION, ("rope_scaling.original_max_position_embeddings", "rope_scaling.mscale", "rope_scaling.mscale_all_dim")),
    (LATENT, ("head_dim", "num_key_value_heads", "num_experts")),
    (("deepseek_v3", *TELECHAT3), ("tie_word_embeddings", "attn_proj_has_bias", "max_position_embedding", "embedding_init_type")),
    (("deepseek_v3", *TELECHAT3), ("no_position_embedding", "fused_rms_norm", "moe_input_jitter_eps", "residual_dtype", "n_groups")),
    (("deepseek_v3", *TELECHAT3), ("attention_dropout_rate", "hidden_dropout_rate", "mlp_has_bias", "mrope_section", "padded_vocab_size")),
    (("deepseek_v3", *TELECHAT3), ("rope_interleave", "moe_pad_expert_input_to_capacity")),
    (PLAIN_ATTENTION, ("first_k_dense_replace", "moe_layer_freq", "n_shared_experts", "use_shared_expert_gating")),
    (PLAIN_ATTENTION, ("n_group", "topk_group", "rope_scaling.factor")),
    (("qwen3_moe",), ("hidden_act", "gated_linear_unit", "intermediate_size")),
    (DENSE, ("num_experts", "n_routed_experts", "num_moe_experts", "num_experts_per_tok", "moe_router_topk", "moe_intermediate_size")),
    (DENSE, ("moe_ffn_hidden_size", "moe_shared_expert_intermediate_size", "shared_expert_num", "moe_router_dtype")),
    (DENSE, ("moe_router_score_function", "norm_topk_prob", "routed_scaling_factor", "moe_router_topk_scaling_factor")),
    (DENSE, ("moe_router_num_groups", "moe_router_group_topk", "moe_grouped_gemm", "moe_permute_fusion")),
    (DENSE, ("moe_router_enable_expert_bias", "moe_router_bias_update_rate", "moe_router_load_balancing_type")),
)
"""Families, and names that are of no use to them, whose presence may end their training too."""

REFUSED_VALUES: tuple[tuple[tuple[str, ...], str, Setting], ...] = (
    (EVERY, "rotary_interleaved", True),
    (EVERY, "rotary_dtype", "float16"),
    (EVERY, "bias_swiglu_fusion", True),
    *(((*DENSE, *LATENT), "hidden_act", act) for act in ("gelu_new", "gelu_pytorch_tanh", "relu2", "relu")),
    (WITH_EXPERTS, "add_bias_linear", True),
    (WITH_EXPERTS, "moe_grouped_gemm", False),
    (LATENT, "apply_rope_fusion", True),
    (PLAIN_ATTENTION, "multi_latent_attention", True),
    (PLAIN_ATTENTION, "position_embedding_type", "yarn"),
    (PLAIN_ATTENTION, "rope_scaling.type", "yarn"),
    (PLAIN_ATTENTION, "rope_scaling.rope_type", "yarn"),
)
"""Families, a name that they read, and a value of it that ends their training before it begins."""
UNLESS: Mapping[str, tuple[str, Setting]] = {"bias_swiglu_fusion": ("hidden_act", "swiglu")}
"""What must be said too for such a value to be taken."""


def refused(family: str | None) -> frozenset[str]:
    """Names that a family refuses; of one that 1.9 does not train, or that is not known, those that all refuse."""
    known = family if family in EVERY else None
    return frozenset(name for families, names in REFUSED for name in names if (known in families if known else families == EVERY))


def ignored(family: str | None) -> frozenset[str]:
    """Names that a family passes over."""
    return frozenset(name for name in IGNORED.keys() - refused(family) if family not in READ_BY.get(name, ()))


def unread(family: str | None) -> frozenset[str]:
    """Names by which nothing changes in a family that 1.9 trains."""
    return frozenset(name for families, names in UNREAD for name in names if family in families) | without_effect(family)


def without_effect(family: str | None) -> frozenset[str]:
    """Names that mean something, and that a family that 1.9 trains does not do."""
    return frozenset(name for families, names in WITHOUT_EFFECT for name in names if family in families)


def refuses(family: str | None, name: str, value: Setting, said: Mapping[str, Setting]) -> bool:
    """Whether a family refuses a value of a name, in a model of which ``said`` is what the YAML says, by names without their section."""
    if not any(family in families and (name, value) == (one, other) for families, one, other in REFUSED_VALUES):
        return False
    beside, wanted = UNLESS.get(name, ("", None))
    return not beside or said.get(beside) != wanted
