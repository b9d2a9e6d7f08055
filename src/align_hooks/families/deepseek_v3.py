"""DeepSeek-V3: latent attention, dense layers first, experts with a bias, groups and shared experts, multi-token prediction.

Hugging Face counts a layer for multi-token prediction after the decoder's, and its model ignores that layer. The bias of the experts
is a buffer, which training moves without a gradient. Transformer Engine fuses the norms of compressed queries and keys into projections.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from align_hooks.families import llama, megatron, mindformers, qwen3_moe
from align_hooks.families.family import CANONICAL, NATIVE, RULES, Allowed, Decoder, Family, Level, tables, without
from align_hooks.families.qwen3_moe import of_dense, of_sparse
from align_hooks.names.table import Rule

HF = f"{CANONICAL}.self_attn"
AFTER = "model.layers.{after}"
SHARED = f"{CANONICAL}.mlp.shared_experts"
BIAS = f"{CANONICAL}.mlp.gate.e_score_correction_bias"
ENDS = ("enorm", "hnorm")

LATENT: tuple[Level, ...] = (
    {f"{HF}.q_a_proj.weight": ("query_rank", "hidden"), f"{HF}.kv_a_proj_with_mqa.weight": ("key_rank_and_turned", "hidden")},
    {f"{HF}.q_a_layernorm.weight": ("query_rank",), f"{HF}.kv_a_layernorm.weight": ("key_rank",)},
    {f"{HF}.q_b_proj.weight": ("latent_queries", "query_rank"), f"{HF}.kv_b_proj.weight": ("latent_keys_and_values", "key_rank")},
    {f"{HF}.o_proj.weight": ("hidden", "latent_values")},
)
SHARED_EXPERTS: tuple[Level, ...] = (
    of_sparse({f"{SHARED}.{name}_proj.weight": ("shared_ffn", "hidden") for name in ("gate", "up")}),
    of_sparse({f"{SHARED}.down_proj.weight": ("hidden", "shared_ffn")}),
)


def of_mtp(level: Level) -> Level:
    """Return a level with the same tensors of the layers for multi-token prediction, which have experts."""
    twins = {name.replace("{layer}", "{after}").replace("{sparse}", "{after}"): axes for name, axes in level.items()}
    return {**level, **{name: axes for name, axes in twins.items() if "{after}" in name}}


router, *experts = qwen3_moe.EXPERTS
embedding, first_norm, _, _, second_norm = llama.FIRST


def levels(attention: Sequence[Level]) -> tuple[Level, ...]:
    """Return the levels of a model with this attention between a layer's two norms."""
    return (
        embedding,
        {f"{AFTER}.{name}.weight": ("hidden",) for name in ENDS},
        {f"{AFTER}.eh_proj.weight": ("hidden", "twice_hidden")},
        *map(of_mtp, (first_norm, *attention, second_norm)),
        *map(of_dense, llama.FEED_FORWARD),
        *map(of_mtp, ({**router, **of_sparse({BIAS: ("experts",)})}, *experts, *SHARED_EXPERTS)),
        {f"{AFTER}.shared_head.norm.weight": ("hidden",)},
        *llama.LAST,
    )


LEVELS = levels(LATENT)
USUAL = tuple(rule for rule in RULES["attention"] if not rule.native.endswith(".linear_qkv.weight"))
LAYER_RULES = (*USUAL, *RULES["latent attention"], *RULES["feed-forward"], *RULES["experts"], *RULES["shared experts"])


def rules_of_mtp(inner: str, of_layer: Sequence[Rule] = LAYER_RULES) -> tuple[Rule, ...]:
    """Return the rules of the layers for multi-token prediction, whose transformer layer Megatron-LM calls ``inner``."""
    return tuple(
        replace(
            rule,
            native=rule.native.replace(NATIVE, f"mtp.layers.{{mtp}}.{inner}"),
            canonical=tuple(name.replace("{layer}", "{after}") for name in rule.canonical),
        )
        for rule in of_layer
        if rule.native.startswith(NATIVE)
    )


MTP_ENDS = RULES["ends of predicting layers"]
MEGATRON_INNER, OLDER_INNER = "mtp_model_layer", "transformer_layer"
"""Megatron-LM's names of a predicting layer's transformer layer: since 0.16, and before, as in MindFormers."""


def with_mtp(of_layer: Sequence[Rule]) -> tuple[Rule, ...]:
    """Return Megatron-LM's rules of a model with layers for multi-token prediction, by those without."""
    return (*of_layer, *rules_of_mtp(MEGATRON_INNER, of_layer), *rules_of_mtp(OLDER_INNER, of_layer), *MTP_ENDS)


MEGATRON_RULES = with_mtp(LAYER_RULES)
MINDFORMERS_RULES = (*LAYER_RULES, *rules_of_mtp(OLDER_INNER), *MTP_ENDS)

FREE = ("moe_shared_expert_intermediate_size", "moe_router_topk_scaling_factor", "moe_router_num_groups")
"""Properties of the router that may have any value."""
SIGMOID: Allowed = {
    **without(megatron.ROUTER, *FREE),
    "moe_router_score_function": ("sigmoid",),
    "moe_router_enable_expert_bias": (True, False),
    "experts": (True,),
    "dense layers after the first with experts": (False,),
}
"""What the router and the experts hold."""
HOLDS: Allowed = {**megatron.PLAIN, "multi_latent_attention": (True,), "mtp_num_layers": (None, 0, 1), "qk_layernorm": (True,), **SIGMOID}
CONFIGURED: Allowed = {**without(llama.CONFIGURED, "mtp_num_layers"), **tables("configured.txt")["deepseek_v3"]}


def of_routing(decoder: Decoder) -> dict[str, object]:
    """Return the keys of ``config.json`` of experts, groups and predicting layers."""
    routing = decoder.routing
    assert routing is not None
    return {
        "moe_intermediate_size": decoder.dims.expert_ffn,
        "n_routed_experts": routing.experts,
        "n_shared_experts": None if routing.shared is None else routing.shared // decoder.dims.expert_ffn,
        "num_experts_per_tok": routing.chosen,
        "n_group": routing.groups,
        "topk_group": routing.chosen_groups,
        "norm_topk_prob": routing.normalised,
        "routed_scaling_factor": routing.factor,
        "first_k_dense_replace": routing.sparse.index(True) if True in routing.sparse else len(routing.sparse),
        "num_nextn_predict_layers": decoder.predicted,
    }


def huggingface(decoder: Decoder) -> dict[str, object]:
    """Return ``config.json`` of the Hugging Face model."""
    assert decoder.latent is not None
    attention = {"num_key_value_heads": decoder.dims.heads, **decoder.latent, "rope_interleave": True}
    base = llama.config_json(decoder, "DeepseekV3", "deepseek_v3", without=("head_dim", "mlp_bias"))
    return base | attention | of_routing(decoder)


def buffers_of(levels: Sequence[Level]) -> frozenset[str]:
    """Return the names of the experts' biases, which training moves without gradients."""
    return frozenset(name for level in levels for name in level if name.endswith("e_score_correction_bias"))


DEEPSEEK_V3 = Family(
    name="DeepSeek-V3",
    experts=True,
    levels=LEVELS,
    configured=CONFIGURED,
    huggingface=huggingface,
    megatron=megatron.table("a DeepSeek-V3", MEGATRON_RULES),
    holds=HOLDS,
    mindformers=tuple(
        mindformers.newer(network, model_type, "a DeepSeek-V3", MINDFORMERS_RULES, mindformers.LATENT)
        for network, model_type in (("DeepseekV3", "deepseek_v3"), ("TeleChat3Moe", "telechat3_moe"))
    ),
    pynative=tuple(  # a DeepSeek-V4 is the nearest that there is: of its own parts the names are the framework's
        mindformers.pynative(name, model_type, "a DeepSeek-V3", MINDFORMERS_RULES, mindformers.LATENT)
        for name, model_type in (("DeepseekV3", "deepseek_v3"), ("DeepseekV4", "deepseek_v4"))
    ),
    buffers=buffers_of(LEVELS),
    aliases=("kimi_k2",),
)
