"""What the built model's layers hold their weights in and compute in, and of which classes they are: the CheckList asks, no key tells.

A cell of MindFormers casts its weight to the type that one of its attributes names; a cell without one computes in the weight's own.
"""

from __future__ import annotations

from typing import Any

from align_hooks.ms_side.model import Parameters
from align_hooks.names.table import any_layer

COMPUTES_IN = ("compute_dtype", "compute_type", "dtype")
"""Attributes of cells that name the type of their computation."""


def layers(network: Any, parameters: Parameters) -> dict[str, dict[str, str]]:
    """Canonical name, with ``*`` for the number of the layer, to the class of its cell, and the types of weight and computation."""
    names = {id(one.model): list(one.fused.pieces) for one in parameters}
    found: dict[str, dict[str, str]] = {}
    for _, cell in network.cells_and_names():
        for weight in cell.get_parameters(expand=False):
            kept = str(weight.dtype).lower()
            compute = next((kind for kind in (getattr(cell, name, None) for name in COMPUTES_IN) if kind is not None), kept)
            for name in names.get(id(weight), ()):
                found.setdefault(any_layer(name), {"class": type(cell).__name__, "weight": kept, "compute": str(compute).lower()})
    return found


def classes(network: Any) -> list[str]:
    """Names of the classes of all cells: which attention core, which norms, fused or not."""
    return sorted({type(cell).__name__ for _, cell in network.cells_and_names()})
