"""The numbers of a step: loss, norm, learning rate. Always recorded; a step is whole when its row stands there."""

from __future__ import annotations

from align_hooks.quantities.kind import Quantity

SCALARS = Quantity("scalars", None)
