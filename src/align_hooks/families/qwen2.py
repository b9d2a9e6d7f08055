"""Qwen2 and Qwen2.5, dense: a Llama whose queries, keys and values have biases.

MindFormers 1.9 trains it as TeleChat3 with ``attention_bias: True``; its class of the name is only for inference.
"""

from __future__ import annotations

from align_hooks.families import llama, megatron, mindformers
from align_hooks.families.family import Allowed, Decoder, Family, Level
from align_hooks.families.rules import RULES

BIASES: Level = dict(zip(llama.QKV_BIAS, (("queries",), ("keys",), ("keys",)), strict=True))
MEGATRON_RULES = (*RULES["attention"], *RULES["biases"], *RULES["feed-forward"])
HOLDS: Allowed = {**megatron.PLAIN, "add_qkv_bias": (True,)}
embedding, norm, projections, *rest = llama.FIRST


def huggingface(decoder: Decoder) -> dict[str, object]:
    """Return ``config.json`` of the Hugging Face model."""
    own = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "use_sliding_window": False}
    plain = {name: value for name, value in llama.huggingface(decoder).items() if name not in ("attention_bias", "mlp_bias")}
    return plain | own


QWEN2 = Family(
    name="Qwen2",
    experts=False,
    levels=(embedding, norm, {**projections, **BIASES}, *rest, *llama.FEED_FORWARD, *llama.LAST),
    configured={**llama.CONFIGURED, "bias_of_queries_keys_and_values": (True,)},
    huggingface=huggingface,
    megatron=megatron.table("a Qwen2", MEGATRON_RULES),
    holds=HOLDS,
    mindformers=(
        mindformers.newer("TeleChat3", "telechat3", "a Qwen2", MEGATRON_RULES, {**mindformers.TELECHAT3, "add_qkv_bias": (True,)}),
    ),
)
