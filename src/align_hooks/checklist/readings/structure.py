"""Sizes, activation, biases, positions and vocabulary of a model, as each side works them out."""

from __future__ import annotations

import math
from typing import Any

from align_hooks.checklist.defaults import CHATGLM, HEAD_DIM, KEY_VALUE_HEADS, LLAMA, MLA, OLDER, default, family
from align_hooks.checklist.meaning import Scaling, Words
from align_hooks.checklist.readings.said import FFN, GROUPS, HEADS, known, number, said
from align_hooks.checklist.row import MODEL, UNSET, is_new, model, text
from align_hooks.configuration.values import MINDFORMERS, Configuration
from align_hooks.messages import message


def megatron_ffn(c: Configuration) -> Any:
    """``--ffn-hidden-size``, or four times the hidden size, two thirds of it in multiples of 64 with SwiGLU."""
    given, hidden = said(c, ("ffn_hidden_size",)), said(c, ("hidden_size",))
    if given is not UNSET or not known(hidden):
        return given
    return int((4 * hidden * 2 / 3) / 64) * 64 if said(c, ("swiglu",), False) else 4 * hidden


def mindformers_ffn(c: Configuration) -> Any:
    """``intermediate_size``; of an older model without one ``multiple_of`` and ``ffn_dim_multiplier`` make it."""
    given = number(c, FFN)
    if given is not UNSET:
        return given
    if is_new(c) or family(c) != LLAMA:
        return default("ffn_hidden_size")(c)
    hidden = number(c, model("hidden_size"), default("hidden_size"))
    multiple, factor = number(c, model("multiple_of"), 256), number(c, model("ffn_dim_multiplier"), None)
    if not known(hidden, multiple):
        return UNSET
    size = 4 * hidden
    if factor is not None:
        size = int((factor + 0.01) * size)
    size = int(2 * size / 3)
    return int(multiple * ((size + multiple - 1) // multiple))


def megatron_groups(c: Configuration) -> Any:
    """``--num-query-groups``, which counts only with ``--group-query-attention``; else one a head."""
    if said(c, ("multi_latent_attention",), False) or not said(c, ("group_query_attention",), False):
        c.find(("num_query_groups",))
        return said(c, ("num_attention_heads",))
    return said(c, ("num_query_groups",), 1)


def mindformers_heads(c: Configuration) -> Any:
    """Attention heads."""
    return number(c, HEADS, default("num_attention_heads"))


def mindformers_groups(c: Configuration) -> Any:
    """Key and value heads; one a head where nothing is said. Latent attention has none of its own."""
    given, heads = number(c, GROUPS), mindformers_heads(c)
    if mindformers_mla(c):
        return heads
    if given is UNSET and known(heads):
        return heads if c.unread else KEY_VALUE_HEADS.get(family(c) or "", heads)
    return given


def megatron_head_dim(c: Configuration) -> Any:
    """``--kv-channels``, or the hidden size divided by the heads."""
    given, hidden, heads = said(c, ("kv_channels",)), said(c, ("hidden_size",)), said(c, ("num_attention_heads",))
    return hidden // heads if given is UNSET and known(hidden, heads) and heads else given


def mindformers_head_dim(c: Configuration) -> Any:
    """``head_dim``; older models divide the hidden size by the heads, and newer families have defaults."""
    given = number(c, model("head_dim", "kv_channels"))
    hidden, heads = number(c, model("hidden_size"), default("hidden_size")), mindformers_heads(c)
    if given is not UNSET:
        return given
    of_family = HEAD_DIM.get(family(c) or "")
    return of_family if of_family is not None else hidden // heads if known(hidden, heads) and heads else UNSET


def megatron_activation(c: Configuration) -> Any:
    """The activation function; of a fused GELU with a bias, which is Megatron's default, the one with the tangent."""
    if said(c, ("swiglu",), False):
        return "swiglu"
    if said(c, ("squared_relu",), False):
        return "squared relu"
    if said(c, ("quick_geglu",), False):
        return "quick geglu"
    fused = said(c, ("bias_gelu_fusion",), True) and said(c, ("add_bias_linear",), True)
    return "gelu (tanh)" if said(c, ("openai_gelu",), False) or fused else "gelu"


def mindformers_activation(c: Configuration) -> Any:
    """``hidden_act`` with ``gated_linear_unit``; the older LLaMA knows SwiGLU alone."""
    if not is_new(c):
        return "swiglu" if family(c) in OLDER else UNSET
    act = text(said(c, model("hidden_act"), default("hidden_act")))
    gated = said(c, model("gated_linear_unit"), default("gated_linear_unit"))
    if act in ("swiglu", "fusedswiglu") or (act in ("silu", "swish") and gated):
        return "swiglu"
    known_as = {"gelu": "gelu", "gelu_new": "gelu (tanh)", "gelu_pytorch_tanh": "gelu (tanh)", "relu2": "squared relu"}
    return known_as.get(str(act), act) if not gated else f"gated {act}"


def megatron_gated(c: Configuration) -> Any:
    """Whether the MLP multiplies by a gate."""
    return bool(said(c, ("swiglu",), False) or said(c, ("quick_geglu",), False))


def mindformers_gated(c: Configuration) -> Any:
    """Whether the MLP multiplies by a gate."""
    act = text(said(c, model("hidden_act"), ""))
    return act in ("swiglu", "fusedswiglu") or said(c, model("gated_linear_unit"), default("gated_linear_unit"))


def megatron_qkv_bias(c: Configuration) -> Any:
    """Queries, keys and values have a bias with ``--add-qkv-bias``, and where linear layers have one."""
    return bool(said(c, ("add_qkv_bias",), False) or said(c, ("add_bias_linear",), True))


def mindformers_qkv_bias(c: Configuration) -> Any:
    """The same in MindFormers."""
    own = said(c, model("qkv_has_bias", "attention_bias", "add_qkv_bias"), default("add_qkv_bias"))
    linear = said(c, model("add_bias_linear"), default("add_bias_linear")) if is_new(c) else False
    return UNSET if UNSET in (own, linear) else bool(own or linear)


def megatron_tied(c: Configuration) -> Any:
    """Whether the embedding is the output layer too; Megatron's default."""
    return not said(c, ("untie_embeddings_and_output_weights",), False)


def mindformers_tied(c: Configuration) -> Any:
    """``tie_word_embeddings``. The key that sounds like Megatron's is a field that the training graph does not read."""
    opposite = said(c, model("untie_embeddings_and_output_weights"))
    given = said(c, model("tie_word_embeddings"), default("tie_word_embeddings"))
    if family(c) in (*MLA, "telechat3"):
        return False
    return given if given is not UNSET else (not opposite if opposite is not UNSET else UNSET)


def megatron_padded_vocabulary(c: Configuration) -> Any:
    """Rows of the embedding: the vocabulary in multiples of ``--make-vocab-size-divisible-by`` times the tensor-parallel size."""
    recorded = c.fact("padded_vocabulary")
    if recorded is not None:
        return recorded
    given = said(c, ("padded_vocab_size",))
    size = said(c, ("vocab_size",))
    multiple = said(c, ("make_vocab_size_divisible_by",), 128) * said(c, ("tensor_model_parallel_size",), 1)
    if given is not UNSET or not known(size, multiple):
        return given
    return size if said(c, ("pad_vocab_size",), True) is False else math.ceil(size / multiple) * multiple


def mindformers_vocabulary(c: Configuration) -> Any:
    """``vocab_size`` as it stands: the embedding has so many rows. ChatGLM2 calls it ``padded_vocab_size``, which no other model reads."""
    known_as = {CHATGLM: ("padded_vocab_size",), None: ("vocab_size", "padded_vocab_size")}.get(family(c), ("vocab_size",))
    return number(c, model(*known_as), default("vocab_size"))


def mindformers_rows(c: Configuration) -> Any:
    """Rows of the embedding; of a record those that were built."""
    recorded = c.fact("padded_vocabulary")
    return recorded if recorded is not None else mindformers_vocabulary(c)


def padded_size_alone(one: Configuration, other: Configuration) -> Words | None:
    """MindFormers has no size without padding, or that of what fed it: rows of the embedding are what can be held against each other."""
    rows = [mindformers_rows(c) if c.side == MINDFORMERS else megatron_padded_vocabulary(c) for c in (one, other)]
    if UNSET in rows or MINDFORMERS not in (one.side, other.side):
        return None
    return message("harmless.padded_size")


def megatron_positions(c: Configuration) -> Any:
    """Which positions the model sees. Latent attention uses YaRN unless ``--rope-type`` says otherwise."""
    if said(c, ("multi_latent_attention",), False):
        return said(c, ("rope_type",), "yarn")
    if said(c, ("use_rotary_position_embeddings",), False):
        return "rope"
    return text(said(c, ("position_embedding_type",), "learned_absolute"))


def mindformers_positions(c: Configuration) -> Any:
    """The same; a ``rope_scaling`` of a newer model names its own type."""
    scaling = text(said(c, model("rope_scaling.type", "rope_scaling.rope_type")))
    given = text(said(c, model("position_embedding_type")))
    extended = text(said(c, model("extend_method"), "none"))
    if is_new(c):
        kind = scaling if scaling is not UNSET else given if given is not UNSET else default("position_embedding_type")(c)
        return "none" if kind in ("llama3", "linear", "dynamic") else kind  # turned only where it is called rope or yarn
    return "yarn" if extended == "yarn" else "rope" if family(c) in OLDER else UNSET


def megatron_rope_scaling(c: Configuration) -> Any:
    """Llama 3.1's scaling with its factor, or none."""
    return Scaling("llama3", float(number(c, ("rope_scaling_factor",), 8.0))) if said(c, ("use_rope_scaling",), False) else "none"


def mindformers_rope_scaling(c: Configuration) -> Any:
    """The same, and the older models' PI and NTK, which Megatron has not."""
    kind = text(said(c, model("rope_scaling.type", "rope_scaling.rope_type", "extend_method"), "none"))
    factor = number(c, model("rope_scaling.factor", "scaling_factor.factor", "scaling_factor", "rotary_scaling_factor"), 1.0)
    flagged = said(c, model("use_rope_scaling"), False)
    if kind in ("none", "default", "yarn", "rope") and not flagged:
        return "none"
    return Scaling("llama3" if flagged else str(kind), float(factor) if known(factor) else factor)


def mindformers_mla(c: Configuration) -> Any:
    """Whether attention is latent; some families are nothing else."""
    given = said(c, model("multi_latent_attention"), default("multi_latent_attention"))
    return True if family(c) in MLA and given is UNSET else given


def mindformers_qk_norm(c: Configuration) -> Any:
    """Whether queries and keys are normalised; Qwen3 does it whatever its YAML says."""
    given = said(c, model("qk_layernorm", "use_qk_norm"), default("qk_layernorm"))
    return True if family(c) in ("qwen3", "qwen3_moe") else given


def is_latent(c: Configuration) -> bool:
    """Whether attention is latent."""
    found = c.find(("multi_latent_attention", *model("multi_latent_attention")))
    return found is not None and found.value is True


def is_yarn(c: Configuration) -> bool:
    """Whether positions are turned by YaRN."""
    return bool((mindformers_positions if c.side == MINDFORMERS else megatron_positions)(c) == "yarn")


def window(c: Configuration) -> Any:
    """How far attention looks back, None for all of the sequence."""
    on, size = c.find(model("use_sliding_window")), c.find(model("sliding_window", "window_size"))
    return None if size is None or (on is not None and on.value is False) else size.value


def without_positions(c: Configuration) -> Any:
    """Whether ``--no-position-embedding`` was given."""
    found = c.find(("add_position_embedding",))
    return found is not None and found.value is False


def legacy_megatron(c: Configuration) -> Any:
    """Whether the model is one of before megatron.core."""
    c.find(("deprecated_use_mcore_models",))
    found = c.find(("use_legacy_models",))
    return found is not None and found.value is True


def no_table_of_positions(one: Configuration, other: Configuration) -> Words | None:
    """How long sequences may be says nothing about those that are shorter, unless positions are learned."""
    kinds = [mindformers_positions(c) if c.side == MINDFORMERS else megatron_positions(c) for c in (one, other)]
    return None if "learned_absolute" in kinds else message("harmless.not_learned")


def no_yarn(one: Configuration, other: Configuration) -> Words | None:
    """Factors of YaRN mean nothing without it."""
    return None if is_yarn(one) or is_yarn(other) else message("harmless.no_yarn")


def latent_heads(one: Configuration, other: Configuration) -> Words | None:
    """Latent attention has sizes of its own for its heads."""
    return message("harmless.latent") if is_latent(one) or is_latent(other) else None


def mindformers_longest(c: Configuration) -> Any:
    """How long sequences may be; of older models the sequence length where nothing is said."""
    given = number(c, model("max_position_embedding", "max_position_embeddings"))
    if given is not UNSET and given:
        return given
    return default("max_position_embeddings")(c) if is_new(c) else number(c, model("seq_length"), default("seq_length"))


def mindformers_original(c: Configuration) -> Any:
    """The length that YaRN stretches; with a ``rope_scaling`` that names none it is the sequence's."""
    own = number(c, model("rope_scaling.original_max_position_embeddings"))
    if own is not UNSET:
        return own
    scaled = any(name.startswith(f"{MODEL}rope_scaling.") for name in c.values)
    return number(c, model("seq_length"), default("seq_length")) if scaled else mindformers_longest(c)
