"""What Megatron-LM's models of every family have in common: how a built one is read, and held against what a family holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from align_hooks.families.family import Decoder
from align_hooks.names.blocks import Dims

Holds = Mapping[str, tuple[object, ...]]
"""Name of what a built model says of itself to the values that a family allows, the usual one first."""

SAID: Mapping[str, Callable[[Any, Any], Any]] = {
    "position_embedding_type": lambda gpt, args: gpt.position_embedding_type,
    "rotary_percent": lambda gpt, args: getattr(args, "rotary_percent", 1.0),
    "dense layers between experts": lambda gpt, args: getattr(gpt.config, "moe_layer_freq", 1) not in (1, [1] * gpt.config.num_layers),
    "use_rope_scaling": lambda gpt, args: bool(getattr(args, "use_rope_scaling", False)),
    "activation_func": lambda gpt, args: function_name(gpt.config.activation_func),
}
"""How what is no attribute of the configuration is read of a built model and Megatron's arguments."""

OWN = ("", "torch", "megatron")
"""Packages whose functions are known by their names alone."""


def function_name(function: Any) -> str:
    """The name of a function, with its module where that is none of torch's or Megatron's."""
    name, module = getattr(function, "__name__", str(function)), getattr(function, "__module__", None) or ""
    return name if module.partition(".")[0] in OWN else f"{module}.{name}"


def misfits(holds: Holds) -> Callable[[Any, Any], list[str]]:
    """In what a built model is none that ``holds`` says, in words."""

    def of(gpt: Any, args: Any) -> list[str]:
        read = {name: SAID[name](gpt, args) if name in SAID else getattr(gpt.config, name, allowed[0]) for name, allowed in holds.items()}
        return [f"{name} is {read[name]}, not {allowed[0]}" for name, allowed in holds.items() if read[name] not in allowed]

    return of


def dims(gpt: Any, vocabulary: int) -> Dims:
    """The sizes of a built model, over all tensor-parallel ranks; ``vocabulary`` excludes padding."""
    config = gpt.config
    padded = gpt.vocab_size
    return Dims(
        heads=config.num_attention_heads,
        groups=config.num_query_groups,
        head_dim=config.kv_channels,
        ffn=config.ffn_hidden_size,
        vocabulary=min(vocabulary, padded),
        padded=padded,
        expert_ffn=getattr(config, "moe_ffn_hidden_size", None) or config.ffn_hidden_size,
    )


def decoder(gpt: Any, sizes: Dims) -> Decoder:
    """What a built model with rotary positions says of itself."""
    config = gpt.config
    return Decoder(
        dims=sizes,
        hidden=config.hidden_size,
        layers=config.num_layers,
        epsilon=config.layernorm_epsilon,
        rotary_base=float(gpt.rotary_base),
        positions=gpt.max_sequence_length,
        tied=bool(gpt.share_embeddings_and_output_weights),
        experts=config.num_moe_experts or 0,
        chosen_experts=config.moe_router_topk if config.num_moe_experts else 0,
    )
