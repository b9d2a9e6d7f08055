"""The terms of a newer model's loss, which its training cell puts out as their sum.

Seam: MindFormers' ``parameter_register``, to which ``MFTrainOneStepCell`` adds each term in the graph where ``print_separate_loss`` is on,
as it is by default. ``MFLossMonitor`` empties it when a step has ended, so it is read by a callback that stands before all others. A model
without experts and without layers for multi-token prediction has one term, and needs none of this.
"""

from __future__ import annotations

from align_hooks.ms_side.arrays import number
from align_hooks.ms_side.model import Model
from align_hooks.ms_side.objects import Cell
from align_hooks.record.terms import AUXILIARY, PREDICTION

LANGUAGE_MODEL = "language_model"
TERMS = {LANGUAGE_MODEL: "lm_loss", AUXILIARY: "aux_loss", PREDICTION: "mtp_loss"}
"""A term to its name in the register."""


def has_terms(model: Model) -> bool:
    """Whether a model's loss may have other terms than the language model's."""
    config = model.config
    return model.is_newer and bool(config.num_moe_experts or config.mtp_num_layers)


def read_terms(cell: Cell, model: Model) -> dict[str, float]:
    """The terms of the step that has just ended, of those that the model has; empty without ``print_separate_loss``, which keeps them.

    The register has the auxiliary loss without its coefficient and divided by the number of layers with experts; here it is what was added.
    """
    if not getattr(cell, "print_separate_loss", False):
        return {}
    from mindformers.utils.parameter_register import parameter_register as known  # older versions have none, and no model of several terms

    config = model.config
    there = {LANGUAGE_MODEL: True, AUXILIARY: config.num_moe_experts, PREDICTION: config.mtp_num_layers}
    terms = {term: number(known.get(name)) for term, name in TERMS.items() if there[term]}
    if AUXILIARY in terms:
        terms[AUXILIARY] *= float(cell.aux_loss_scale)
    return terms
