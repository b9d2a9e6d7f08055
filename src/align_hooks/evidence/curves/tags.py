"""What the frameworks call the numbers of a step in the curves that they log. Data alone.

Megatron-LM logs the rate of the step after (``training_log``, as in its text log), and to TensorBoard and W&B the loss of the step itself,
where its text log has the mean since the line before. MindFormers is ``MFLossMonitor``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tags:
    """The names that a framework gives to a quantity of a row, the best first. ``rate_of_next``: a learning rate stands at the step before
    the one that uses it."""

    side: str
    names: Mapping[str, tuple[str, ...]]
    rate_of_next: bool = False


MEGATRON = Tags(
    "torch",
    {
        "loss": ("lm loss",),
        "grad_norm": ("grad-norm",),
        "learning_rate": ("learning-rate",),
        "loss_scale": ("loss-scale",),
        "consumed_samples": ("samples vs steps", "consumed samples"),
    },
    rate_of_next=True,
)
MINDFORMERS = Tags(
    "ms",
    {
        "loss": ("lm-loss", "loss"),
        "grad_norm": ("grad-norm",),
        "learning_rate": ("learning-rate",),
        "loss_scale": ("loss-scale",),
        "consumed_samples": ("consumed samples",),
    },
)
BY_HAND: Mapping[str, tuple[str, ...]] = {
    "loss": ("loss", "train loss", "train/loss", "lm loss", "lm-loss"),
    "grad_norm": ("grad norm", "grad-norm", "global norm", "train/grad norm"),
    "learning_rate": ("learning rate", "learning-rate", "lr", "train/learning rate"),
    "loss_scale": ("loss scale", "loss-scale"),
    "consumed_samples": ("consumed samples", "samples"),
}
"""What tables that people make call them, with spaces or ``_``; a rate is that of its own row's step."""
STEPS = ("step", "_step", "iteration", "iter", "global_step", "train/global_step")
"""Columns that number the rows of a table."""
OF_SAMPLES = " vs samples"
"""What both frameworks put behind a name for the same curve over consumed samples."""
