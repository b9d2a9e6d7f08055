"""Llama 2 and 3, dense.

In Megatron-LM Transformer Engine fuses a norm into the next linear layer, so each of two norms has two names, one for the ``local`` specs.

In MindFormers: ``LlamaForCausalLM`` of ``mindformers.models.llama``, 1.3 to 1.9. With ``qkv_concat`` queries, keys and values are fused
per query group, gate and up row by row (``mindformers.utils.convert_utils``); in 1.3 one after the other, which ``ms_side.model`` refuses.
Among the newer models TeleChat3 is a Llama (:mod:`.mindformers`).
"""

from __future__ import annotations

from align_hooks.families import megatron, mindformers
from align_hooks.families.family import CANONICAL, RULES, Decoder, Family, InMindFormers, Level, ModelConfig, tables
from align_hooks.names.blocks import Dims
from align_hooks.names.table import NameTable

QKV = tuple(f"{CANONICAL}.self_attn.{name}_proj.weight" for name in "qkv")
QKV_BIAS = tuple(f"{CANONICAL}.self_attn.{name}_proj.bias" for name in "qkv")
GATE_UP = tuple(f"{CANONICAL}.mlp.{name}_proj.weight" for name in ("gate", "up"))
DOWN = (f"{CANONICAL}.mlp.down_proj.weight",)

FIRST: tuple[Level, ...] = (
    {"model.embed_tokens.weight": ("vocabulary", "hidden")},
    {f"{CANONICAL}.input_layernorm.weight": ("hidden",)},
    dict(zip(QKV, (("queries", "hidden"), ("keys", "hidden"), ("keys", "hidden")), strict=True)),
    {f"{CANONICAL}.self_attn.o_proj.weight": ("hidden", "queries")},
    {f"{CANONICAL}.post_attention_layernorm.weight": ("hidden",)},
)
FEED_FORWARD: tuple[Level, ...] = (dict.fromkeys(GATE_UP, ("ffn", "hidden")), dict.fromkeys(DOWN, ("hidden", "ffn")))
LAST: tuple[Level, ...] = ({"model.norm.weight": ("hidden",)}, {"lm_head.weight": ("vocabulary", "hidden")})
"""The levels before, of and after a layer's feed-forward part."""

DENSE = (*RULES["attention"], *RULES["feed-forward"])
SCALINGS = {"None": None, "": None, "NTK": None, "PI": "linear", "linear": "linear", "LLAMA3": "llama3", "YARN": "yarn"}
"""``extend_method`` of a LlamaConfig (``SeqExtendMethod``) to ``rope_type`` of ``config.json``; NTK is another base."""
CONFIGURED = tables("configured.txt")["llama"]


def config_json(decoder: Decoder, name: str = "Llama", model_type: str = "llama", without: tuple[str, ...] = ()) -> dict[str, object]:
    """Return ``config.json`` of the Hugging Face model ``name``, ``without`` some keys of a Llama."""
    llama = {
        "architectures": [f"{name}ForCausalLM"],
        "model_type": model_type,
        "hidden_size": decoder.hidden,
        "intermediate_size": decoder.dims.ffn,
        "num_hidden_layers": decoder.layers,
        "num_attention_heads": decoder.dims.heads,
        "num_key_value_heads": decoder.dims.groups,
        "head_dim": decoder.dims.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": decoder.epsilon,
        "rope_theta": decoder.rotary_base,
        "rope_scaling": dict(decoder.rope_scaling) if decoder.rope_scaling else None,
        "vocab_size": decoder.dims.vocabulary,
        "max_position_embeddings": decoder.positions,
        "tie_word_embeddings": decoder.tied,
        "attention_bias": False,
        "mlp_bias": False,
        "torch_dtype": "float32",
    }
    return {key: value for key, value in llama.items() if key not in without}


def _misfits(config: ModelConfig) -> list[str]:
    """Return how the model of a LlamaConfig differs from a Llama, in words."""
    biased = config.qkv_has_bias or getattr(config, "attn_proj_has_bias", False)  # 1.3 has no such property
    unknown = [f"RoPE scaling {config.extend_method}"] if str(config.extend_method) not in SCALINGS else []
    return [*(["bias"] if biased else []), *unknown]


def _rope_scaling(config: ModelConfig) -> dict[str, object] | None:
    """Return ``rope_scaling`` of ``config.json`` for a LlamaConfig (``FreqsMgr`` of MindFormers' ``modules/layers.py``)."""
    kind, given = SCALINGS.get(str(config.extend_method)), config.scaling_factor
    if kind is None:
        return None
    return {"rope_type": kind, **(given if isinstance(given, dict) else {"factor": float(given)})}


def _dims(config: ModelConfig, vocabulary: int | None) -> Dims:
    """Return the sizes of a LlamaConfig, over all ranks."""
    return Dims(
        heads=config.num_heads,
        groups=config.n_kv_heads or config.num_heads,
        head_dim=config.hidden_size // config.num_heads,
        ffn=_intermediate_size(config),
        vocabulary=min(vocabulary or config.vocab_size, config.vocab_size),
        padded=config.vocab_size,
    )


def _intermediate_size(config: ModelConfig) -> int:
    """Return the feed-forward size, by default as MindFormers computes it (``modules/transformer``, LlamaFeedForward)."""
    if config.intermediate_size is not None:
        return int(config.intermediate_size)
    size = config.hidden_size * 4
    if config.ffn_dim_multiplier is not None:
        size = int((config.ffn_dim_multiplier + 0.01) * size)
    size = int(2 * size / 3)
    return int(config.multiple_of * ((size + config.multiple_of - 1) // config.multiple_of))


def _decoder(config: ModelConfig, dims: Dims) -> Decoder:
    """Return the facts of the model of a LlamaConfig."""
    return Decoder(
        dims=dims,
        hidden=config.hidden_size,
        layers=config.num_layers,
        epsilon=getattr(config, "rms_norm_eps", None),
        rotary_base=_rotary_base(config),
        positions=getattr(config, "max_position_embedding", None),
        tied=getattr(config, "tie_word_embeddings", None),
        rope_scaling=_rope_scaling(config),
    )


def _rotary_base(config: ModelConfig) -> float | None:
    """Return the base of a LlamaConfig's rotary positions, which NTK multiplies by its factor; None where it is unknown."""
    base = getattr(config, "theta", None)
    return base * config.scaling_factor if base is not None and str(config.extend_method) == "NTK" else base


LLAMA = Family(
    name="Llama",
    experts=False,
    levels=(*FIRST, *FEED_FORWARD, *LAST),
    configured={**CONFIGURED, "rope_scaling": tuple(filter(None, map(str.lower, SCALINGS)))},
    huggingface=config_json,
    megatron=megatron.table("a dense Llama", DENSE),
    holds={**megatron.PLAIN, "use_rope_scaling": (False, True)},
    mindformers=(
        InMindFormers(
            network="LlamaForCausalLM",
            module="mindformers.models.llama",
            configuration="LlamaConfig",
            model_type="llama",
            legacy=True,
            table=NameTable("MindFormers", "a dense Llama", RULES["llama in mindformers"]),
            misfits=_misfits,
            dims=_dims,
            decoder=_decoder,
        ),
        mindformers.newer("TeleChat3", "telechat3", "a dense Llama", DENSE, mindformers.TELECHAT3),
    ),
)
