"""Gradients of a step: reduced, unscaled, not yet clipped."""

from __future__ import annotations

from align_hooks.quantities.kind import Quantity, Switch

TENSORS = "gradients.safetensors"

GRADIENTS = Quantity(
    "gradients",
    Switch("gradients", "record gradients: reduced, unscaled, not yet clipped"),
    files=(TENSORS,),
    whole=TENSORS,
    of_gradients=True,
    trainable=True,
    copies=1,
    kept_on_device=True,
)
