"""HybridModel of Megatron-LM (MambaModel in 0.17): a pattern of layers, and the blocks of a GPTModel that these make.

A layer of such a model is half a block: it mixes positions (attention ``*``, latent ``+`` or sparse ``D`` attention, gated delta nets
``G``) or is feed-forward, dense ``-`` or with experts ``E``. The halves of a block have the block's names. A pattern that makes no such
blocks (Mamba ``M``, two of a kind in a row) keeps Megatron's own names, by the numbers of its own layers. ``|`` parts pipeline stages, and
``/`` begins a layer for multi-token prediction. Source: ``megatron/core/models/hybrid/hybrid_layer_allocation.py``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

PAIRS = "pairs of attention and feed-forward"
"""What a family allows of a pattern, in words."""
BLOCKS = re.compile(r"((?:[*+DG][-E])+)((?:/[*+DG][-E])*)")
LAYER, PREDICTING = re.compile(r"(?<=^decoder\.layers\.)\d+"), re.compile(r"(?<=\.mtp_model_layer)\.layers\.\d+")


def feed_forward(pattern: str) -> tuple[tuple[bool, ...], tuple[bool, ...]] | None:
    """Return whether each block of a pattern has experts, of the decoder and for multi-token prediction; None where it makes no blocks."""
    made = BLOCKS.fullmatch(pattern.replace("|", ""))
    return None if made is None else (sparse(made[1]), sparse(made[2].replace("/", "")))


def usual_blocks(pattern: str) -> tuple[tuple[bool, ...], tuple[bool, ...]] | None:
    """Return :func:`feed_forward` of a pattern of usual or of latent attention alone, which a family may have; None for any other."""
    return feed_forward(pattern) if set(pattern).isdisjoint("DG") else None


def sparse(layers: str) -> tuple[bool, ...]:
    """Return whether each pair of layers has experts."""
    return tuple(letter == "E" for letter in layers[1::2])


def pattern_of_blocks(experts: Sequence[bool], *, predicted: int, latent: bool) -> str:
    """Return the pattern of a GPTModel's blocks, of which each has ``experts`` or not; those that predict are like the last."""
    blocks = [("+" if latent else "*") + ("E" if sparse else "-") for sparse in experts]
    return "/".join(["".join(blocks), *blocks[-1:] * predicted])


def in_blocks(native: str, first: int) -> str:
    """Return the name of a parameter in a GPTModel of the same blocks, its layer counted over the whole model.

    ``first`` is the number, from 0, of the first layer on this pipeline stage."""
    counted = LAYER.sub(lambda number: str((int(number[0]) + first) // 2), native)
    return PREDICTING.sub("", counted)
