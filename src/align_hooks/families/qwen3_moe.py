"""Qwen3-MoE: a Qwen3 whose feed-forward layers choose among experts; some may be dense (``mlp_only_layers``)."""

from __future__ import annotations

from align_hooks.families import llama, megatron, mindformers, qwen3
from align_hooks.families.family import Decoder, Family, Level, tables
from align_hooks.families.rules import CANONICAL, RULES

EXPERT = f"{CANONICAL}.mlp.experts.{{expert}}"
GATE_UP, DOWN = tuple(f"{EXPERT}.{name}_proj.weight" for name in ("gate", "up")), (f"{EXPERT}.down_proj.weight",)
ROUTER = f"{CANONICAL}.mlp.gate.weight"


def of_sparse(level: Level) -> Level:
    """Return a level of the layers with experts only."""
    return {name.replace("{layer}", "{sparse}"): axes for name, axes in level.items()}


def of_dense(level: Level) -> Level:
    """Return a level of the layers without experts only."""
    return {name.replace("{layer}", "{dense}"): axes for name, axes in level.items()}


EXPERTS: tuple[Level, ...] = (
    of_sparse({ROUTER: ("experts", "hidden")}),
    of_sparse(dict.fromkeys(GATE_UP, ("expert_ffn", "hidden"))),
    of_sparse(dict.fromkeys(DOWN, ("hidden", "expert_ffn"))),
)
MEGATRON_RULES = (*qwen3.ATTENTION, *RULES["feed-forward"], *RULES["experts"])


def huggingface(decoder: Decoder) -> dict[str, object]:
    """Return ``config.json`` of the Hugging Face model."""
    routing = decoder.routing
    assert routing is not None
    return qwen3.huggingface(decoder) | {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "moe_intermediate_size": decoder.dims.expert_ffn,
        "num_experts": routing.experts,
        "num_experts_per_tok": routing.chosen,
        "norm_topk_prob": routing.normalised,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [layer for layer, sparse in enumerate(routing.sparse) if not sparse],
    }


QWEN3_MOE = Family(
    name="Qwen3-MoE",
    experts=True,
    levels=(*qwen3.FIRST, *map(of_dense, llama.FEED_FORWARD), *EXPERTS, *llama.LAST),
    configured={**qwen3.CONFIGURED, **tables("configured.txt")["qwen3_moe"]},
    huggingface=huggingface,
    megatron=megatron.table("a Qwen3-MoE", MEGATRON_RULES),
    holds={**qwen3.HOLDS, **megatron.ROUTER, "experts": (True,)},
    mindformers=(mindformers.newer(*("Qwen3Moe", "qwen3_moe", "a Qwen3-MoE"), MEGATRON_RULES, mindformers.WITH_EXPERTS),),
)
