"""Names of the curves, on pages and on a terminal."""

from __future__ import annotations

from align_hooks.comparison.verdict import Quantity
from align_hooks.messages import Argument, message

TITLES: dict[str, Argument] = {
    "loss": Quantity.LOSS,
    "grad_norm": message("page.global_gradient_norm"),
    "learning_rate": Quantity.LEARNING_RATE,
}
