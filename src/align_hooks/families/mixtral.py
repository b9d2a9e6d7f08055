"""Mixtral: a Llama in which every feed-forward layer chooses among experts. In MindFormers it has no canonical names yet."""

from __future__ import annotations

from align_hooks.families import llama, megatron
from align_hooks.families.family import Allowed, Decoder, Family, Level, tables
from align_hooks.families.rules import CANONICAL, RULES

MOE = f"{CANONICAL}.block_sparse_moe"
EXPERTS: tuple[Level, ...] = (
    {f"{MOE}.gate.weight": ("experts", "hidden")},
    {f"{MOE}.experts.{{expert}}.{name}.weight": ("expert_ffn", "hidden") for name in ("w1", "w3")},
    {f"{MOE}.experts.{{expert}}.w2.weight": ("hidden", "expert_ffn")},
)
# no Mixtral has dense layers; with their rules a model that has some is refused for that reason
MEGATRON_RULES = (*llama.DENSE, *RULES["experts of mixtral"])
HOLDS: Allowed = {
    **megatron.PLAIN,
    **megatron.ROUTER,
    "moe_router_pre_softmax": (False,),
    "experts": (True,),
    "dense layers between experts": (False,),
}


def huggingface(decoder: Decoder) -> dict[str, object]:
    """Return ``config.json`` of the Hugging Face model."""
    assert decoder.routing is not None
    mixtral = {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "intermediate_size": decoder.dims.expert_ffn}
    routing = {"num_local_experts": decoder.routing.experts, "num_experts_per_tok": decoder.routing.chosen, "sliding_window": None}
    return llama.huggingface(decoder) | mixtral | routing


MIXTRAL = Family(
    name="Mixtral",
    experts=True,
    levels=(*llama.FIRST, *EXPERTS, *llama.LAST),
    configured={**llama.CONFIGURED, **tables("configured.txt")["mixtral"]},
    huggingface=huggingface,
    megatron=megatron.table("a Llama with experts as in Mixtral", MEGATRON_RULES),
    holds=HOLDS,
)
