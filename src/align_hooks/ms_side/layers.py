"""The types in which the built model's layers keep their weights and compute, and the layers' classes: the CheckList asks for them, and no
key of the configuration tells them.

A cell of MindFormers casts its weight to the type that an attribute of it names. A cell without such an attribute computes in the
weight's own type.
"""

from __future__ import annotations

from align_hooks.ms_side.model import Parameters
from align_hooks.ms_side.objects import Cell
from align_hooks.names.table import any_layer

COMPUTES_IN = ("compute_dtype", "compute_type", "dtype")
"""Attributes of cells that name the type in which they compute."""


def layers(network: Cell, parameters: Parameters) -> dict[str, dict[str, str]]:
    """Canonical name, with ``*`` for the number of the layer, to the class of its cell, and the types of weight and computation."""
    names = {id(parameter.model): parameter.fused.pieces for parameter in parameters}
    facts: dict[str, dict[str, str]] = {}
    for _, cell in network.cells_and_names():
        for weight in cell.get_parameters(expand=False):
            dtype = str(weight.dtype).lower()
            compute = next((kind for kind in (getattr(cell, name, None) for name in COMPUTES_IN) if kind is not None), dtype)
            for name in names.get(id(weight), ()):
                facts.setdefault(any_layer(name), {"class": type(cell).__name__, "weight": dtype, "compute": str(compute).lower()})
    return facts


def classes(network: Cell) -> list[str]:
    """Names of the classes of all cells, from which the attention core and the norms can be told, fused or not."""
    return sorted({type(cell).__name__ for _, cell in network.cells_and_names()})
