"""gpt-oss: sinks of attention, sliding windows in some layers, positions by YaRN, biases everywhere, experts behind a clamped gate.

Hugging Face's tensors hold all experts of a layer, each transposed, and gate and up row by row (``stacks``). Names here are of one
expert, as in other families, so that an optimizer's range of a parameter is a range of each piece.
"""

from __future__ import annotations

from align_hooks.families import llama, megatron, mixtral, qwen2, qwen3_moe
from align_hooks.families.family import CANONICAL, RULES, Allowed, Decoder, Family, Level, tables, without

HF = f"{CANONICAL}.self_attn"
EXPERTS, EXPERT = f"{CANONICAL}.mlp.experts", f"{CANONICAL}.mlp.experts.{{expert}}"
embedding, first_norm, projections, output, second_norm = llama.FIRST
LEVELS: tuple[Level, ...] = (
    embedding,
    first_norm,
    {**projections, **qwen2.BIASES},
    {f"{HF}.sinks": ("heads",)},
    {**output, f"{HF}.o_proj.bias": ("hidden",)},
    second_norm,
    {f"{CANONICAL}.mlp.router.weight": ("experts", "hidden"), f"{CANONICAL}.mlp.router.bias": ("experts",)},
    dict.fromkeys(qwen3_moe.GATE_UP, ("expert_ffn", "hidden")) | {f"{EXPERT}.{name}_proj.bias": ("expert_ffn",) for name in ("gate", "up")},
    dict.fromkeys(qwen3_moe.DOWN, ("hidden", "expert_ffn")) | {f"{EXPERT}.down_proj.bias": ("hidden",)},
    *llama.LAST,
)
WITHOUT_ROUTER = tuple(rule for rule in RULES["experts"] if ".router." not in rule.native)
# no gpt-oss has dense layers; with their rules a model that has some is refused for that reason
MEGATRON_RULES = (*llama.DENSE, *RULES["biases"], *WITHOUT_ROUTER, *RULES["sinks, a router and experts with biases"])
OTHERWISE = tables("megatron.txt")["gpt_oss"]
HOLDS = without({**megatron.PLAIN, **megatron.ROUTER, **OTHERWISE}, "window_size")
CONFIGURED: Allowed = {**llama.CONFIGURED, **tables("configured.txt")["mixtral"], **tables("configured.txt")["gpt_oss"]}
OF_WINDOW = {True: "sliding_attention", False: "full_attention"}


def huggingface(decoder: Decoder) -> dict[str, object]:
    """Return ``config.json`` of the Hugging Face model."""
    return llama.config_json(decoder, "GptOss", "gpt_oss", without=("mlp_bias",)) | {
        "attention_bias": True,
        **mixtral.of_routing(decoder),
        "sliding_window": decoder.window or decoder.positions,  # transformers makes its mask even where no layer has one
        "layer_types": [OF_WINDOW[has] for has in decoder.windowed],
    }


GPT_OSS = Family(
    name="gpt-oss",
    experts=True,
    levels=LEVELS,
    configured=without(CONFIGURED, "sliding_window"),
    huggingface=huggingface,
    megatron=megatron.table("a gpt-oss", MEGATRON_RULES),
    holds=HOLDS,
    stacks={
        f"{EXPERTS}.{stack}_proj{ending}": tuple(f"{EXPERT}.{name}_proj{own}" for name in names)
        for stack, names in (("gate_up", ("gate", "up")), ("down", ("down",)))
        for ending, own in (("", ".weight"), ("_bias", ".bias"))
    },
)
