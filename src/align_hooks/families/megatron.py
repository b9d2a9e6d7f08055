"""Facts of a model that Megatron-LM built, and their comparison with what a family allows.

MindFormers' newer models have a configuration of the same fields (:mod:`.mindformers`): functions of a ``config`` serve both.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import Struct

from align_hooks.families.family import Allowed, Args, Decoder, Family, GPTModel, RoutingConfig, tables
from align_hooks.names.blocks import Dims
from align_hooks.names.hybrid import PAIRS, feed_forward, usual_blocks
from align_hooks.names.table import NameTable, Rule

_TABLES = tables("megatron.txt")
PLAIN, ROUTER, LATER = (_TABLES[head] for head in ("plain", "router", "later"))

BESIDE_CONFIGURATION: Mapping[str, Callable[[GPTModel, Args], object]] = {
    "position_embedding_type": lambda gpt, args: gpt.position_embedding_type,
    "rotary_percent": lambda gpt, args: getattr(gpt, "rotary_percent", None) or rotary_percent(gpt),
    "frequencies of one base": lambda gpt, args: not frequencies(gpt) or rotary_base(gpt, args) is not None,
    "layers that do nothing": lambda gpt, args: bool(getattr(args, "noop_layers", None)),  # MindSpeed's
    "dense layers between experts": lambda gpt, args: not all(sparse_layers(config_of(gpt))),
    "dense layers after the first with experts": lambda gpt, args: (sparse := sparse_layers(config_of(gpt))) != tuple(sorted(sparse)),
    "use_rope_scaling": lambda gpt, args: bool(getattr(args, "use_rope_scaling", False)),
    "rotary_seq_len_interpolation_factor": lambda gpt, args: getattr(
        embedding(gpt), "seq_len_interpolation_factor", getattr(args, "rotary_seq_len_interpolation_factor", None)
    ),
    "norms of queries and keys over all heads": lambda gpt, args: normalises_all_heads(gpt),
    "later positions in a window": lambda gpt, args: (getattr(gpt.config, "window_size", None) or (0, 0))[1],
    "activation_func": lambda gpt, args: function_name(gpt.config.activation_func),
    "experts": lambda gpt, args: bool(config_of(gpt).num_moe_experts),
    "hybrid_layer_pattern": lambda gpt, args: PAIRS if usual_blocks(pattern_of(gpt) or "*-") else pattern_of(gpt),
}
"""Readers of properties that are no attribute of the configuration, from a built model and Megatron's arguments."""
MEGATRON_FACTOR = 8.0
"""The default factor of Megatron-LM's scaled positions."""
OWN = ("", "torch", "megatron")
"""Packages whose functions are named without their module."""


def function_name(function: object) -> str:
    """Return the name of a function, with its module unless that is torch's or Megatron's."""
    name, module = getattr(function, "__name__", str(function)), getattr(function, "__module__", None) or ""
    return name if module.partition(".")[0] in OWN else f"{module}.{name}"


def pattern_of(gpt: GPTModel) -> str | None:
    """Return a HybridModel's pattern of layers; None for a GPTModel."""
    return getattr(gpt, "hybrid_layer_pattern", None)


def makes_blocks(gpt: GPTModel) -> bool:
    """Return whether the layers of a built model are blocks, or halves of blocks."""
    pattern = pattern_of(gpt)
    return pattern is None or feed_forward(pattern) is not None


def config_of(gpt: GPTModel) -> Any:
    """Return the configuration of a built model, of a HybridModel that of the GPTModel of the same blocks."""
    if (made := feed_forward(pattern_of(gpt) or "")) is None:
        return gpt.config
    config, (experts, predicting) = copy.copy(gpt.config), made
    config.num_layers, config.moe_layer_freq = len(experts), list(map(int, experts))
    if not any((*experts, *predicting)):
        config.num_moe_experts = None
    if getattr(config, "window_size", None):  # which Megatron-LM decides by the number of a layer of its own
        config.window_attn_skip_freq = list(map(int, windowed_layers(gpt.config)))[::2]
    return config


def misfits(family: Family, gpt: GPTModel, args: Args) -> list[str]:
    """Return how a built model differs from a family, in words."""
    config = config_of(gpt)
    beside = {name: read(gpt, args) for name, read in BESIDE_CONFIGURATION.items() if name in family.holds}
    return differing({name: getattr(config, name, None) for name in family.holds} | beside, family.holds)


def differing(values: Mapping[str, object], holds: Allowed) -> list[str]:
    """Return which values are not allowed, in words; None is the value of a property that a configuration does not have."""
    computed = {name: LATER[name][0] if values[name] is None and name in LATER else values[name] for name in holds}
    return [f"{name} is {computed[name]}, not {allowed[0]}" for name, allowed in holds.items() if computed[name] not in allowed]


def sparse_layers(config: Any) -> tuple[bool, ...]:
    """Return whether each layer has experts; ``moe_layer_freq`` is every Nth from the first on, or a list of one number a layer."""
    layers: int = config.num_layers
    if not config.num_moe_experts:
        return (False,) * layers
    every = config.moe_layer_freq
    return tuple(map(bool, every)) if isinstance(every, Sequence) else tuple(layer % every == 0 for layer in range(layers))


def dims(gpt: GPTModel, vocabulary: int) -> Dims:
    """Return the sizes of a built model, over all tensor-parallel ranks; ``vocabulary`` excludes padding."""
    return dims_of(config_of(gpt), vocabulary, gpt.vocab_size)


def dims_of(config: Any, vocabulary: int, padded: int) -> Dims:
    """Return the sizes of a configuration with an embedding of ``padded`` rows."""
    return Dims(
        heads=config.num_attention_heads,
        groups=config.num_query_groups or config.num_attention_heads,
        head_dim=config.kv_channels,
        ffn=config.ffn_hidden_size,
        vocabulary=min(vocabulary, padded),
        padded=padded,
        expert_ffn=(config.moe_ffn_hidden_size if config.num_moe_experts else None) or config.ffn_hidden_size,
        experts=config.num_moe_experts or 0,
        layers=config.num_layers,
        q_lora=(config.q_lora_rank or 0) if config.multi_latent_attention else 0,
    )


def decoder(gpt: GPTModel, sizes: Dims, args: Args) -> Decoder:
    """Return the facts of a built model with rotary positions."""
    config = config_of(gpt)
    tied = getattr(gpt, "share_embeddings_and_output_weights", None)
    # latent attention of the first 0.12.0rc0 has no other positions than YaRN's; up to 0.13 it gives these max_position_embeddings
    by_yarn, scaling = config.multi_latent_attention and getattr(config, "rope_type", "yarn") == "yarn", scaled(gpt, args)
    positions = "original_max_position_embeddings" if hasattr(config, "original_max_position_embeddings") else "max_position_embeddings"
    scaled_by = yarn(config, getattr(config, positions)) if by_yarn else scaling.facts() if scaling else None
    window = getattr(config, "window_size", None) or (-1, 0)
    return Decoder(
        dims=sizes,
        hidden=getattr(config, "hidden_size", None),
        layers=config.num_layers,
        epsilon=getattr(config, "layernorm_epsilon", None),
        rotary_base=rotary_base(gpt, args),
        positions=getattr(gpt, "max_sequence_length", None),
        tied=None if tied is None else bool(tied),
        routing=routing(config, normalised=normalised(config, args)),
        latent=latent(config),
        predicted=known(config, "mtp_num_layers", unset=0),
        rope_scaling=usual_yarn(embedding(gpt)) if gpt.position_embedding_type == "yarn" else scaled_by,
        window=window[0] + 1 or None,
        windowed=windowed_layers(config),
        rotary_part=getattr(gpt, "rotary_percent", None) or rotary_percent(gpt),
        normalised_heads=bool(norm) if (norm := widths_of_norms(gpt)) is not None else getattr(config, "qk_layernorm", None),
    )


def known(config: Any, name: str, *, unset: Any) -> Any:
    """Return the value of a property, ``unset`` where it is off; None, for unknown, where the configuration does not have it."""
    return (getattr(config, name) or unset) if hasattr(config, name) else None


def rotary_base(gpt: GPTModel, args: Args) -> float | None:
    """Return the base of a built model's rotary positions; None where it is unknown."""
    turned = frequencies(gpt)  # MindSpeed-LLM's models keep these only
    owners = (gpt, gpt.config, args) if turned else (gpt.config if getattr(gpt.config, "multi_latent_attention", False) else gpt,)
    stated = [float(base) for owner in owners if (base := getattr(owner, "rotary_base", None)) is not None]
    if (scaling := scaled(gpt, args)) is not None:
        return scaling.base
    return base_of(turned, stated) if turned else next(iter(stated), None)


class Llama3Scaling(Struct, frozen=True):
    """Rotary positions that Llama 3.1 scales: low frequencies by a factor, high ones not at all, and those between by a part of it.

    The formula is in megatron-core's ``rotary_pos_embedding.py`` (``_apply_scaling``) and Transformers' ``modeling_rope_utils.py``.
    """

    base: float
    factor: float
    """The divisor of low frequencies."""
    low: float = 1.0
    """Frequencies of wavelengths above ``original / low`` are divided."""
    high: float = 4.0
    """Frequencies of wavelengths below ``original / high`` stay."""
    original: int = 8192
    """Tokens of a sequence in the original training."""

    def frequencies(self, size: int) -> list[float]:
        """Return the frequency of each pair of a head's ``size`` rotated elements, in radians a position, ``[size / 2]``."""
        return [self._scaled(self.base ** (-2 * at / size)) for at in range(size // 2)]

    def _scaled(self, frequency: float) -> float:
        wavelength = 2 * math.pi / frequency
        if wavelength < self.original / self.high:
            return frequency
        if wavelength > self.original / self.low:
            return frequency / self.factor
        smooth = (self.original / wavelength - self.low) / (self.high - self.low)
        return (1 - smooth) * frequency / self.factor + smooth * frequency

    def facts(self) -> dict[str, object]:
        """Return ``rope_scaling`` of ``config.json``."""
        return {
            "rope_type": "llama3",
            "factor": self.factor,
            "low_freq_factor": self.low,
            "high_freq_factor": self.high,
            "original_max_position_embeddings": self.original,
        }


def scaled(gpt: GPTModel, args: Args) -> Llama3Scaling | None:
    """Return the scaling of the built frequencies; None where they are not scaled, or not by ``--use-rope-scaling``."""
    base, turned = getattr(gpt, "rotary_base", None) or getattr(args, "rotary_base", None), frequencies(gpt)
    asked = getattr(args, "use_rope_scaling", False)  # None where a training loop does not state it
    if not (turned and base) or asked is False or (asked is None and base_of(turned, [float(base)]) is not None):
        return None
    # Megatron-LM may have built with its default factor, whatever it was given
    factors = dict.fromkeys(float(factor) for factor in (getattr(args, "rope_scaling_factor", None), MEGATRON_FACTOR) if factor)
    scalings, nearly = (Llama3Scaling(float(base), factor) for factor in factors), partial(math.isclose, rel_tol=1e-5)  # they are in fp32
    return next((scaling for scaling in scalings if all(map(nearly, turned, scaling.frequencies(2 * len(turned))))), None)


def frequencies(gpt: GPTModel) -> list[float]:
    """Return the rotary frequencies of a built model; none where there are fewer than two."""
    turned = getattr(embedding(gpt), "inv_freq", None)
    return [] if turned is None or len(turned) < 2 else [float(one) for one in turned.tolist()]


def rotary_percent(gpt: GPTModel) -> float | None:
    """Return the part of a head's elements that positions turn, from the frequencies; None where there are none."""
    config, turned = gpt.config, 2 * len(frequencies(gpt))
    latent = getattr(config, "multi_latent_attention", False)
    return turned / (config.qk_pos_emb_head_dim if latent else config.kv_channels) if turned else None


def embedding(gpt: GPTModel) -> Any:
    """Return the rotary embedding of a built model; None where there is none."""
    layers = getattr(getattr(gpt, "decoder", None), "layers", ())
    owners = [gpt, *(getattr(layer, "self_attention", None) for layer in layers)]  # latent attention has one in every layer
    return next((found for owner in owners if (found := getattr(owner, "rotary_pos_emb", None)) is not None), None)


def widths_of_norms(gpt: GPTModel) -> list[int] | None:
    """Return the sizes of the weights of a built layer's norms of queries and keys, empty without norms; None where no layer is built."""
    layers = getattr(getattr(gpt, "decoder", None), "layers", ())
    mixing = (attention for layer in layers if hasattr(attention := getattr(layer, "self_attention", None), "q_layernorm"))
    attention = next(mixing, None)
    norms = (getattr(attention, f"{name}_layernorm", None) for name in "qk")
    weights = [getattr(norm, "weight", None) for norm in norms]  # where there is no norm stands None, or an operator without weights
    return None if attention is None else [weight.numel() for weight in weights if weight is not None]


def normalises_all_heads(gpt: GPTModel) -> bool:
    """Return whether queries or keys of usual attention are normalised otherwise than head by head."""
    return not gpt.config.multi_latent_attention and any(width != gpt.config.kv_channels for width in widths_of_norms(gpt) or ())


def base_of(turned: Sequence[float], stated: Sequence[float] = ()) -> float | None:
    """Return the number whose powers are these frequencies: a ``stated`` one, else the shortest; None where they are scaled."""
    size = 2 * len(turned)
    if not all(one > 0 for one in turned):
        return None
    near = turned[-1] ** (-size / (size - 2))
    shortest = [float(f"{near:.{digits}g}") for digits in range(1, 10)]
    # the exponent is rounded to fp32 before the power is taken, whose last bits each device rounds as it will
    for units, bases in ((12, stated), (4, shortest), (12, shortest)):
        for base in (base for base in bases if base > 0):
            near_enough = (units + abs(math.log(base))) * 2**-24
            if all(math.isclose(one, base ** (-2 * at / size), rel_tol=near_enough) for at, one in enumerate(turned)):
                return base
    return None


def normalised(config: Any, args: Args) -> bool | None:
    """Return whether the weights of a token's experts add up to one; None where that is unknown."""
    before = getattr(config, "moe_router_pre_softmax", None)
    balanced = getattr(config, "moe_router_load_balancing_type", None)
    if hasattr(args, "norm_topk_prob") and (before or balanced not in ("aux_loss", "seq_aux_loss", "none")):
        return bool(args.norm_topk_prob) if balanced == "aux_loss" else None  # MindSpeed-LLM's routers, each with rules of its own
    if getattr(config, "moe_router_score_function", None) == "sigmoid":
        return True  # always divided by their sum
    return None if before is None else not before


def routing(config: Any, *, normalised: bool | None) -> RoutingConfig | None:
    """Return how tokens choose among experts; None without experts."""
    if not config.num_moe_experts:
        return None
    factor = known(config, "moe_router_topk_scaling_factor", unset=1.0)
    return RoutingConfig(
        experts=config.num_moe_experts,
        chosen=getattr(config, "moe_router_topk", None),
        sparse=sparse_layers(config),
        normalised=normalised,
        factor=None if factor is None else float(factor),
        groups=known(config, "moe_router_num_groups", unset=1),
        chosen_groups=known(config, "moe_router_group_topk", unset=1),
        shared=known(config, "moe_shared_expert_intermediate_size", unset=0),
    )


def latent(config: Any) -> dict[str, object] | None:
    """Return the sizes of latent attention as in ``config.json``, see :attr:`Decoder.latent`."""
    if not config.multi_latent_attention:
        return None
    own = {"kv_lora_rank": "kv_lora_rank", "qk_nope_head_dim": "qk_head_dim", "qk_rope_head_dim": "qk_pos_emb_head_dim"}
    sizes = {name: getattr(config, property, None) for name, property in own.items()}
    return {"q_lora_rank": config.q_lora_rank or None, **sizes, "v_head_dim": getattr(config, "v_head_dim", None)}


def yarn(config: Any, positions: int) -> dict[str, object] | None:
    """Return YaRN's ``rope_scaling`` of ``config.json`` for latent attention; ``positions`` is the original length."""
    if config.rotary_scaling_factor == 1:  # changes no frequency and no score, whatever the other numbers are
        return None
    numbers = {name: float(getattr(config, name)) for name in ("beta_fast", "beta_slow", "mscale", "mscale_all_dim")}
    factor = {"factor": float(config.rotary_scaling_factor), "original_max_position_embeddings": int(positions)}
    return {"type": "yarn", "rope_type": "yarn", **factor, **numbers}


def usual_yarn(rotary: Any) -> dict[str, object]:
    """Return YaRN's ``rope_scaling`` of ``config.json`` for a built embedding of usual attention."""
    factor, usual = float(rotary.scaling_factor), 0.1 * math.log(max(rotary.scaling_factor, 1)) + 1
    mscales = rotary.mscale, rotary.mscale_all_dim
    over, under = (1 + (usual - 1) * scale for scale in ((1, 0) if None in mscales else mscales))
    return {
        "rope_type": "yarn",
        "factor": factor,
        "original_max_position_embeddings": int(rotary.original_max_position_embeddings),
        "beta_fast": float(rotary.beta_fast),
        "beta_slow": float(rotary.beta_slow),
        "truncate": bool(rotary.correction_range_round_to_int),
        **({} if math.isclose(over / under, usual) else {"attention_factor": over / under}),
    }


def windowed_layers(config: Any) -> tuple[bool, ...]:
    """Return whether each layer has a sliding window: each but every Nth, as a list says, or every one."""
    layers: int = config.num_layers
    skipped = getattr(config, "window_attn_skip_freq", None)
    if (getattr(config, "window_size", None) or (-1, 0))[0] < 0:
        return (False,) * layers
    if isinstance(skipped, Sequence):
        return tuple(map(bool, skipped))
    return tuple(not skipped or number % skipped != 0 for number in range(1, layers + 1))


def table(model: str, rules: Sequence[Rule]) -> NameTable:
    """Return the table of a model's names in Megatron-LM."""
    return NameTable("Megatron", model, tuple(rules), (r".*\._extra_state", r"rotary_pos_emb\.inv_freq"))
