"""The norm of every parameter's gradient, as each rank's squared sums."""

from __future__ import annotations

from align_hooks.quantities.kind import Quantity, Switch, VariableOption

POINT = VariableOption("local_norms_point", ("reduced", "local"), "after or before the data-parallel reduction (MindFormers only)")
PRINTED = VariableOption(
    "local_norms_print", ("summary", "all"), "with a record a line a step on rank 0, or every norm on every rank; without one, every norm"
)

LOCAL_NORMS = Quantity(
    "local_norms",
    Switch("local_norms", "print and record the norm of every parameter's gradient", options=(POINT, PRINTED), printed=True),
    of_gradients=True,
    trainable=True,
)
