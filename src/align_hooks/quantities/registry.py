"""The quantities that a run can record, in the order of their variables, and tables of them."""

from __future__ import annotations

from align_hooks.quantities.activations import ACTIVATIONS
from align_hooks.quantities.batches import BATCHES
from align_hooks.quantities.gradients import GRADIENTS
from align_hooks.quantities.kind import Quantity, Switch
from align_hooks.quantities.local_norms import LOCAL_NORMS
from align_hooks.quantities.optimizer_state import OPTIMIZER_STATE
from align_hooks.quantities.routing import ROUTING
from align_hooks.quantities.scalars import SCALARS
from align_hooks.quantities.sketches import GRADIENT_SKETCHES, WEIGHT_SKETCHES
from align_hooks.quantities.weights import WEIGHTS

KINDS = (SCALARS, BATCHES, LOCAL_NORMS, GRADIENTS, WEIGHTS, GRADIENT_SKETCHES, WEIGHT_SKETCHES, OPTIMIZER_STATE, ROUTING, ACTIVATIONS)
SWITCHES: tuple[Switch, ...] = tuple(dict.fromkeys(kind.switch for kind in KINDS if kind.switch is not None))
"""Every variable that asks for a quantity."""
ROWS: tuple[Quantity, ...] = tuple(kind for kind in KINDS if kind.is_rows)
"""Quantities that are a row a step; the first, the scalars, lists the others."""
TENSORS: tuple[Quantity, ...] = tuple(kind for kind in KINDS if kind.copies)
"""Quantities as large as the model."""
STATES: tuple[str, ...] = tuple(kind.name for kind in KINDS if kind.is_state)
"""Names of the quantities that are numbered by updates."""
FOLDERS: tuple[str, ...] = tuple(dict.fromkeys(file.rpartition("/")[0] for kind in KINDS for file in kind.files if "/" in file))
"""The folders that ``step_N/rank_M`` may have."""
BY_NAME = {kind.name: kind for kind in KINDS}
SKETCHES = {kind.sketch_of.name: kind for kind in KINDS if kind.sketch_of is not None}
"""Name of a quantity to its sketches."""


def asked_by(switch: Switch) -> tuple[Quantity, ...]:
    """Return the quantities for which a variable asks."""
    return tuple(kind for kind in KINDS if kind.switch is switch)


def kind_of_file(path: str) -> Quantity | None:
    """Return the quantity of a file by its path in ``step_N/rank_M``, else the one whose folder it lies in; None for any other file."""
    return next((kind for kind in KINDS if path in kind.files), BY_NAME.get(path.partition("/")[0] if "/" in path else ""))
