"""What the built model's layers hold their weights in and compute in, and of which classes they are: the CheckList asks, no flag tells.

Megatron computes in the type of the weight that a layer holds; the fp32 copies that the optimizer updates are never computed with.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from align_hooks.names.table import any_layer
from align_hooks.torch_side.model import Parameters


def layers(chunks: Iterable[Any], parameters: Parameters) -> dict[str, dict[str, str]]:
    """Canonical name, with ``*`` for the number of the layer, to the class of its module, and the types of weight and computation."""
    names = {id(one.model): list(one.whole.pieces) for one in parameters}
    found: dict[str, dict[str, str]] = {}
    for module in (module for chunk in chunks for module in chunk.modules()):
        for weight in module.parameters(recurse=False):
            kept = str(weight.dtype).removeprefix("torch.")
            for name in names.get(id(weight), ()):
                found.setdefault(any_layer(name), {"class": type(module).__name__, "weight": kept, "compute": kept})
    return found


def classes(chunks: Iterable[Any]) -> list[str]:
    """Names of the classes of all modules: which attention core, which norms, fused or not."""
    return sorted({type(module).__name__ for chunk in chunks for module in chunk.modules()})
