"""What Megatron-LM's models of every family share: how a built model is read, and compared with what a family allows.

MindFormers' newer models are built from a configuration of the same fields (:mod:`.mindformers`), so what reads a configuration alone
serves both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from align_hooks.families.family import Args, Decoder, GPTModel, Latent, Routing, Yarn
from align_hooks.names.blocks import Dims

Holds = Mapping[str, tuple[object, ...]]
"""Name of a property of a built model to the values that a family allows, the usual value first."""

PLAIN: Holds = {
    "normalization": ("RMSNorm",),
    "gated_linear_unit": (True,),
    "multi_latent_attention": (False,),
    "mtp_num_layers": (None, 0),
    "add_bias_linear": (False,),
    "add_qkv_bias": (False,),
    "qk_layernorm": (False,),
    "rotary_interleaved": (False,),
    "layernorm_zero_centered_gamma": (False,),
    "softmax_type": ("vanilla",),
    "softmax_scale": (None,),
    "window_size": (None,),
    "use_mup": (False,),
    "qk_clip": (False,),
    "attention_output_gate": (False,),
    "experimental_attention_variant": (None,),
    "position_embedding_type": ("rope",),
    "rotary_percent": (1.0,),
    "use_rope_scaling": (False,),
    "rotary_seq_len_interpolation_factor": (None,),
    "activation_func": ("silu",),
}
"""What a Llama allows."""
ROUTER: Holds = {
    "moe_router_score_function": ("softmax",),
    "moe_shared_expert_intermediate_size": (None, 0),
    "moe_shared_expert_gate": (False,),
    "moe_router_enable_expert_bias": (False,),
    "moe_router_topk_scaling_factor": (None, 1.0),
    "moe_router_num_groups": (None,),
    "moe_expert_capacity_factor": (None,),
    "moe_latent_size": (None,),
    "moe_apply_probs_on_input": (False,),
}
"""What a router allows that chooses by softmax, without groups, bias or shared experts."""

BESIDE_CONFIGURATION: Mapping[str, Callable[[GPTModel, Args], object]] = {
    "position_embedding_type": lambda gpt, args: gpt.position_embedding_type,
    "rotary_percent": lambda gpt, args: getattr(args, "rotary_percent", 1.0),
    "dense layers between experts": lambda gpt, args: not all(sparse_layers(gpt.config)),
    "dense layers after the first with experts": lambda gpt, args: list(sparse_layers(gpt.config)) != sorted(sparse_layers(gpt.config)),
    "use_rope_scaling": lambda gpt, args: bool(getattr(args, "use_rope_scaling", False)),
    "rotary_seq_len_interpolation_factor": lambda gpt, args: getattr(args, "rotary_seq_len_interpolation_factor", None),
    "activation_func": lambda gpt, args: function_name(gpt.config.activation_func),
    "experts": lambda gpt, args: bool(gpt.config.num_moe_experts),
}
"""How a property that is no attribute of the configuration is read from a built model and Megatron's arguments."""

OWN = ("", "torch", "megatron")
"""Packages whose functions are named without their module."""


def function_name(function: object) -> str:
    """The name of a function, with its module unless that is torch's or Megatron's."""
    name, module = getattr(function, "__name__", str(function)), getattr(function, "__module__", None) or ""
    return name if module.partition(".")[0] in OWN else f"{module}.{name}"


def misfits(holds: Holds) -> Callable[[GPTModel, Args], list[str]]:
    """A function that says, in words, in what a built model differs from ``holds``."""

    def misfits_of(gpt: GPTModel, args: Args) -> list[str]:
        beside = {name: read(gpt, args) for name, read in BESIDE_CONFIGURATION.items() if name in holds}
        return differing({name: beside[name] if name in beside else getattr(gpt.config, name, holds[name][0]) for name in holds}, holds)

    return misfits_of


def differing(values: Mapping[str, object], holds: Holds) -> list[str]:
    """In words, which values are not allowed."""
    return [f"{name} is {values[name]}, not {allowed[0]}" for name, allowed in holds.items() if values[name] not in allowed]


def sparse_layers(config: Any) -> tuple[bool, ...]:
    """Which layers of a configuration have experts (``moe_layer_freq``: every Nth from the first on, or a list of one number a layer)."""
    layers: int = config.num_layers
    every = getattr(config, "moe_layer_freq", 1)
    if not config.num_moe_experts:
        return (False,) * layers
    return tuple(map(bool, every)) if isinstance(every, Sequence) else tuple(layer % every == 0 for layer in range(layers))


def dims(gpt: GPTModel, vocabulary: int) -> Dims:
    """The sizes of a built model, over all tensor-parallel ranks; ``vocabulary`` excludes padding."""
    return dims_of(gpt.config, vocabulary, gpt.vocab_size)


def dims_of(config: Any, vocabulary: int, padded: int) -> Dims:
    """The sizes of a configuration with an embedding of ``padded`` rows."""
    return Dims(
        heads=config.num_attention_heads,
        groups=config.num_query_groups or config.num_attention_heads,
        head_dim=config.kv_channels,
        ffn=config.ffn_hidden_size,
        vocabulary=min(vocabulary, padded),
        padded=padded,
        expert_ffn=getattr(config, "moe_ffn_hidden_size", None) or config.ffn_hidden_size,
        experts=config.num_moe_experts or 0,
        layers=config.num_layers,
        q_lora=(config.q_lora_rank or 0) if config.multi_latent_attention else 0,
    )


def decoder(gpt: GPTModel, sizes: Dims) -> Decoder:
    """The facts of a built model with rotary positions."""
    config = gpt.config
    return Decoder(
        dims=sizes,
        hidden=config.hidden_size,
        layers=config.num_layers,
        epsilon=config.layernorm_epsilon,
        rotary_base=float(config.rotary_base if config.multi_latent_attention else getattr(gpt, "rotary_base", 0)),
        positions=gpt.max_sequence_length,
        tied=bool(gpt.share_embeddings_and_output_weights),
        routing=routing(config, normalised=not getattr(config, "moe_router_pre_softmax", False) or not is_softmax(config)),
        latent=latent(config),
        yarn=yarn(config) if config.multi_latent_attention and config.rope_type == "yarn" else None,
        predicted=getattr(config, "mtp_num_layers", None) or 0,
    )


def is_softmax(config: Any) -> bool:
    """Whether a router's scores are a softmax; sigmoids of the chosen are always divided by their sum."""
    return bool(config.moe_router_score_function == "softmax")


def routing(config: Any, *, normalised: bool) -> Routing | None:
    """How tokens choose among experts; None without experts."""
    if not config.num_moe_experts:
        return None
    return Routing(
        experts=config.num_moe_experts,
        chosen=config.moe_router_topk,
        sparse=sparse_layers(config),
        normalised=normalised,
        factor=float(config.moe_router_topk_scaling_factor or 1.0),
        groups=config.moe_router_num_groups or None,
        chosen_groups=config.moe_router_group_topk or None,
        shared=config.moe_shared_expert_intermediate_size or 0,
    )


def latent(config: Any) -> Latent | None:
    """The sizes of latent attention; None where attention is not latent."""
    if not config.multi_latent_attention:
        return None
    return Latent(
        queries=config.q_lora_rank or None,
        keys=config.kv_lora_rank,
        head=config.qk_head_dim,
        turned=config.qk_pos_emb_head_dim,
        value=config.v_head_dim,
    )


def yarn(config: Any) -> Yarn:
    """How YaRN scales the positions of latent attention."""
    return Yarn(
        factor=float(config.rotary_scaling_factor),
        original=int(config.original_max_position_embeddings),
        beta_fast=float(config.beta_fast),
        beta_slow=float(config.beta_slow),
        mscale=float(config.mscale),
        mscale_all_dim=float(config.mscale_all_dim),
    )
