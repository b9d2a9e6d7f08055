"""What a forward pass makes at its points, and what the backward pass hands back to each: sums always, whole tensors where asked.

The points are those of :mod:`align_hooks.names.points`. Sums are those of :mod:`align_hooks.record.read.activations`, one row a
micro-batch.
"""

from __future__ import annotations

from align_hooks.quantities.kind import Quantity, Switch, VariableOption

SUMS, TENSORS = "activations/sums.safetensors", "activations/tensors.safetensors"
"""Of each point, and of its gradient under the name with ``#gradient``: fp64 ``[micro-batches, numbers]``, and where it was asked for the
value itself, fp32 ``[rows, positions, columns]``."""
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
