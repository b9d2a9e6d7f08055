"""Older models of MindFormers that are no LLaMA: what their configuration classes hold, and what their networks do whatever the YAML says.

By the sources of 1.3 and 1.5, where most of them are in ``research/``; tests name the lines.
"""

from __future__ import annotations

from collections.abc import Mapping

from align_hooks.configuration.values import Setting

DEEPSEEK2, DEEPSEEK3 = "deepseekv2", "deepseekv3"
DEEPSEEK = (DEEPSEEK2, DEEPSEEK3)
"""``research/deepseek2`` and ``research/deepseek3``, whose layers are the same: latent attention, and experts by ``moe_config``."""
GPT2, INTERNLM2, QWEN = "gpt2", "internlm2", "qwen"

CLASSES = {
    "deepseekv2config": DEEPSEEK2,
    "deepseekv3config": DEEPSEEK3,
    "gpt2config": GPT2,
    "internlm2config": INTERNLM2,
    "qwenconfig": QWEN,
}
"""``model_config.type``, in lower case, to the family."""

LIKE_LLAMA: Mapping[str, Setting] = {
    **{"num_attention_heads": 32, "hidden_size": 4096, "num_layers": 32, "seq_length": 2048, "vocab_size": 32000},
    **{"position_embedding_type": "rope", "rotary_percent": 1.0, "rotary_base": 10000.0, "rotary_interleaved": False},
    **{"normalization": "RMSNorm", "hidden_act": "silu", "gated_linear_unit": True, "qk_layernorm": False},
    **{"add_bias_linear": False, "add_qkv_bias": False, "tie_word_embeddings": False, "init_method_std": 0.01},
    **{"attention_dropout": 0.0, "hidden_dropout": 0.0, "params_dtype": "float16", "compute_dtype": "float16"},
    **{"layernorm_compute_dtype": "float32", "softmax_compute_dtype": "float32", "rotary_dtype": "float32"},
    **{"use_flash_attention": False, "mtp_num_layers": 0, "multi_latent_attention": False, "pad_token_id": 0},
}
NO_EXPERTS: Mapping[str, Setting] = {"num_moe_experts": 1, "shared_expert_num": 0}
WITH_EXPERTS: Mapping[str, Setting] = {
    **NO_EXPERTS,
    **{"moe_router_topk": 1, "moe_router_score_function": "softmax", "norm_topk_prob": True, "moe_router_topk_scaling_factor": 1.0},
    **{"moe_router_num_groups": None, "moe_router_group_topk": None, "moe_router_enable_expert_bias": False},
    **{"moe_router_bias_update_rate": 0.0, "moe_router_dtype": "float32", "moe_grouped_gemm": False},
}
"""``MoEConfig``'s."""
LATENT: Mapping[str, Setting] = {
    **LIKE_LLAMA,
    **WITH_EXPERTS,
    **{"multi_latent_attention": True, "qk_layernorm": True, "extend_method": "YARN", "layernorm_epsilon": 1e-6},
    **{"q_lora_rank": 1536, "kv_lora_rank": 512, "qk_head_dim": 128, "qk_pos_emb_head_dim": 64, "v_head_dim": 128},
}
"""DeepSeek's attention norms its latent queries, keys and values with no key to say otherwise."""

OLDER_DEFAULTS: Mapping[str, Mapping[str, Setting]] = {
    DEEPSEEK2: {**LATENT, "num_layers": 30, "ffn_hidden_size": 12288, "max_position_embeddings": 4096, "vocab_size": 102400},
    DEEPSEEK3: {
        **LATENT,
        **{"ffn_hidden_size": 18432, "max_position_embeddings": 32768, "vocab_size": 129280, "init_method_std": 0.006},
        **{"params_dtype": "bfloat16", "compute_dtype": "bfloat16", "mtp_loss_scaling_factor": 0.3},
    },
    INTERNLM2: {
        **LIKE_LLAMA,
        **NO_EXPERTS,
        **{"ffn_hidden_size": 14336, "vocab_size": 92544, "rotary_base": 1000000.0, "layernorm_epsilon": 1e-5, "pad_token_id": 2},
    },
    QWEN: {**LIKE_LLAMA, **NO_EXPERTS, "add_qkv_bias": True, "layernorm_epsilon": 1e-5},
    GPT2: {
        **LIKE_LLAMA,
        **NO_EXPERTS,
        **{"num_layers": 12, "hidden_size": 768, "num_attention_heads": 12, "seq_length": 1024, "vocab_size": 50257},
        **{"position_embedding_type": "learned_absolute", "normalization": "LayerNorm", "layernorm_epsilon": 1e-5},
        **{"hidden_act": "gelu", "gated_linear_unit": False, "add_bias_linear": True, "add_qkv_bias": True},
        **{"tie_word_embeddings": True, "attention_dropout": 0.1, "hidden_dropout": 0.1, "params_dtype": "float32"},
        **{"pad_token_id": 50256, "eos_token_id": 50256},
    },
}
"""Family to field of ``TransformerConfig`` to value; a field that is not there is not known."""
FIRST_DENSE, EXPERT_FFN = 1, 1407
"""``MoEConfig.first_k_dense_replace``, which is True, and ``moe_intermediate_size``; DeepSeek's layers read them and no others."""

NOT_READ: Mapping[str, tuple[str, ...]] = {
    "llama": ("initializer_range", "kv_channels", "rotary_pct", "rotary_emb_base", "emb_dropout_prob"),
    DEEPSEEK2: ("init_method_std",),
    DEEPSEEK3: (),
    GPT2: ("compute_dtype",),
    INTERNLM2: ("init_method_std",),
    QWEN: ("init_method_std", "qkv_has_bias"),
}
"""Family to names of ``model_config`` that its class may take and its networks do not read. What a class does not take is known by
``class_keys.txt``; a Llama may be of another class."""
