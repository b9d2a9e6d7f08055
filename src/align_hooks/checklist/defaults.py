"""What MindFormers does where a YAML says nothing: the defaults of its configuration classes, by family of model.

Those of the newer models are what the classes of MindFormers 1.9 hold after they were built from an empty configuration, and tests build
them again; those of the older ones are ``LlamaConfig``'s and ``MoEConfig``'s. Older ones that 1.9 no longer has are in
``older_families.py``.
"""

from __future__ import annotations

from collections.abc import Mapping

from align_hooks.checklist.older_families import CLASSES, OLDER_DEFAULTS
from align_hooks.checklist.row import UNSET, Read, is_new, model
from align_hooks.configuration.values import Configuration, Setting

LLAMA = "llama"
"""The older family: ``LlamaConfig``, which also serves Qwen2.5, Mixtral and GLM of ``use_legacy: True``."""

ARCHITECTURES = {
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "glm4": "Glm4ForCausalLM",
    "glm4_moe": "Glm4MoeForCausalLM",
    "telechat": "Telechat2ForCausalLM",
    "telechat3": "TeleChat3ForCausalLM",
    "telechat3_moe": "TeleChat3MoeForCausalLM",
}
"""Family, which is ``model_type``, to the name of its architecture."""

CHATGLM = "chatglm2"
"""The other older family: ``ChatGLM2Config``, which serves GLM-3 and GLM-4 too."""
OLDER = (LLAMA, CHATGLM)
"""Older families that 1.9 still has."""

MLA = ("deepseek_v3", "telechat3_moe")
EXPERTS = ("qwen3_moe", "deepseek_v3", "glm4_moe", "telechat3_moe")
OTHERS = ""
"""The row of a table that holds for every other family of the newer models."""


def by_family(others: Setting = UNSET, /, **of_family: Setting) -> Mapping[str, Setting]:
    """The row of a table: what holds for ``others``, and what for the families that are named; UNSET where no value holds."""
    return ({} if others is UNSET else {OTHERS: others}) | of_family


DEFAULTS: Mapping[str, Mapping[str, Setting]] = {
    "num_layers": by_family(32, qwen3_moe=24, deepseek_v3=61, glm4=40, glm4_moe=46, telechat=30, telechat3_moe=4, llama=32, chatglm2=28),
    "hidden_size": by_family(4096, qwen3_moe=2048, deepseek_v3=7168, telechat3_moe=2560, llama=4096, chatglm2=4096),
    "ffn_hidden_size": by_family(
        22016, qwen3_moe=6144, deepseek_v3=18432, glm4=13696, glm4_moe=10944, telechat=12288, telechat3_moe=7680, chatglm2=13696
    ),
    "num_attention_heads": by_family(32, deepseek_v3=128, glm4_moe=96, llama=32, chatglm2=32),
    "max_position_embeddings": by_family(32768, deepseek_v3=4096, telechat=4096, telechat3_moe=4096, glm4=131072, glm4_moe=131072),
    "seq_length": by_family(4096, llama=2048, chatglm2=2048),
    "position_embedding_type": by_family("rope", glm4="partial_rope", llama="rope", chatglm2="rope"),
    "rotary_percent": by_family(1.0, llama=1.0, chatglm2=0.5),
    "rotary_base": by_family(10000.0, llama=10000.0),
    "rotary_interleaved": by_family(False, llama=False, chatglm2=True),
    "normalization": by_family("RMSNorm", llama="RMSNorm", chatglm2="RMSNorm"),
    "layernorm_epsilon": by_family(1e-06, glm4=1.5625e-07, glm4_moe=1e-05, telechat=1e-05, llama=1e-05, chatglm2=1e-05),
    "hidden_act": by_family("silu"),
    "gated_linear_unit": by_family(True, llama=True, chatglm2=True),
    "add_bias_linear": by_family(False, telechat=True, llama=False, chatglm2=False),
    "add_qkv_bias": by_family(False, glm4=True, llama=False, chatglm2=True),
    "qk_layernorm": by_family(False, llama=False, chatglm2=False),
    "tie_word_embeddings": by_family(False, llama=False, chatglm2=False),
    "vocab_size": by_family(
        151936,
        deepseek_v3=129280,
        glm4=151552,
        glm4_moe=151552,
        telechat=160256,
        telechat3=131072,
        telechat3_moe=131072,
        llama=32000,
        chatglm2=65024,
    ),
    "pad_token_id": by_family(
        0, qwen2=151643, qwen3=151643, qwen3_moe=151643, glm4=151329, glm4_moe=151643, telechat3=151643, llama=0, chatglm2=0
    ),
    "init_method_std": by_family(0.02, llama=0.01),
    "attention_dropout": by_family(0.0, llama=0.0, chatglm2=0.0),
    "hidden_dropout": by_family(0.1, deepseek_v3=0.0, telechat=0.0, telechat3_moe=0.0, llama=0.0, chatglm2=0.0),
    "params_dtype": by_family("float32", llama="float16", chatglm2="float16"),
    "compute_dtype": by_family("bfloat16", llama="float16", chatglm2="float16"),
    "layernorm_compute_dtype": by_family("float32", llama="float32", chatglm2="float32"),
    "softmax_compute_dtype": by_family("float32", llama="float32", chatglm2="float32"),
    "rotary_dtype": by_family("float32", llama="float32"),
    "moe_router_dtype": by_family("float32", llama="float32"),
    "fp32_residual_connection": by_family(False),
    "use_flash_attention": by_family(True, llama=False, chatglm2=False),
    "num_moe_experts": by_family(None, qwen3_moe=128, glm4_moe=128, deepseek_v3=256, telechat3_moe=192, llama=1, chatglm2=1),
    "moe_router_topk": by_family(2, qwen3_moe=8, deepseek_v3=8, glm4_moe=8, telechat3_moe=8, llama=1),
    "shared_expert_num": by_family(0, deepseek_v3=1, glm4_moe=1, telechat3_moe=1, llama=0),
    "first_k_dense_replace": by_family(None, deepseek_v3=3, telechat3_moe=3, glm4_moe=1),
    "moe_router_score_function": by_family("softmax", deepseek_v3="sigmoid", glm4_moe="sigmoid", telechat3_moe="sigmoid", llama="softmax"),
    "norm_topk_prob": by_family(True, qwen3_moe=False, llama=True),
    "moe_router_num_groups": by_family(None, deepseek_v3=8, telechat3_moe=8, glm4_moe=1, llama=None),
    "moe_router_group_topk": by_family(None, deepseek_v3=4, telechat3_moe=4, glm4_moe=1, llama=None),
    "moe_router_topk_scaling_factor": by_family(None, deepseek_v3=2.5, glm4_moe=1.0, telechat3_moe=2.8, llama=1.0),
    "moe_router_enable_expert_bias": by_family(False, deepseek_v3=True, glm4_moe=True, telechat3_moe=True, llama=False),
    "moe_router_bias_update_rate": by_family(0.001, llama=0.0),
    "moe_aux_loss_coeff": by_family(0.0, llama=0.0),
    "moe_router_load_balancing_type": by_family("sub_seq_aux_loss"),
    "mtp_num_layers": by_family(0, deepseek_v3=1, telechat3_moe=1, llama=0, chatglm2=0),
    "multi_latent_attention": by_family(False, deepseek_v3=True, telechat3_moe=True, llama=False, chatglm2=False),
    "q_lora_rank": by_family(deepseek_v3=1536, telechat3_moe=1536),
    "kv_lora_rank": by_family(deepseek_v3=512, telechat3_moe=512),
    "qk_head_dim": by_family(deepseek_v3=128, telechat3_moe=128),
    "qk_pos_emb_head_dim": by_family(deepseek_v3=64, telechat3_moe=64),
    "v_head_dim": by_family(deepseek_v3=128, telechat3_moe=128),
    "moe_grouped_gemm": by_family(False, llama=False),
    "moe_token_dispatcher_type": by_family("alltoall"),
    "bias_swiglu_fusion": by_family(False),
    "apply_rope_fusion": by_family(False),
}
"""Field of ``TransformerConfig`` to its value by family. Group heads and feed-forward sizes that follow from others are worked out."""

KEY_VALUE_HEADS = {CHATGLM: 2, "internlm2": 8, "qwen3_moe": 4, "glm4": 2, "glm4_moe": 8}
HEAD_DIM = {CHATGLM: 128, "qwen3": 128, "qwen2": 128, "telechat3": 128, "glm4": 128, "telechat": 128}
EXPERT_SIZE = {"qwen3_moe": 768, "deepseek_v3": 2048, "glm4_moe": 1408, "telechat3_moe": 1536}


def family(configuration: Configuration) -> str | None:
    """The family of a MindFormers configuration; None where it is not one that is known."""
    kinds = ("model_type", "architectures", "type")
    model_type, architectures, kind = (configuration.find(model(name)) for name in kinds)
    if not is_new(configuration):
        name = str(kind.value).lower() if kind is not None else LLAMA
        return LLAMA if "llama" in name else CHATGLM if "chatglm" in name else CLASSES.get(name)
    if model_type is not None and str(model_type.value) in ARCHITECTURES:
        return str(model_type.value)
    named = architectures.value if architectures is not None else None
    first = str(named[0] if isinstance(named, list) and named else named).lower()
    return next((name for name, architecture in ARCHITECTURES.items() if architecture.lower() == first), None)


def default(field: str) -> Read:
    """What a family does with a field that nothing sets; not known where the model's own ``config.json`` is not here to be read."""

    def read(configuration: Configuration) -> Setting:
        name, table = family(configuration), DEFAULTS.get(field, {})
        if configuration.unread or name is None:
            return UNSET
        if name in OLDER_DEFAULTS:
            return OLDER_DEFAULTS[name].get(field, UNSET)
        return table.get(name, UNSET if name in OLDER else table.get(OTHERS, UNSET))

    return read


def where_told(value: Setting) -> Read:
    """``value`` where nothing sets a field; not known where the model's own ``config.json`` is not here to be read."""
    return lambda configuration: UNSET if configuration.unread else value
