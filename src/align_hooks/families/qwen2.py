"""Qwen2 and Qwen2.5, dense: a Llama whose queries, keys and values have biases.

MindFormers 1.9 trains it as TeleChat3 with ``attention_bias: True``; its class of the name is only for inference.
"""

from __future__ import annotations

from align_hooks.families import llama, megatron, mindformers
from align_hooks.families.family import RULES, Family, Level

BIASES: Level = dict(zip(llama.QKV_BIAS, (("queries",), ("keys",), ("keys",)), strict=True))
MEGATRON_RULES = (*RULES["attention"], *RULES["biases"], *RULES["feed-forward"])
embedding, norm, projections, *rest = llama.FIRST

QWEN2 = Family(
    name="Qwen2",
    experts=False,
    levels=(embedding, norm, {**projections, **BIASES}, *rest, *llama.FEED_FORWARD, *llama.LAST),
    configured={**llama.CONFIGURED, "bias_of_queries_keys_and_values": (True,)},
    huggingface=lambda decoder: (
        llama.config_json(decoder, "Qwen2", "qwen2", without=("attention_bias", "mlp_bias")) | {"use_sliding_window": False}
    ),
    megatron=megatron.table("a Qwen2", MEGATRON_RULES),
    holds={**megatron.PLAIN, "add_qkv_bias": (True,)},
    mindformers=(
        mindformers.newer("TeleChat3", "telechat3", "a Qwen2", MEGATRON_RULES, {**mindformers.TELECHAT3, "add_qkv_bias": (True,)}),
    ),
)
