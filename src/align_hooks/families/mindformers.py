"""MindFormers' newer models (``use_legacy: False``, 1.9): their names, from Megatron-LM's rules, and the facts of their configuration.

Names are those of Megatron-LM's local layers, except that experts are stacked, and latent attention's first projections are joined
(``mla_qkv_concat``). Fused layouts are options: ``use_contiguous_weight_layout_attention`` and ``use_interleaved_weight_layout_mlp``.
A ``TransformerConfig`` has Megatron-LM's fields, so :mod:`.megatron` reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from align_hooks.families import megatron
from align_hooks.families.family import Allowed, Decoder, GPTModel, InMindFormers, ModelConfig, tables, without
from align_hooks.names import blocks
from align_hooks.names.blocks import Dims
from align_hooks.names.table import NameTable, Rule

_TABLES = tables("mindformers.txt")
PLAIN: Allowed = _TABLES["plain"]
TELECHAT3: Allowed = {**PLAIN, "qk_layernorm": (False,)}
"""The values that a Llama allows in the class TeleChat3, whose configuration can normalise queries and keys."""
OF_ANY_FFN = without(PLAIN, "num_moe_experts")
WITH_EXPERTS: Allowed = {**OF_ANY_FFN, **_TABLES["router"]}
"""The values that a Qwen3-MoE allows."""
LATENT: Allowed = {**OF_ANY_FFN, **_TABLES["latent"]}
"""The values that a DeepSeek-V3 allows."""
INTERLEAVED = {blocks.GATE_THEN_UP: blocks.GATE_UP_BY_ROW, blocks.HALVES: blocks.HALVES_BY_ROW}
STACKS = {"linear_fc1.weight": ("weight1", blocks.STACKED_GATE_UP), "linear_fc2.weight": ("weight2", blocks.STACKED_DOWN)}
"""An expert's parameter to the stack that holds it, and its layout."""
OF_EXPERTS = ".mlp.experts.local_experts.{expert}."
JOINED = {
    "linear_q_down_proj.weight": None,
    "linear_kv_down_proj.weight": "linear_qkv.weight",
    "linear_q_up_proj.weight": "linear_qb.weight",
    "linear_kv_up_proj.weight": "linear_kvb.weight",
    "kv_layernorm.weight": "k_layernorm.weight",
}
"""Latent attention's parameters with ``mla_qkv_concat``, by their names in Megatron-LM; None where it is the first part of the next one."""


def table(model: str, rules: Sequence[Rule], *, contiguous: bool = False, interleaved: bool = True, joined: bool = True) -> NameTable:
    """Return the table of a model from its ``rules`` in Megatron-LM, in the layouts that a configuration chooses."""
    return NameTable("MindFormers", model, tuple(_rules(rules, contiguous=contiguous, interleaved=interleaved, joined=joined)))


def _rules(rules: Sequence[Rule], *, contiguous: bool, interleaved: bool, joined: bool) -> Iterator[Rule]:
    head: tuple[str, ...] = ()
    for rule in rules:
        name, attention = rule.native, rule.native.rpartition("self_attention.")[2]
        if name.endswith((".layer_norm_weight", "{expert}")):
            continue  # Transformer Engine's
        if OF_EXPERTS in name:
            prefix, _, kind = name.partition(OF_EXPERTS)
            stack, layout = STACKS[kind]
            yield replace(rule, native=f"{prefix}.mlp.experts.{stack}", layout=layout, axis=0)
        elif joined and attention in JOINED:
            own = JOINED[attention]
            if own is None:
                head = rule.canonical
            elif head and own == "linear_qkv.weight":
                native = name.replace(attention, own)
                yield replace(rule, native=native, canonical=(*head, *rule.canonical), layout=blocks.QUERIES_THEN_KEYS)
            else:
                yield replace(rule, native=name.replace(attention, own))
        elif rule.layout is blocks.QKV_PER_GROUP and contiguous:
            yield replace(rule, layout=blocks.QKV_CONTIGUOUS)
        else:
            yield replace(rule, layout=INTERLEAVED.get(rule.layout, rule.layout)) if interleaved else rule


BIAS = ".mlp.router.expert_bias"
"""The bias of the experts, which a layer and not its router holds in a PyNative model."""


def pynative(name: str, model_type: str, model: str, rules: Sequence[Rule], holds: Allowed) -> InMindFormers:
    """Describe how MindFormers builds a family by its class ``PyNative…ForCausalLM`` (2.0, 2.1), whose layouts no option chooses."""
    moved = [replace(rule, native=rule.native.replace(BIAS, BIAS.replace(".router", ""))) for rule in rules]
    return replace(newer(name, model_type, model, moved, holds), network=f"PyNative{name}ForCausalLM", variant=None)


def newer(name: str, model_type: str, model: str, rules: Sequence[Rule], holds: Allowed) -> InMindFormers:
    """Describe how MindFormers builds a family by its class ``Training…ForCausalLM``; ``rules`` are Megatron-LM's."""

    def variant(config: ModelConfig) -> NameTable:
        return table(
            model,
            rules,
            contiguous=bool(config.use_contiguous_weight_layout_attention),
            interleaved=bool(config.use_interleaved_weight_layout_mlp),
            joined=bool(config.mla_qkv_concat),
        )

    def misfits(config: ModelConfig) -> list[str]:
        values = {name: getattr(config, name, None) for name in holds}
        return megatron.differing(values | {"hidden_act": str(values["hidden_act"]).lower()}, holds)  # as get_activation reads it

    return InMindFormers(
        network=f"Training{name}ForCausalLM",
        module=f"mindformers.models.{model_type}",
        configuration="TransformerConfig",
        model_type=model_type,
        legacy=False,
        table=table(model, rules),
        misfits=misfits,
        dims=dims,
        decoder=decoder,
        variant=variant,
        as_built=as_built,
    )


def dims(config: ModelConfig, vocabulary: int | None) -> Dims:
    """Return the sizes of a TransformerConfig; ``vocabulary`` excludes padding."""
    return megatron.dims_of(config, vocabulary or config.vocab_size, config.vocab_size)


def decoder(config: ModelConfig, sizes: Dims) -> Decoder:
    """Return the facts of the model of a TransformerConfig."""
    scaled = config.multi_latent_attention and config.position_embedding_type == "yarn"
    return Decoder(
        dims=sizes,
        hidden=getattr(config, "hidden_size", None),
        layers=config.num_layers,
        epsilon=getattr(config, "layernorm_epsilon", None),
        rotary_base=getattr(config, "rotary_base", None),
        positions=getattr(config, "max_position_embeddings", None),
        tied=False if config.multi_latent_attention else getattr(config, "tie_word_embeddings", None),
        routing=megatron.routing(config, normalised=getattr(config, "norm_topk_prob", None)),
        latent=megatron.latent(config),
        predicted=megatron.known(config, "mtp_num_layers", unset=0),
        rope_scaling=megatron.yarn(config, config.max_position_embeddings) if scaled else None,
    )


def as_built(gpt: GPTModel, described: Decoder) -> Decoder:
    """Return the facts of a built model, whose class may ignore its configuration's base and tying."""
    tied = getattr(gpt, "share_embeddings_and_output_weights", described.tied)
    base = megatron.rotary_base(gpt, described) if megatron.frequencies(gpt) else described.rotary_base
    return replace(described, tied=tied, rotary_base=base)
