"""HybridModel of Megatron-LM (MambaModel in 0.17): a pattern of layers, and the blocks of a GPTModel that these make.

A layer of such a model is half a block: it mixes positions (attention ``*``, latent ``+`` or sparse ``D`` attention, gated delta nets
``G``) or is feed-forward, dense ``-`` or with experts ``E``. The halves of a block have the block's names. A pattern that makes no such
blocks (Mamba ``M``, two of a kind in a row) keeps Megatron's own names, by the numbers of its own layers. ``|`` parts pipeline stages, and
``/`` begins a layer for multi-token prediction. Source: ``megatron/core/models/hybrid/hybrid_layer_allocation.py``.
"""

from __future__ import annotations

import copy
import re
from typing import Any

PAIRS = "pairs of attention and feed-forward"
"""What a family allows of a pattern, in words."""
BLOCKS = re.compile(r"((?:[*+DG][-E])+)((?:/[*+DG][-E])*)")
NAMES = (
    (re.compile(r"(?<=^decoder\.layers\.)(\d+)"), lambda first: lambda number: str((int(number[0]) + first) // 2)),
    (re.compile(r"(^mtp\.layers\.\d+\.mtp_model_layer)\.layers\.\d+"), lambda first: r"\1"),
)
"""Parts of a parameter's name to what a GPTModel has there, by the number of this pipeline stage's first layer."""


def pattern_of(model: Any) -> str | None:
    """Return the pattern of a built model; None for a GPTModel."""
    return getattr(model, "hybrid_layer_pattern", None)


def feed_forward(pattern: str) -> tuple[bool, ...] | None:
    """Return whether each block of a pattern has experts, also blocks for multi-token prediction; None where it makes no blocks."""
    made = BLOCKS.fullmatch(pattern.replace("|", ""))
    return None if made is None else tuple(letter == "E" for letter in (made[1] + made[2].replace("/", ""))[1::2])


def makes_blocks(model: Any) -> bool:
    """Return whether the layers of a built model are blocks, or halves of blocks."""
    pattern = pattern_of(model)
    return pattern is None or feed_forward(pattern) is not None


def config_of(model: Any) -> Any:
    """Return the configuration of a built model, of a HybridModel that of the GPTModel of its blocks."""
    pattern = pattern_of(model)
    sparse = None if pattern is None else feed_forward(pattern)
    if pattern is None or sparse is None:
        return model.config
    config, predicted = copy.copy(model.config), pattern.count("/")
    config.num_layers = len(sparse) - predicted
    config.moe_layer_freq = list(map(int, sparse[: config.num_layers]))
    config.num_moe_experts = config.num_moe_experts if any(sparse) else None
    return config


def in_blocks(native: str, first: int) -> str:
    """Return the name of a parameter in a GPTModel of the same blocks, its layer counted over the whole model.

    ``first`` is the number, from 0, of the first layer on this pipeline stage."""
    for part, there in NAMES:
        native = part.sub(there(first), native)
    return native
