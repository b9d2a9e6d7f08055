"""The layers of a HybridModel's command as arguments of the GPTModel of the same blocks, and edits of these as a pattern."""

from __future__ import annotations

from collections.abc import Mapping

from align_hooks.configuration.values import Setting, Value
from align_hooks.names.hybrid import feed_forward

PATTERNS = ("hybrid_layer_pattern", "hybrid_override_pattern")
"""The argument, and its name before 0.17."""
LAYERS = ("num_layers", "moe_layer_freq", "mtp_num_layers")
"""What a GPTModel has in the place of a pattern, which counts where both are given."""


def as_blocks(values: Mapping[str, Value]) -> Mapping[str, Value]:
    """Return the arguments of a command with those of ``LAYERS`` that its pattern stands for; a pattern of no blocks stands for none."""
    pattern = next((values[name] for name in PATTERNS if name in values and values[name].written), None)
    made = feed_forward(str(pattern.written)) if pattern is not None and pattern.unknown is None else None
    if pattern is None or made is None:
        return values
    experts, predicting = made
    stated: tuple[Setting, ...] = (len(experts), str(list(map(int, experts))), len(predicting) or None)
    return {**values, **{name: Value(value, pattern.place) for name, value in zip(LAYERS, stated, strict=True)}}
