"""GLM-4.5 and its successors: usual attention with biases, of which a part of each head is rotated, and the experts of a DeepSeek-V3.

Queries and keys are normalised in the large model, and not in the Air one. MindFormers' class of the name is only for inference.
"""

from __future__ import annotations

from align_hooks.families import deepseek_v3, llama, megatron, qwen2, qwen3
from align_hooks.families.family import RULES, Allowed, Decoder, Family, Level, tables, without

_, _, projections, output, _ = llama.FIRST
LEVELS: tuple[Level, ...] = deepseek_v3.levels(({**projections, **qwen2.BIASES}, qwen3.NORMS, output))
LAYER_RULES = (*qwen3.ATTENTION, *RULES["biases"], *RULES["feed-forward"], *RULES["experts"], *RULES["shared experts"])
FREE = ("rotary_percent", "mtp_num_layers")
"""Properties that may have any value, beside those of :data:`HOLDS`."""
CONFIGURED: Allowed = {**without(llama.CONFIGURED, *FREE), **tables("configured.txt")["glm4_moe"]}
HOLDS: Allowed = {
    **without(megatron.PLAIN, *FREE),
    **deepseek_v3.SIGMOID,
    "mtp_num_layers": (None, 0, 1),
    "add_qkv_bias": (True,),
    "qk_layernorm": (True, False),
}


def huggingface(decoder: Decoder) -> dict[str, object]:
    """Return ``config.json`` of the Hugging Face model."""
    own = {"attention_bias": True, "partial_rotary_factor": decoder.rotary_part, "use_qk_norm": decoder.normalised_heads}
    return llama.config_json(decoder, "Glm4Moe", "glm4_moe", without=("mlp_bias",)) | own | deepseek_v3.of_routing(decoder)


GLM4_MOE = Family(
    name="GLM4-MoE",
    experts=True,
    levels=LEVELS,
    configured=CONFIGURED,
    huggingface=huggingface,
    megatron=megatron.table("a GLM-4.5", deepseek_v3.with_mtp(LAYER_RULES)),
    holds=HOLDS,
    buffers=deepseek_v3.buffers_of(LEVELS),
    optional={name: ("norm_of_queries_and_keys", "use_qk_norm") for level in LEVELS for name in level if name.endswith("_norm.weight")},
)
