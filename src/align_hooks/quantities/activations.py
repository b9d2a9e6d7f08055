"""Activations and their gradients at the points of :mod:`align_hooks.names.points`: always sums, and whole tensors on request."""

from __future__ import annotations

from align_hooks.quantities.kind import Quantity, Switch, VariableOption

SUMS, TENSORS = "activations/sums.safetensors", "activations/tensors.safetensors"
"""By point, with ``#gradient`` its gradient: sums, fp64 ``[micro-batches, numbers]`` (:mod:`align_hooks.record.read.activations`), and
tensors, fp32 ``[rows, positions, columns]``."""
FILTER = VariableOption("activations_filter", (), "which points, as patterns in a comma list (all unless said)")
WHOLE = VariableOption(
    "activations_tensors", (), "of which points whole tensors are kept too, as patterns in a comma list (none unless said)"
)

ACTIVATIONS = Quantity(
    "activations",
    Switch("activations", "record what each point of the forward pass puts out, and its gradient", options=(FILTER, WHOLE)),
    files=(TENSORS, SUMS),
    whole=SUMS,
)
