"""Qwen3-MoE: a Qwen3 whose feed-forward layers choose among experts; some may be dense (``mlp_only_layers``)."""

from __future__ import annotations

from functools import partial

from align_hooks.families import llama, megatron, mindformers, qwen3
from align_hooks.families.family import CANONICAL, RULES, Decoder, Family, Level, tables

EXPERT = f"{CANONICAL}.mlp.experts.{{expert}}"
GATE_UP, DOWN = tuple(f"{EXPERT}.{name}_proj.weight" for name in ("gate", "up")), (f"{EXPERT}.down_proj.weight",)
ROUTER = f"{CANONICAL}.mlp.gate.weight"


def of_layers(kind: str, level: Level) -> Level:
    """Return a level of the ``sparse`` layers only, which have experts, or of the ``dense`` ones."""
    return {name.replace("{layer}", f"{{{kind}}}"): axes for name, axes in level.items()}


of_sparse, of_dense = partial(of_layers, "sparse"), partial(of_layers, "dense")
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
    return llama.config_json(decoder, "Qwen3Moe", "qwen3_moe", without=("mlp_bias",)) | {
        "use_sliding_window": False,
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
