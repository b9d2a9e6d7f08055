"""Mixtral: a Llama in which every feed-forward layer chooses among experts. In MindFormers it has no canonical names yet."""

from __future__ import annotations

from align_hooks.families import llama, megatron
from align_hooks.families.family import CANONICAL, RULES, Allowed, Decoder, Family, Level, tables

MOE = f"{CANONICAL}.block_sparse_moe"
EXPERTS: tuple[Level, ...] = (
    {f"{MOE}.gate.weight": ("experts", "hidden")},
    {f"{MOE}.experts.{{expert}}.{name}.weight": ("expert_ffn", "hidden") for name in ("w1", "w3")},
    {f"{MOE}.experts.{{expert}}.w2.weight": ("hidden", "expert_ffn")},
)
# no Mixtral has dense layers; with their rules a model that has some is refused for that reason
MEGATRON_RULES = (*llama.DENSE, *RULES["experts of mixtral"])
OWN: Allowed = {"moe_router_pre_softmax": (False,), "experts": (True,), "dense layers between experts": (False,)}


def of_routing(decoder: Decoder) -> dict[str, object]:
    """Return the keys of ``config.json`` of experts, whose size is that of the feed-forward layer."""
    routing = decoder.routing
    assert routing is not None
    sizes = {"intermediate_size": decoder.dims.expert_ffn, "num_local_experts": routing.experts}
    return {**sizes, "num_experts_per_tok": routing.chosen}


def huggingface(decoder: Decoder) -> dict[str, object]:
    """Return ``config.json`` of the Hugging Face model."""
    return llama.config_json(decoder, "Mixtral", "mixtral") | of_routing(decoder) | {"sliding_window": None}


MIXTRAL = Family(
    name="Mixtral",
    experts=True,
    levels=(*llama.FIRST, *EXPERTS, *llama.LAST),
    configured={**llama.CONFIGURED, **tables("configured.txt")["mixtral"]},
    huggingface=huggingface,
    megatron=megatron.table("a Llama with experts as in Mixtral", MEGATRON_RULES),
    holds={**megatron.PLAIN, **megatron.ROUTER, **OWN},
)
