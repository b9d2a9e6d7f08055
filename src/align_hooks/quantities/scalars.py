"""The scalars of a step: loss, norm, learning rate. Always recorded; a step is complete when it has this row."""

from __future__ import annotations

from align_hooks.quantities.kind import Quantity

SCALARS = Quantity("scalars", None)
