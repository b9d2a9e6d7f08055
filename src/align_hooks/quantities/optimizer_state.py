"""The optimizer's moments after N updates, its count of updates, and the types in which it keeps the moments."""

from __future__ import annotations

from align_hooks.quantities.kind import Quantity, Switch

MOMENTS = ("exp_avg", "exp_avg_sq")
"""Adam's first and second moment, by torch's names; each is a file of tensors, named as the weights."""
MOMENTUM = "momentum_buffer"
"""The only moment of Muon, by torch's name."""
ALL_MOMENTS = (*MOMENTS, MOMENTUM)
DESCRIPTION = "optimizer_state/state.json"

OPTIMIZER_STATE = Quantity(
    "optimizer_state",
    Switch("optimizer_state", "record the optimizer's state, numbered like weights"),
    is_state=True,
    files=(DESCRIPTION, *(f"optimizer_state/{moment}.safetensors" for moment in ALL_MOMENTS)),
    whole=DESCRIPTION,
    trainable=True,
    copies=len(MOMENTS),
)
