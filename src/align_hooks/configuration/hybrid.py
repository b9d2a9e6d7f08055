"""The layers of a HybridModel's command as arguments of the GPTModel of the same blocks, and edits of these as a pattern."""

from __future__ import annotations

from collections.abc import Mapping

from align_hooks.configuration.values import Setting, Value
from align_hooks.names.hybrid import usual_blocks

PATTERNS = ("hybrid_layer_pattern", "hybrid_override_pattern")
"""The argument, and its name before 0.17."""
LAYERS = ("num_layers", "moe_layer_freq", "mtp_num_layers")
"""What a GPTModel has in the place of a pattern, which counts where both are given."""
BY_NUMBER = ("window_attn_skip_freq",)
"""Settings that Megatron-LM decides by the number of a layer of its own."""


def as_blocks(values: Mapping[str, Value]) -> Mapping[str, Value]:
    """Return the arguments of a command with those that its pattern stands for; a pattern of other layers stands for none."""
    pattern = next((values[name] for name in PATTERNS if name in values and values[name].written), None)
    made = usual_blocks(str(pattern.written)) if pattern is not None and pattern.unknown is None else None
    if pattern is None or made is None:
        return values
    experts, predicting = made
    stated: dict[str, Setting] = dict(zip(LAYERS, (len(experts), str(list(map(int, experts))), len(predicting) or None), strict=True))
    stated |= {"multi_latent_attention": True} if "+" in str(pattern.written) else {}
    stated |= {name: of_blocks(values[name].written, len(experts)) for name in BY_NUMBER if name in values}
    return {**values, **{name: Value(value, pattern.place) for name, value in stated.items()}}


def of_blocks(written: Setting, blocks: int) -> Setting:
    """Return what a setting of all layers but every Nth says of blocks, whose attention is every second layer."""
    if isinstance(written, int) and not isinstance(written, bool) and written > 0:
        return str([int((2 * block + 1) % written != 0) for block in range(blocks)])
    return written
