"""Causes in the backward pass, and in the reduction of gradients."""

from __future__ import annotations

from align_hooks.comparison.diagnosis.advice import Advice, Situation
from align_hooks.comparison.diagnosis.hypotheses.state import mend_ranks
from align_hooks.comparison.diagnosis.hypothesis import Fault, Grounds, hypothesis
from align_hooks.comparison.diagnosis.observations import is_like
from align_hooks.comparison.diagnosis.tied import part_that_is_off
from align_hooks.comparison.finding import Pattern
from align_hooks.comparison.stage_result import FaultLocation
from align_hooks.messages import message
from align_hooks.names.points import EMBEDDING

GRADIENTS = FaultLocation.GRADIENTS


def mend_cause(now: Situation) -> Advice:
    """Return what to open and mend."""
    return Advice(message("next.mend_cause", look=now.look))


@hypothesis(GRADIENTS, source="field; zoo", advice=mend_cause)
def clipped_earlier(fault: Fault) -> Grounds | None:
    """The gradients of one side reach the optimizer with the norm `clip_grad` at every step."""
    return Grounds.PATTERN if fault.suspect.pattern is Pattern.CLIPPED_BEFORE else None


@hypothesis(GRADIENTS, source="field; zoo", advice=mend_ranks)
def ranks_not_reduced(fault: Fault) -> Grounds | None:
    """The self-check finds copies of a gradient that differ, and weights that agree."""
    return Grounds.PATTERN if fault.suspect.pattern is Pattern.RANKS_NOT_REDUCED else None


@hypothesis(GRADIENTS, outranks=("auxiliary_loss", "prediction_loss"))
def router_detached(fault: Fault) -> Grounds | None:
    """Gradients differ from the router of experts on, of whose own gradient next to nothing is left."""
    return Grounds.BRANCH if fault.seen.router_is_lost else None


@hypothesis(GRADIENTS)
def auxiliary_loss(fault: Fault) -> Grounds | None:
    """The auxiliary loss or a setting of it differs, or gradients agree from the output to experts, and differ from their router on."""
    settings = ("moe_aux_loss_coeff", "moe_router_load_balancing_type", "micro_batch_size", "moe_z_loss_coeff")
    if fault.is_named(*settings, "auxiliary"):
        return Grounds.SETTING
    return Grounds.BRANCH if fault.seen.starts_at_routers else None


@hypothesis(GRADIENTS)
def prediction_loss(fault: Fault) -> Grounds | None:
    """The loss of further tokens or its weight differs, or gradients differ from the output on, those of a predicting layer most."""
    if fault.is_named("mtp_loss_scaling_factor", "multi_token_prediction"):
        return Grounds.SETTING
    return Grounds.BRANCH if fault.seen.starts_at_prediction else None


@hypothesis(GRADIENTS, is_of_one_tensor=True)
def norm_copies(fault: Fault) -> Grounds | None:
    """Only the weights of norms differ, and no point is known."""
    norms = all(is_like(suspect.name, ["*norm.weight*"]) for suspect in fault.suspects)
    return Grounds.BRANCH if fault.is_of("*norm.weight*") and norms else None


@hypothesis(GRADIENTS)
def backward_of_point(fault: Fault) -> Grounds | None:
    """The error arises at a point of the backward pass."""
    return Grounds.POINT if fault.point else None


@hypothesis(GRADIENTS)
def backward_at_boundary(fault: Fault) -> Grounds | None:
    """Gradients agree from the output back to a tensor, and differ from there on."""
    frontier = fault.seen.frontier
    return Grounds.EXTENT if frontier is not None and frontier.above else None


@hypothesis(GRADIENTS)
def backward_of_loss(fault: Fault) -> Grounds | None:
    """Gradients differ from the output on."""
    frontier = fault.seen.frontier
    return Grounds.EXTENT if frontier is not None and not frontier.above else None


@hypothesis(GRADIENTS, outranks=("gradient_alone",), detail=part_that_is_off, is_of_one_tensor=True)
def tied_weight(fault: Fault) -> Grounds | None:
    """The weight that the embedding shares with the output layer is the only tensor that differs."""
    weight = f"{EMBEDDING}.weight"
    alone = fault.seen.only_tensor is not None and fault.seen.is_tied
    return Grounds.EXTENT if alone and fault.is_named(weight) else None


@hypothesis(GRADIENTS, is_of_one_tensor=True)
def gradient_alone(fault: Fault) -> Grounds | None:
    """One tensor differs."""
    return Grounds.EXTENT if fault.seen.only_tensor is not None else None


@hypothesis(GRADIENTS)
def some_gradients(fault: Fault) -> Grounds | None:
    """Several tensors differ, by nothing that they have in common, and no boundary is between them and those that agree."""
    seen = fault.seen
    common = seen.tensors is not None and seen.tensors.common
    return Grounds.EXTENT if seen.frontier is None and seen.only_tensor is None and not common else None
