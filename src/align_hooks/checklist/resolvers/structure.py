"""Sizes, activation, biases, positions and vocabulary of a model, as each side computes them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping

from align_hooks.checklist import mindformers_models as models
from align_hooks.checklist.canonical_values import UNSET, RopeWavelengths, Scaling, Words, text
from align_hooks.checklist.lookup import (
    FFN,
    GROUPS,
    HEADS,
    MODEL,
    Unstated,
    all_sides,
    are_numbers,
    by_side,
    has,
    is_new,
    is_off,
    is_older_core,
    model,
    value_of,
)
from align_hooks.checklist.resolver import EditRequest, Edits, one_key, resolver
from align_hooks.checklist.resolvers import mindspeed
from align_hooks.configuration.values import MEGATRON, MINDFORMERS, Configuration, Setting
from align_hooks.messages import message

CHATGLM_BASE = 10000
YARN = "yarn"
"""The name of YaRN's scaling in both frameworks."""
ORIGINAL = model(*(f"{table}.original_max_position_embeddings" for table in ("rope_scaling", "scaling_factor")))
"""Keys of the length that YaRN stretches."""


def megatron_ffn(c: Configuration) -> Setting:
    """Return ``--ffn-hidden-size``, or four times the hidden size, two thirds of it in multiples of 64 with SwiGLU."""
    size = value_of(c, ("ffn_hidden_size",))
    if size is not UNSET or not are_numbers(hidden := value_of(c, ("hidden_size",))):
        return size
    return int((4 * hidden * 2 / 3) / 64) * 64 if value_of(c, ("swiglu",), False) else 4 * hidden


def mindformers_ffn(c: Configuration) -> Setting:
    """Return ``intermediate_size``; older models compute it by ``multiple_of`` and ``ffn_dim_multiplier``, GPT-2 by ``expand_ratio``."""
    if (size := value_of(c, FFN)) is not UNSET:
        return size
    if is_new(c) or models.family(c) not in (models.LLAMA, models.GPT2):
        return models.default("ffn_hidden_size")(c)
    hidden = value_of(c, model("hidden_size"), models.default("hidden_size"))
    if models.family(c) == models.GPT2:
        return hidden * value_of(c, model("expand_ratio"), 4) if are_numbers(hidden) else UNSET
    multiple, factor = value_of(c, model("multiple_of"), 256), value_of(c, model("ffn_dim_multiplier"), None)
    if not are_numbers(hidden, multiple):
        return UNSET
    size = int(2 * (4 * hidden if factor is None else int((factor + 0.01) * (4 * hidden))) / 3)
    return int(multiple * ((size + multiple - 1) // multiple))


def megatron_groups(c: Configuration) -> Setting:
    """Return ``--num-query-groups``, which counts only with ``--group-query-attention``; else one a head."""
    if mindspeed.latent(c) or not value_of(c, ("group_query_attention",), False):
        return value_of(c, ("num_attention_heads",))
    return value_of(c, ("num_query_groups",), 1)


def mindformers_heads(c: Configuration) -> Setting:
    """Return the number of attention heads."""
    return value_of(c, HEADS, models.default("num_attention_heads"))


def mindformers_groups(c: Configuration) -> Setting:
    """Return the key and value heads, one a head by default; latent attention has none of its own."""
    if mindformers_mla(c):
        return mindformers_heads(c)
    if (groups := value_of(c, GROUPS)) is UNSET and are_numbers(heads := mindformers_heads(c)):
        return UNSET if c.unread else models.KEY_VALUE_HEADS.get(models.family(c) or "", heads)
    return groups


def ungrouped(reference: Configuration, candidate: Configuration) -> Words | None:
    """Return why key and value heads need not agree: each side has one a head, whose number is another row."""
    sides = (reference, candidate)
    heads = [value_of(c, ("num_attention_heads",)) if c.side != MINDFORMERS else mindformers_heads(c) for c in sides]
    groups = [*map(by_side(megatron_groups, mindformers_groups), sides)]
    return message("harmless.ungrouped") if groups == heads and UNSET not in heads else None


def megatron_head_dim(c: Configuration) -> Setting:
    """Return ``--kv-channels``, or the hidden size divided by the heads."""
    if (size := value_of(c, ("kv_channels",))) is not UNSET:
        return size
    hidden, heads = (value_of(c, (name,)) for name in ("hidden_size", "num_attention_heads"))
    return hidden // heads if are_numbers(hidden, heads) and heads else UNSET


def mindformers_head_dim(c: Configuration) -> Setting:
    """Return ``head_dim``, a newer family's default, or the hidden size divided by the heads."""
    if (size := value_of(c, model("head_dim", "kv_channels"))) is not UNSET or c.unread:
        return size
    if (of_family := models.HEAD_DIM.get(models.family(c) or "")) is not None:
        return of_family
    hidden, heads = value_of(c, model("hidden_size"), models.default("hidden_size")), mindformers_heads(c)
    return hidden // heads if are_numbers(hidden, heads) and heads else UNSET


def megatron_activation(c: Configuration) -> Setting:
    """Return the activation function; of a fused GELU with a bias, which is Megatron's default, the one with the tangent."""
    names = {name: f"gated {gated}" for name, gated in mindspeed.GATED.items()}
    names |= {name: name.replace("_", " ") for name in ("swiglu", "squared_relu", "quick_geglu")}
    if (named := next((words for name, words in names.items() if value_of(c, (name,), False)), None)) is not None:
        return named
    fused = value_of(c, ("bias_gelu_fusion",), True) and value_of(c, ("add_bias_linear",), True)
    return "gelu (tanh)" if value_of(c, ("openai_gelu",), False) or fused else "gelu"


@resolver
def mindformers_activation(c: Configuration) -> Setting:
    """Return ``hidden_act`` with ``gated_linear_unit``; older models have SwiGLU only, but for GPT-2."""
    if not is_new(c) and models.family(c) != models.GPT2:
        return "swiglu" if models.family(c) in (*models.OLDER, *models.OLDER_DEFAULTS) else UNSET
    act = text(value_of(c, model("hidden_act"), models.default("hidden_act")))
    if models.family(c) == models.GPT2:  # whose GELU is the one with the tangent
        return "gelu (tanh)" if act == "gelu" else act
    gated = value_of(c, model("gated_linear_unit"), models.default("gated_linear_unit"))
    if UNSET in (act, gated):
        return UNSET
    if act in ("swiglu", "fusedswiglu") or (act in ("silu", "swish") and gated):
        return "swiglu"
    known_as = {"gelu": "gelu", "gelu_new": "gelu (tanh)", "gelu_pytorch_tanh": "gelu (tanh)", "relu2": "squared relu"}
    return known_as.get(str(act), act) if not gated else f"gated {act}"


def megatron_gated(c: Configuration) -> Setting:
    """Return whether the MLP multiplies by a gate."""
    return any(value_of(c, (name,), False) for name in ("swiglu", "quick_geglu", *mindspeed.GATED))


@resolver
def mindformers_gated(c: Configuration) -> Setting:
    """Return whether the MLP multiplies by a gate."""
    act = text(value_of(c, model("hidden_act"), ""))
    return act in ("swiglu", "fusedswiglu") or value_of(c, model("gated_linear_unit"), models.default("gated_linear_unit"))


@mindformers_activation.writer
@mindformers_gated.writer
def activation_edits(request: EditRequest) -> Iterator[Edits]:
    """Yield an activation with or without a gate."""
    named = request.wanted.removeprefix("gated ") if isinstance(request.wanted, str) else " "
    own = [] if " " in named else [named]  # an activation of several words goes by another name
    acts = ("silu", "gelu", "gelu_new", "gelu_pytorch_tanh", "relu2", "relu", "swiglu", *own)
    act, gated = model("hidden_act", "gated_linear_unit")
    yield from ({act: name} for name in acts if act in request.keys)
    yield from ({gated: on} for on in (True, False) if gated in request.keys)
    yield from ({act: name, gated: on} for name in acts for on in (True, False) if {act, gated} <= set(request.keys))


def megatron_qkv_bias(c: Configuration) -> Setting:
    """Return whether queries, keys and values have a bias: with ``--add-qkv-bias``, and where linear layers have one."""
    return bool(value_of(c, ("add_qkv_bias",), False) or value_of(c, ("add_bias_linear",), True))


def mindformers_qkv_bias(c: Configuration) -> Setting:
    """Return whether queries, keys and values have a bias: their own, or that of all linear layers of a newer model."""
    own = value_of(c, model("qkv_has_bias", "attention_bias", "add_qkv_bias"), models.default("add_qkv_bias"))
    linear = value_of(c, model("add_bias_linear"), models.default("add_bias_linear")) if is_new(c) else False
    return UNSET if UNSET in (own, linear) else bool(own or linear)


def mindformers_tied(c: Configuration) -> Setting:
    """Return ``tie_word_embeddings``; the training graph does not read the key that sounds like Megatron's."""
    opposite = value_of(c, model("untie_embeddings_and_output_weights"))
    tied = value_of(c, model("tie_word_embeddings"), models.default("tie_word_embeddings"))
    if models.family(c) in (*models.MLA, "telechat3"):
        return False
    return not opposite if tied is UNSET and opposite is not UNSET else tied


def multiple_of_rows(c: Configuration) -> Setting:
    """Return the number that Megatron pads a vocabulary to a multiple of."""
    return value_of(c, ("make_vocab_size_divisible_by",), 128) * value_of(c, ("tensor_model_parallel_size",), 1)


PATCHED = ("patch_tokenizer_type", "extra_vocab_size")
"""Arguments of Pai-Megatron-Patch, whose tokenizers pad in their own way or not at all (``megatron_patch/tokenizer/__init__.py``)."""


def megatron_padded_vocabulary(c: Configuration) -> Setting:
    """Return the rows of the embedding: the vocabulary padded to a multiple, or Megatron-DeepSpeed's ``--pad-vocab-size-to``."""
    if (recorded := c.fact("padded_vocabulary")) is not None:
        return recorded
    if (padded := value_of(c, ("padded_vocab_size", "pad_vocab_size_to"))) is not UNSET:
        return padded
    if (patched := next((name for name in PATCHED if name in c.values), None)) is not None:
        raise Unstated(message("untold.patched_tokenizer", place=c.values[patched].where))
    size, multiple = value_of(c, ("vocab_size",)), multiple_of_rows(c)
    if not are_numbers(size, multiple):
        return UNSET
    return size if value_of(c, ("pad_vocab_size",), True) is False else math.ceil(size / multiple) * multiple


def no_multiple(reference: Configuration, candidate: Configuration) -> Words | None:
    """Return why embeddings differ whatever Megatron's vocabulary is: MindFormers' rows are no multiple, as Megatron's are."""
    for one, other in ((reference, candidate), (candidate, reference)):
        if one.side == MINDFORMERS or other.side != MINDFORMERS or value_of(one, ("pad_vocab_size",), True) is False:
            continue
        multiple, rows = multiple_of_rows(one), mindformers_rows(other)
        if megatron_padded_vocabulary(one) is UNSET and are_numbers(rows, multiple) and rows % multiple:
            return message("apart.no_multiple", rows=rows, multiple=multiple)
    return None


def mindformers_vocabulary(c: Configuration) -> Setting:
    """Return ``vocab_size``, the rows of the embedding; only ChatGLM2 calls it ``padded_vocab_size``."""
    names = {models.CHATGLM: ("padded_vocab_size",), None: ("vocab_size", "padded_vocab_size")}.get(models.family(c), ("vocab_size",))
    return value_of(c, model(*names), models.default("vocab_size"))


def mindformers_rows(c: Configuration) -> Setting:
    """Return the rows of the embedding; of a record those that were built."""
    recorded = c.fact("padded_vocabulary")
    return recorded if recorded is not None else mindformers_vocabulary(c)


def padded_size_alone(reference: Configuration, candidate: Configuration) -> Words | None:
    """Return why vocabularies need not agree: MindFormers knows none without padding; rows of the embedding are compared."""
    rows = [mindformers_rows(c) if c.side == MINDFORMERS else megatron_padded_vocabulary(c) for c in (reference, candidate)]
    return None if UNSET in rows or MINDFORMERS not in (reference.side, candidate.side) else message("harmless.padded_size")


def megatron_positions(c: Configuration) -> Setting:
    """Return the kind of positions; those that YaRN scales are rotary, as all of latent attention."""
    if mindspeed.latent(c) or value_of(c, ("use_rotary_position_embeddings",), False):
        return "rope"
    kind = text(value_of(c, ("position_embedding_type",), "learned_absolute"))
    return "rope" if kind == YARN else kind


def megatron_has_yarn(c: Configuration) -> bool:
    """Return whether YaRN scales positions. Megatron-LM's latent attention has it unless ``--rope-type`` says otherwise."""
    if mindspeed.of_mindspeed(c):
        return bool(mindspeed.scaling_type(c) == YARN and megatron_positions(c) == "rope")
    if mindspeed.latent(c):
        return bool(value_of(c, ("rope_type",), YARN) == YARN)
    return bool(text(value_of(c, ("position_embedding_type",))) == YARN)


def mindformers_positions(c: Configuration) -> Setting:
    """Return the kind of positions; those that YaRN scales are rotary."""
    kind = _mindformers_kind(c)
    return "rope" if kind == YARN else kind


def _mindformers_kind(c: Configuration) -> Setting:
    """Return MindFormers' name of the positions, YaRN among them; ``rope_scaling`` of a newer model has its own."""
    scaling = text(value_of(c, model("rope_scaling.type", "rope_scaling.rope_type")))
    kind = text(value_of(c, model("position_embedding_type"), models.default("position_embedding_type")))
    extended = value_of(c, model("extend_method"), models.default("extend_method"))
    if is_new(c):
        kind = kind if scaling is UNSET else scaling
        return "none" if kind in ("llama3", "linear", "dynamic") else kind  # positions are turned only where they are called rope or yarn
    if str(value_of(c, ("model.arch.type",), "")).startswith("Baichuan13B"):
        return "alibi"
    return YARN if extended == YARN.upper() else models.default("position_embedding_type")(c)


def megatron_rope_scaling(c: Configuration) -> Setting:
    """Return YaRN, whose numbers have rows of their own; Llama 3.1's scaling with its factor; or none."""
    if megatron_has_yarn(c):
        return YARN
    if mindspeed.of_mindspeed(c) and mindspeed.scaling_type(c) is not None:
        return mindspeed.rope_scaling(c)
    return Scaling("llama3", float(value_of(c, ("rope_scaling_factor",), 8.0))) if value_of(c, ("use_rope_scaling",), False) else "none"


BOUNDS = {field: model(*(f"{table}.{name}" for table in ("rope_scaling", "scaling_factor"))) for field, name in mindspeed.BOUNDS.items()}
"""The bounds of Llama 3.1's scaling and the keys of each."""
BOUND_KEYS = tuple(key for keys in BOUNDS.values() for key in keys)


@resolver
def mindformers_rope_scaling(c: Configuration) -> Setting:
    """Return YaRN, whose numbers have rows of their own; another scaling with its factor; or none."""
    if _mindformers_kind(c) == YARN:
        return YARN
    kind = value_of(c, model("rope_scaling.type", "rope_scaling.rope_type", "extend_method"), UNSET if c.unread else "none")
    misspelt = isinstance(kind, str) and not is_new(c) and kind != kind.upper()  # SeqExtendMethod has capitals; others extend nothing
    kind = "none" if misspelt else text(kind)
    factor = value_of(c, model("rope_scaling.factor", "scaling_factor.factor", "scaling_factor", "rotary_scaling_factor"), 1.0)
    flagged = value_of(c, model("use_rope_scaling"), False)
    if kind in (UNSET, "none", "default", YARN, "rope") and not flagged:
        return UNSET if kind is UNSET else "none"
    kind = "llama3" if flagged else str(kind)
    bounds = RopeWavelengths(**mindspeed.bounds(c, BOUNDS)) if kind == "llama3" else RopeWavelengths()
    return Scaling(kind, float(factor) if are_numbers(factor) else factor, bounds)


@mindformers_rope_scaling.writer
def scaling_edits(request: EditRequest) -> Iterator[Edits]:
    """Yield a scaling of positions by its type and factor; older models want all its numbers."""
    wanted, newer, values = request.wanted, is_new(request.candidate), request.candidate.values
    if wanted == "none":
        plain_type = "rope" if newer else "None"
        types = [key for key in request.keys if key.endswith(("type", "extend_method")) and key in values]
        yield from ({key: plain_type} for key in types)
        yield dict.fromkeys(types, plain_type)
    if wanted == YARN and newer:
        yield {f"{MODEL}position_embedding_type": YARN}
    yield from one_key(request)
    if wanted == YARN:
        yield from ({f"{MODEL}position_embedding_type": YARN, f"{MODEL}rope_scaling.{name}": YARN} for name in ("type", "rope_type"))
        yield from _older_yarn(request.reference) if not newer else ()
    if isinstance(wanted, Scaling) and wanted.kind == "llama3" and not newer:  # a newer model turns no positions by such a type
        table = {"factor": wanted.factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
        yield {f"{MODEL}extend_method": "LLAMA3", **_table("scaling_factor", table)}


def _older_yarn(reference: Configuration) -> Iterator[Edits]:
    """Yield YaRN with all its numbers, as older models want it."""
    table = {"factor": mindspeed.yarn_factor(reference), "original_max_position_embeddings": mindspeed.yarn_original(reference)}
    table |= {name: value_of(reference, (name, f"yarn_{name}"), usual) for name, usual in (("beta_slow", 1.0), ("beta_fast", 32.0))}
    table |= {name: mindspeed.yarn_scale(name)(reference) for name in mindspeed.YARN_SCALES}
    if UNSET not in table.values():
        yield {f"{MODEL}extend_method": "YARN", **_table("scaling_factor", table)}


def _table(name: str, values: Mapping[str, Setting]) -> Edits:
    """Return a table of ``model_config`` as keys."""
    return {f"{MODEL}{name}.{key}": value for key, value in values.items()}


def mindformers_mla(c: Configuration) -> Setting:
    """Return whether attention is latent; some families are nothing else."""
    latent = value_of(c, model("multi_latent_attention"), models.default("multi_latent_attention"))
    return True if models.family(c) in models.MLA and latent is UNSET else latent


def stretched(factor: Setting, scale: Setting) -> Setting:
    """Return latent attention's factor of scores beside 1/√(head size): YaRN's ``_yarn_get_mscale`` squared, on both sides."""
    if not are_numbers(factor, scale) or factor <= 0:
        return UNSET
    return (0.1 * scale * math.log(factor) + 1.0) ** 2 if factor > 1 else 1.0


def megatron_stretch(c: Configuration) -> Setting:
    """Return that factor by ``--mscale-all-dim``, in core 0.12 by ``--mscale``, with plain RoPE too; MindSpeed-LLM's is its own."""
    if mindspeed.of_mindspeed(c):
        return UNSET
    name, otherwise = ("mscale", 1.0) if is_older_core(c) else ("mscale_all_dim", mindspeed.all_dimensions)
    return stretched(value_of(c, ("rotary_scaling_factor",), 1.0), value_of(c, (name,), otherwise))


@resolver
def mindformers_stretch(c: Configuration) -> Setting:
    """Return that factor by ``mscale`` and ``rotary_scaling_factor``, which is 40 by default, with plain RoPE too."""
    if not is_new(c) or c.unread:
        return UNSET
    factor = value_of(c, model("rotary_scaling_factor", "rope_scaling.factor", "scaling_factor.factor", "scaling_factor"), 40.0)
    return stretched(factor, value_of(c, model("mscale", "rope_scaling.mscale", "scaling_factor.mscale"), 0.707))


@mindformers_stretch.writer
def stretch_edits(request: EditRequest) -> Iterator[Edits]:
    """Yield the factor of latent attention's scores, with plain rotary positions."""
    if mindformers_rope_scaling(request.candidate) == YARN:  # whose same numbers turn positions too, and have rows of their own
        return
    factor, scale = model("rotary_scaling_factor", "mscale")
    yield {factor: 1.0}
    if (reference := request.reference).side == MEGATRON:
        dimensions = value_of(reference, ("mscale_all_dim",), mindspeed.all_dimensions)
        yield {factor: float(value_of(reference, ("rotary_scaling_factor",), 1.0)), scale: float(dimensions)}


def mindformers_qk_norm(c: Configuration) -> Setting:
    """Return whether queries and keys are normalised; Qwen3 does it whatever its YAML says."""
    normalised = value_of(c, model("qk_layernorm", "use_qk_norm"), models.default("qk_layernorm"))
    return True if models.family(c) in ("qwen3", "qwen3_moe") else normalised


positions = by_side(megatron_positions, mindformers_positions)


def no_positions(c: Configuration) -> Setting:
    """Return whether Megatron-LM adds no positions to the embedding."""
    return is_off(c, "add_position_embedding")


@resolver
def window(c: Configuration) -> Setting:
    """Return how far attention looks back; None for all of the sequence."""
    if (size := c.find(model("sliding_window", "window_size"))) is None and c.unread:
        return UNSET
    return None if size is None or is_off(c, *model("use_sliding_window")) else size.value


@window.writer
def window_edits(request: EditRequest) -> Iterator[Edits]:
    """Yield a window as the pair of ``window_size``, or as Hugging Face's one number with the switch that turns it off."""
    wanted = request.wanted
    on = {key: True for key in model("use_sliding_window") if key in request.candidate.values and wanted is not None}
    back = wanted[0] if isinstance(wanted, list) else None
    keys = (key for key in request.keys if not key.endswith("use_sliding_window"))
    yield from ({key: wanted if key.endswith("window_size") else back, **on} for key in keys)


def window_edits_of_megatron(request: EditRequest) -> Iterator[Edits]:
    """Yield a window as two numbers with a comma."""
    if isinstance(request.wanted, list):
        yield from ({key: ",".join(map(str, request.wanted))} for key in request.keys)
    elif request.wanted is None:
        yield from ({key: None} for key in request.keys)


def window_pair(size: Setting) -> Setting:
    """Return a window as how many tokens attention looks back and ahead: Megatron's ``128,0``, a pair, or one number back; None for all."""
    if isinstance(size, str) and re.fullmatch(r"[(\[]?-?\d+(, *-?\d+)?[)\]]?", size):
        size = [int(number) for number in re.findall(r"-?\d+", size)]
    if isinstance(size, int):
        size = [size]
    if not isinstance(size, list | tuple) or not 1 <= len(size) <= 2:
        return size
    back, ahead = (*size, 0)[:2]
    return None if back == -1 and ahead in (-1, 0) else [back, ahead]


def no_table_of_positions(reference: Configuration, candidate: Configuration) -> Words | None:
    """Return why the longest sequence need not agree: no side learns its positions."""
    turned = all_sides(lambda c: positions(c) != "learned_absolute", reference, candidate)
    return message("harmless.not_learned") if turned else None


def older_does_not_stretch(reference: Configuration, candidate: Configuration) -> Words | None:
    """Return why YaRN's numbers need not agree: an older model without YaRN has none, which its scaling says."""
    older = [c for c in (reference, candidate) if c.side == MINDFORMERS and not is_new(c)]
    return message("harmless.not_stretched") if any(_mindformers_kind(c) not in (YARN, UNSET) for c in older) else None


def nothing_turned(reference: Configuration, candidate: Configuration) -> Words | None:
    """Return why the turning of positions need not agree: a side turns none."""
    turned = ("rope", "partial_rope", "mrope", UNSET)
    return None if all_sides(lambda c: positions(c) in turned, reference, candidate) else message("harmless.not_turned")


def latent_heads(reference: Configuration, candidate: Configuration) -> Words | None:
    """Return why sizes of heads need not agree: latent attention has its own."""
    plain = all_sides(lambda c: by_side(mindspeed.latent, mindformers_mla)(c) is not True, reference, candidate)
    return None if plain else message("harmless.latent")


@resolver
def mindformers_base(c: Configuration) -> Setting:
    """Return the base of rotary positions; of ChatGLM2 10000 times ``rope_ratio``, the only name that it reads."""
    if models.family(c) != models.CHATGLM:
        return value_of(c, model("theta", "rope_theta", "rotary_base"), models.default("rotary_base"))
    ratio = value_of(c, model("rope_ratio"), 1)
    return CHATGLM_BASE * ratio if are_numbers(ratio) else UNSET


@mindformers_base.writer
def rotary_base_edits(request: EditRequest) -> Iterator[Edits]:
    """Yield the base of rotary positions, of ChatGLM2 as a ratio to its own."""
    yield from one_key(request)
    if are_numbers(request.wanted):
        ratio = request.wanted / CHATGLM_BASE
        yield {f"{MODEL}rope_ratio": int(ratio) if ratio == int(ratio) else ratio}


def mindformers_longest(c: Configuration) -> Setting:
    """Return how long sequences may be; of older models the sequence length where nothing is said."""
    if (longest := value_of(c, model("max_position_embedding", "max_position_embeddings"))) is not UNSET and longest:
        return longest
    return models.default("max_position_embeddings")(c) if is_new(c) else value_of(c, model("seq_length"), models.default("seq_length"))


def mindformers_original(c: Configuration) -> Setting:
    """Return the length that YaRN stretches; the sequence's with a ``rope_scaling`` that has none."""
    if (original := value_of(c, ORIGINAL)) is not UNSET:
        return original
    scaled = has(c, f"{MODEL}rope_scaling.")
    return value_of(c, model("seq_length"), models.default("seq_length")) if scaled else mindformers_longest(c)


def dropout(c: Configuration) -> Setting:
    """Return the larger of the two rates."""
    of_mindformers, names = c.side == MINDFORMERS, ("attention_dropout", "hidden_dropout")
    rates = [value_of(c, model(name), models.default(name)) if of_mindformers else value_of(c, (name,), 0.1) for name in names]
    return max(rates) if are_numbers(*rates) else rates[0]
