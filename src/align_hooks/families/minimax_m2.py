"""MiniMax-M2: the experts of a Mixtral behind a sigmoid with a bias, part of each head rotated, and norms over all heads.

Megatron-LM normalises queries and keys head by head. A layer specification (``--spec``) brings these norms, under Megatron-LM's names.
"""

from __future__ import annotations

from align_hooks.families import llama, megatron, mixtral, qwen3
from align_hooks.families.family import RULES, Allowed, Decoder, Family, Level, tables, without

BIAS = f"{mixtral.MOE}.e_score_correction_bias"
NORMS: Level = dict(zip(qwen3.NORMS, (("queries",), ("keys",)), strict=True))
router, *experts = mixtral.EXPERTS
embedding, norm, projections, *rest = llama.FIRST
# no MiniMax-M2 has dense layers; with their rules a model that has some is refused for that reason
MEGATRON_RULES = (*llama.DENSE, *RULES["norms over all heads"], *RULES["experts of mixtral"])
TABLE = tables("megatron.txt")["minimax_m2"]
HOLDS = without({**megatron.PLAIN, **megatron.ROUTER, **TABLE}, "rotary_percent")
CONFIGURED: Allowed = {**llama.CONFIGURED, **tables("configured.txt")["mixtral"], **tables("configured.txt")["minimax_m2"]}


def huggingface(decoder: Decoder) -> dict[str, object]:
    """Return ``config.json`` of the Hugging Face model."""
    return llama.config_json(decoder, "MiniMaxM2", "minimax_m2", without=("attention_bias", "mlp_bias")) | {
        **mixtral.of_routing(decoder),
        "rotary_dim": None if decoder.rotary_part is None else int(decoder.dims.head_dim * decoder.rotary_part),
        "scoring_func": "sigmoid",
        "use_routing_bias": True,
        "use_qk_norm": True,
        "qk_norm_type": "per_layer",
    }


MINIMAX_M2 = Family(
    name="MiniMax-M2",
    experts=True,
    levels=(embedding, norm, projections, NORMS, *rest, {**router, BIAS: ("experts",)}, *experts, *llama.LAST),
    configured=without(CONFIGURED, "rotary_percent"),
    huggingface=huggingface,
    megatron=megatron.table("a MiniMax-M2", MEGATRON_RULES),
    holds=HOLDS,
    buffers=frozenset((BIAS,)),
    by_specification=True,
)
