"""What MindFormers' newer models (``use_legacy: False``, 1.9) share: the way from Megatron-LM's rules, and how a configuration is read.

Their parameters have the names that Megatron-LM's have with its local layers, but for experts, which are stacked, and for latent attention,
whose first projections are joined unless ``mla_qkv_concat`` is off. Their fused layouts are options:
``use_contiguous_weight_layout_attention`` and ``use_interleaved_weight_layout_mlp``. A model is built from a ``TransformerConfig`` with
Megatron-LM's fields, so :mod:`.megatron` reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace

from align_hooks.families import megatron
from align_hooks.families.family import Decoder, GPTModel, InMindFormers, ModelConfig, Yarn
from align_hooks.names.blocks import (
    GATE_THEN_UP,
    GATE_UP_BY_ROW,
    HALVES,
    HALVES_BY_ROW,
    QKV_CONTIGUOUS,
    QKV_PER_GROUP,
    QUERIES_THEN_KEYS,
    STACKED_DOWN,
    STACKED_GATE_UP,
    Dims,
)
from align_hooks.names.table import Rule, Table

PLAIN: megatron.Holds = {
    "normalization": ("RMSNorm",),
    "gated_linear_unit": (True,),
    "multi_latent_attention": (False,),
    "mtp_num_layers": (None, 0),
    "add_bias_linear": (False,),
    "add_qkv_bias": (False,),
    "rotary_interleaved": (False,),
    "position_embedding_type": ("rope",),
    "hidden_act": ("silu", "swiglu", "fusedswiglu"),
    "window_size": (None,),
    "experimental_attention_variant": (None,),
    "num_moe_experts": (None,),
}
"""What a Llama allows. Whether queries and keys are normalised is the class's choice, but for TeleChat3's.

The three activations are one function behind gated linear layers: ``silu`` of the gate times the other half. ``silu`` is multiplied by the
layer, ``swiglu`` by the activation itself, and ``fusedswiglu``, which ``bias_swiglu_fusion`` makes of ``swiglu``, by one operator (1.9:
``training_graph/transformer/mlp.py:139-151`` and ``212-228``, ``training_graph/activation.py:29-84``, ``transformer_config.py:2284-2289``).
Experts read none of them: theirs is always the fused operator (``training_graph/transformer/moe/ffn.py:130`` and ``180``).
No class passes ``rotary_seq_len_interpolation_factor`` on to its positions (``base_models/gpt/gpt_model.py:301-319``).
"""
TELECHAT3: megatron.Holds = {**PLAIN, "qk_layernorm": (False,)}
"""What a Llama allows of the class TeleChat3, which normalises queries and keys where its configuration says so."""
ROUTER: megatron.Holds = {
    "moe_router_score_function": ("softmax",),
    "moe_shared_expert_intermediate_size": (None, 0),
    "moe_router_enable_expert_bias": (False,),
    "moe_router_num_groups": (None, 0, 1),
    "moe_router_topk_scaling_factor": (None, 1.0),
    "use_shared_expert_gating": (False,),
    "moe_router_force_expert_balance": (False,),
}
"""What a router allows that chooses by softmax, without groups, bias or shared experts."""
OF_ANY_FFN: megatron.Holds = {name: allowed for name, allowed in PLAIN.items() if name != "num_moe_experts"}
WITH_EXPERTS: megatron.Holds = {**OF_ANY_FFN, **ROUTER}
"""What a Qwen3-MoE allows."""
LATENT: megatron.Holds = {
    **OF_ANY_FFN,
    "multi_latent_attention": (True,),
    "mtp_num_layers": (None, 0, 1),
    "position_embedding_type": ("rope", "yarn"),
    "qk_layernorm": (True,),
    "moe_router_score_function": ("sigmoid",),
    "use_shared_expert_gating": (False,),
    "moe_router_force_expert_balance": (False,),
}
"""What a DeepSeek-V3 allows."""

INTERLEAVED = {GATE_THEN_UP: GATE_UP_BY_ROW, HALVES: HALVES_BY_ROW}
STACKS = {"linear_fc1.weight": ("weight1", STACKED_GATE_UP), "linear_fc2.weight": ("weight2", STACKED_DOWN)}
"""Of an expert's parameter: the stack, and how its pieces lie there."""
OF_EXPERTS = ".mlp.experts.local_experts.{expert}."
JOINED = {
    "linear_q_down_proj.weight": None,
    "linear_kv_down_proj.weight": "linear_qkv.weight",
    "linear_q_up_proj.weight": "linear_qb.weight",
    "linear_kv_up_proj.weight": "linear_kvb.weight",
    "kv_layernorm.weight": "k_layernorm.weight",
}
"""Latent attention's parameters with ``mla_qkv_concat``, by their names in Megatron-LM; None for what stands at the head of the next."""


def table(model: str, rules: Sequence[Rule], *, contiguous: bool = False, interleaved: bool = True, joined: bool = True) -> Table:
    """The table of a model whose rules in Megatron-LM are given, in the layouts that a configuration chooses."""
    return Table("MindFormers", model, tuple(_rules(rules, contiguous=contiguous, interleaved=interleaved, joined=joined)))


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
                yield replace(rule, native=name.replace(attention, own), canonical=(*head, *rule.canonical), layout=QUERIES_THEN_KEYS)
            else:
                yield replace(rule, native=name.replace(attention, own))
        elif rule.layout is QKV_PER_GROUP and contiguous:
            yield replace(rule, layout=QKV_CONTIGUOUS)
        else:
            yield replace(rule, layout=INTERLEAVED.get(rule.layout, rule.layout)) if interleaved else rule


def newer(name: str, model_type: str, model: str, rules: Sequence[Rule], holds: megatron.Holds) -> InMindFormers:
    """How MindFormers builds a family by its class ``Training…ForCausalLM``; ``rules`` are Megatron-LM's."""

    def variant(config: ModelConfig) -> Table:
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
    """The sizes of a TransformerConfig; ``vocabulary`` excludes padding."""
    return megatron.dims_of(config, vocabulary or config.vocab_size, config.vocab_size)


def decoder(config: ModelConfig, sizes: Dims) -> Decoder:
    """The facts of the model of a TransformerConfig."""
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
        yarn=_yarn(config) if scaled else None,
        predicted=megatron.known(config, "mtp_num_layers", unset=0),
    )


def as_built(gpt: GPTModel, described: Decoder) -> Decoder:
    """The facts of a built model. Its class may pass on another base than its configuration has, and does not always pass on tying."""
    tied = getattr(gpt, "share_embeddings_and_output_weights", described.tied)
    base = megatron.rotary_base(gpt, described) if megatron.frequencies(gpt) else described.rotary_base
    return replace(described, tied=tied, rotary_base=base)


def _yarn(config: ModelConfig) -> Yarn:
    """How YaRN scales positions: it starts from ``max_position_embeddings``."""
    fields = ("rotary_scaling_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim")
    return megatron.yarn(
        SimpleNamespace(original_max_position_embeddings=config.max_position_embeddings, **{name: getattr(config, name) for name in fields})
    )
