"""Megatron-LM's HybridModel: its pattern of layers, and what is written into it."""

from __future__ import annotations

from collections.abc import Mapping

from align_hooks.checklist.canonical_values import ExpertLayers
from align_hooks.checklist.lookup import Read, are_numbers, value_of
from align_hooks.checklist.resolver import Edits
from align_hooks.configuration.hybrid import LAYERS, PATTERNS
from align_hooks.configuration.values import Configuration, Setting
from align_hooks.names.hybrid import pattern_of_blocks, usual_blocks


def pattern(c: Configuration) -> str:
    """Return the pattern of a side; empty without one."""
    return next((str(value) for name in PATTERNS if (value := value_of(c, (name,), None))), "")


def is_of_blocks(c: Configuration) -> bool:
    """Return whether a side has a pattern that makes the blocks of a GPTModel."""
    return usual_blocks(pattern(c)) is not None


def pattern_of_no_blocks(name: str) -> Read:
    """Return a reader of a pattern that makes no blocks of a GPTModel; None for one that does, whose blocks other rows compare."""

    def read(c: Configuration) -> Setting:
        value = value_of(c, (name,), None)
        return None if not value or usual_blocks(str(value)) is not None else value

    return read


def in_pattern(edits: Edits, candidate: Configuration, wanted: Mapping[str, Setting]) -> Edits:
    """Return the edits of a candidate's layers as one of its pattern, all of it as ``wanted``, by row; other edits as they are."""
    made = usual_blocks(pattern(candidate))
    if made is None or not {*LAYERS, "multi_latent_attention"} & edits.keys():
        return edits
    layers, runs, predicted = wanted.get("num_layers") or 0, wanted.get("layers_with_experts"), wanted.get("mtp_num_layers") or 0
    experts = [has for has, count in runs.runs for _ in range(count)] if isinstance(runs, ExpertLayers) else list(made[0])
    count = int(layers) if layers and are_numbers(layers) else len(made[0])
    shaped = [*experts, *(experts[-1:] or [False]) * count][:count]
    further = int(predicted) if are_numbers(predicted) else len(made[1])
    name = next(name for name in PATTERNS if value_of(candidate, (name,), None))
    whole = pattern_of_blocks(shaped, predicted=further, latent=wanted.get("multi_latent_attention") is True)
    return {name: whole, **{key: value for key, value in edits.items() if key not in LAYERS}}
