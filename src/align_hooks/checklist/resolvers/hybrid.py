"""Megatron-LM's HybridModel: its pattern of layers, and what is written into it."""

from __future__ import annotations

from align_hooks.checklist.lookup import value_of
from align_hooks.checklist.resolver import Edits
from align_hooks.checklist.resolvers.experts import layer_digits
from align_hooks.configuration.hybrid import LAYERS, PATTERNS
from align_hooks.configuration.values import Configuration, Setting
from align_hooks.names.hybrid import feed_forward, pattern_of_blocks


def pattern(c: Configuration) -> str:
    """Return the pattern of a side; empty without one."""
    return next((str(value) for name in PATTERNS if (value := value_of(c, (name,), None))), "")


def is_of_blocks(c: Configuration) -> bool:
    """Return whether a side has a pattern that makes the blocks of a GPTModel."""
    return feed_forward(pattern(c)) is not None


def pattern_of_no_blocks(name: str, c: Configuration) -> Setting:
    """Return a pattern that makes no blocks of a GPTModel; None for one that does, whose blocks other rows compare."""
    value = value_of(c, (name,), None)
    return None if not value or feed_forward(str(value)) is not None else value


def in_pattern(changed: Configuration, edits: Edits) -> Edits:
    """Return the edits of a side's layers as one of its pattern, where it has one of blocks; ``changed`` is the side with the edits."""
    if not ({*LAYERS, "multi_latent_attention"} & edits.keys() and is_of_blocks(changed)):
        return edits
    layers, predicted = (value_of(changed, (key,), 0) or 0 for key in ("num_layers", "mtp_num_layers"))
    digits = layer_digits(value_of(changed, ("moe_layer_freq",), 1), layers)
    if not isinstance(digits, str) or not digits:
        return edits
    experts = [digit == "1" for digit in digits.ljust(int(layers), digits[-1])[: int(layers)]]  # of more layers all are like the last
    name = next(name for name in PATTERNS if value_of(changed, (name,), None))
    latent = bool(value_of(changed, ("multi_latent_attention",), False))
    kept = {key: value for key, value in edits.items() if key not in LAYERS}
    return {**kept, name: pattern_of_blocks(experts, predicted=int(predicted), latent=latent)}
