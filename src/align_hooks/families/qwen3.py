"""Qwen3, dense: a Llama whose queries and keys are normalised, head by head, before the rotation.

In MindFormers also TeleChat3 with ``qk_layernorm: True`` (1.9: ``models/telechat3/modeling_telechat3_train.py``).
"""

from __future__ import annotations

from align_hooks.families import llama, megatron, mindformers
from align_hooks.families.family import CANONICAL, RULES, Allowed, Family, Level

NORMS: Level = {f"{CANONICAL}.self_attn.{name}_norm.weight": ("head",) for name in "qk"}
embedding, norm, projections, *rest = llama.FIRST
FIRST: tuple[Level, ...] = (embedding, norm, projections, NORMS, *rest)
"""The levels before a layer's feed-forward part."""
ATTENTION = (*RULES["attention"], *RULES["norms of queries and keys"])
MEGATRON_RULES = (*ATTENTION, *RULES["feed-forward"])
CONFIGURED: Allowed = {**llama.CONFIGURED, "norm_of_queries_and_keys": (True,)}
HOLDS: Allowed = {**megatron.PLAIN, "qk_layernorm": (True,)}


QWEN3 = Family(
    name="Qwen3",
    experts=False,
    levels=(*FIRST, *llama.FEED_FORWARD, *llama.LAST),
    configured=CONFIGURED,
    huggingface=lambda decoder: llama.config_json(decoder, "Qwen3", "qwen3", ("mlp_bias",)) | {"use_sliding_window": False},
    megatron=megatron.table("a Qwen3", MEGATRON_RULES),
    holds=HOLDS,
    mindformers=(
        mindformers.newer("Qwen3", "qwen3", "a Qwen3", MEGATRON_RULES, mindformers.PLAIN),
        mindformers.newer("TeleChat3", "telechat3", "a Qwen3", MEGATRON_RULES, {**mindformers.TELECHAT3, "qk_layernorm": (True,)}),
    ),
    pynative=(mindformers.pynative("Qwen3", "qwen3", "a Qwen3", MEGATRON_RULES, mindformers.PLAIN),),
)
