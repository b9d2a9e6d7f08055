"""The memory that the two passes need, known before they start."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping

from align_hooks.errors import AlignHooksError
from align_hooks.names.blocks import PADDING
from align_hooks.oracle.inputs import Inputs, size

FP64, FP32 = 8, 4
"""Bytes of an element in the truth, and at most in the honest pass."""
GRAPH = 3
"""Copies of each tensor of a layer's graph in memory: itself, its gradient and intermediate results."""


def needed(inputs: Inputs, configuration: Mapping[str, object]) -> int:
    """Return the bytes that the truth and the honest pass take at most; a Llama of 133 M elements took two thirds of them.

    Counted are the hidden states between layers, the largest part of the model with gradients, one row's graph, and the gradients of
    embedding and output where several parts use these."""
    rows, sequence = inputs.shape
    sizes: dict[str, int] = {}
    for name in inputs.weights:
        part = ".".join(name.split(".")[:3]) if name.startswith("model.layers.") else name.removesuffix(PADDING)
        sizes[part] = sizes.get(part, 0) + math.prod(inputs.weights.shape(name))
    hidden, heads = size(configuration, "hidden_size"), size(configuration, "num_attention_heads")
    wide = max(size(configuration, "vocab_size"), size(configuration, "intermediate_size"), hidden)
    between = rows * sequence * hidden * (size(configuration, "num_hidden_layers") + 4)
    graph = GRAPH * (heads * sequence * sequence + sequence * (4 * wide + 12 * hidden))
    several = configuration.get("tie_word_embeddings") is True or size(configuration, "num_nextn_predict_layers") > 0
    kept = sum(elements for part, elements in sizes.items() if not part.startswith("model.layers.")) if several else 0
    return (FP64 + FP32) * (between + 2 * max(sizes.values(), default=0) + 2 * kept + graph)


def refuse_too_large(inputs: Inputs, configuration: Mapping[str, object]) -> int:
    """Return the bytes that the passes need; raise AlignHooksError where this machine has fewer free."""
    needs, free = needed(inputs, configuration), os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    if needs > free and needs > available(free):
        raise AlignHooksError(
            f"the truth in fp64 takes {needs / 1e9:.3g} GB of memory, and {available(free) / 1e9:.3g} GB are free;"
            " run it on a larger machine, or record a step of a smaller batch"
        )
    return needs


def available(free: int) -> int:
    """Return the bytes available without swapping, caches included; ``free`` where the system does not say."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:  # noqa: PTH123
            return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), free)
    except (OSError, ValueError):
        return free
