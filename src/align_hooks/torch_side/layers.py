"""The types in which the built model's layers keep their weights and compute, and the layers' classes: the CheckList asks for them, and no
flag tells them.

Megatron computes in the type of the weight that a layer holds. It never computes with the fp32 copies that the optimizer updates.
"""

from __future__ import annotations

from collections.abc import Iterable

from align_hooks.names.table import any_layer
from align_hooks.torch_side.arrays import dtype_of
from align_hooks.torch_side.model import Parameters
from align_hooks.torch_side.objects import Module


def layers(chunks: Iterable[Module], parameters: Parameters) -> dict[str, dict[str, str]]:
    """Canonical name, with ``*`` for the number of the layer, to the class of its module, and the types of weight and computation."""
    names = {id(parameter.model): parameter.whole.pieces for parameter in parameters}
    facts: dict[str, dict[str, str]] = {}
    for module in (module for chunk in chunks for module in chunk.modules()):
        for weight in module.parameters(recurse=False):
            dtype = dtype_of(weight.dtype)
            for name in names.get(id(weight), ()):
                facts.setdefault(any_layer(name), {"class": type(module).__name__, "weight": dtype, "compute": dtype})
    return facts


def classes(chunks: Iterable[Module]) -> list[str]:
    """Names of the classes of all modules, from which the attention core and the norms can be told, fused or not."""
    return sorted({type(module).__name__ for chunk in chunks for module in chunk.modules()})
