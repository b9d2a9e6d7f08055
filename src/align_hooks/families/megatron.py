"""What Megatron-LM's models of every family share: how a built model is read, and compared with what a family allows."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from align_hooks.families.family import Args, Decoder, GPTModel
from align_hooks.names.blocks import Dims

Holds = Mapping[str, tuple[object, ...]]
"""Name of a property of a built model to the values that a family allows, the usual value first."""

BESIDE_CONFIGURATION: Mapping[str, Callable[[GPTModel, Args], object]] = {
    "position_embedding_type": lambda gpt, args: gpt.position_embedding_type,
    "rotary_percent": lambda gpt, args: getattr(args, "rotary_percent", 1.0),
    "dense layers between experts": lambda gpt, args: getattr(gpt.config, "moe_layer_freq", 1) not in (1, [1] * gpt.config.num_layers),
    "use_rope_scaling": lambda gpt, args: bool(getattr(args, "use_rope_scaling", False)),
    "activation_func": lambda gpt, args: function_name(gpt.config.activation_func),
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
        values = {name: beside[name] if name in beside else getattr(gpt.config, name, allowed[0]) for name, allowed in holds.items()}
        return [f"{name} is {values[name]}, not {allowed[0]}" for name, allowed in holds.items() if values[name] not in allowed]

    return misfits_of


def dims(gpt: GPTModel, vocabulary: int) -> Dims:
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


def decoder(gpt: GPTModel, sizes: Dims) -> Decoder:
    """The facts of a built model with rotary positions."""
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
