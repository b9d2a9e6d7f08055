"""The terms of a newer model's loss, which its training cell puts out as their sum.

Seam: MindFormers' ``parameter_register``, to which ``MFTrainOneStepCell`` adds each term in the graph where ``print_separate_loss`` is on,
as it is by default. ``MFLossMonitor`` empties it when a step has ended, so it is read by a callback that stands before all others. A model
without experts and without layers for multi-token prediction has one term, and needs none of this.
"""

from __future__ import annotations

from mindformers.utils import parameter_register as registered

from align_hooks.ms_side.arrays import number
from align_hooks.ms_side.model import Model
from align_hooks.ms_side.objects import Cell

LANGUAGE_MODEL = "lm_loss"
"""What the register calls the language model's term."""


def has_terms(model: Model) -> bool:
    """Whether a model's loss may have other terms than the language model's."""
    config = model.config
    return model.is_newer and bool(config.num_moe_experts or config.mtp_num_layers)


def language_model_loss(cell: Cell) -> float | None:
    """The language model's term of the step that has just ended; None without ``print_separate_loss``, which keeps the terms."""
    return number(registered.parameter_register.get(LANGUAGE_MODEL)) if getattr(cell, "print_separate_loss", False) else None
