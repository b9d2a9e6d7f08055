"""The norm of every parameter's gradient, as each rank's squared sums."""

from __future__ import annotations

from align_hooks.quantities.kind import Kind, Option, Switch

POINT = Option("local_norms_point", ("reduced", "local"), "after or before the data-parallel reduction (MindFormers only)")

LOCAL_NORMS = Kind(
    "local_norms",
    Switch("local_norms", "print and record the norm of every parameter's gradient", options=(POINT,), printed=True),
    of_gradients=True,
    trainable=True,
)
