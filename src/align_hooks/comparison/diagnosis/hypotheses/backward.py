"""Causes in the backward pass, and in the reduction of gradients."""

from __future__ import annotations

import numpy as np

from align_hooks.comparison.context import ComparisonContext
from align_hooks.comparison.diagnosis.advice import mend_cause, mend_ranks
from align_hooks.comparison.diagnosis.hypothesis import Fault, Grounds, Hypothesis
from align_hooks.comparison.diagnosis.observations import is_like, is_next_to_gone
from align_hooks.comparison.finding import Pattern
from align_hooks.comparison.stage_result import FaultLocation, Status
from align_hooks.comparison.stages import registry
from align_hooks.messages import Message, message
from align_hooks.names.points import EMBEDDING
from align_hooks.record.format.terms import AUXILIARY

GRADIENTS = (FaultLocation.GRADIENTS,)
BALANCING = ("moe_aux_loss_coeff", "moe_router_load_balancing_type", "micro_batch_size", "auxiliary")
ROUTER_LOGITS = ("moe_z_loss_coeff", "router_z_loss")
PREDICTION = ("mtp_loss_scaling_factor", "multi_token_prediction")
NAMED = (
    Hypothesis("clipped_earlier", GRADIENTS, patterns=(Pattern.CLIPPED_BEFORE,), source="field; zoo", advice=mend_cause),
    Hypothesis("ranks_not_reduced", GRADIENTS, patterns=(Pattern.RANKS_NOT_REDUCED,), source="field; zoo", advice=mend_ranks),
    Hypothesis("z_loss", GRADIENTS, settings=ROUTER_LOGITS),
    Hypothesis("backward_of_point", GRADIENTS, points=("*",)),
)


@Hypothesis("router_detached", GRADIENTS, outranks=("auxiliary_loss", "prediction_loss")).by(Grounds.BRANCH)
def router_detached(fault: Fault) -> bool:
    """Gradients agree from the output back to experts, and next to nothing is left of their router's."""
    first = [finding for finding in fault.seen.wrong if fault.seen.boundary is not None and finding.name in fault.seen.boundary.below]
    return fault.seen.starts_at_routers and bool(first) and all(map(is_next_to_gone, first))


@Hypothesis("auxiliary_loss", GRADIENTS, settings=BALANCING).by(Grounds.BRANCH)
def auxiliary_loss(fault: Fault) -> bool:
    """Gradients agree from the output back to experts, and differ from their router on, whose logits such a loss pulls."""
    rows = (row for run in fault.seen.pair.runs for row in run.rows)
    return fault.seen.starts_at_routers or (fault.is_at("mlp.gate") and any(AUXILIARY in (row.terms or ()) for row in rows))


@Hypothesis("prediction_loss", GRADIENTS, settings=PREDICTION).by(Grounds.BRANCH)
def prediction_loss(fault: Fault) -> bool:
    """Gradients differ from the output on, and those of a predicting layer most."""
    return fault.seen.starts_at_prediction


@Hypothesis("norm_copies", GRADIENTS, is_of_one_tensor=True).by(Grounds.BRANCH)
def norm_copies(fault: Fault) -> bool:
    """Only the weights of norms differ, and no point is known."""
    return fault.is_of("*norm.weight*") and all(is_like(suspect.name, ("*norm.weight*",)) for suspect in fault.suspects)


@Hypothesis("backward_at_boundary", GRADIENTS).by(Grounds.EXTENT)
def backward_at_boundary(fault: Fault) -> bool:
    """Gradients agree from the output back to a tensor, and differ from there on."""
    return fault.seen.boundary is not None and bool(fault.seen.boundary.above)


@Hypothesis("backward_of_loss", GRADIENTS).by(Grounds.EXTENT)
def backward_of_loss(fault: Fault) -> bool:
    """Gradients differ from the output on."""
    return fault.seen.boundary is not None and not fault.seen.boundary.above and not values_agree(fault)


@Hypothesis("gradients_gathered", GRADIENTS, source="Megatron-LM: buffers of FSDP").by(Grounds.EXTENT)
def gradients_gathered(fault: Fault) -> bool:
    """Gradients of parameters differ on several ranks, by no one factor, where those of all values agree: what gathers them is at fault."""
    seen = fault.seen
    alike = values_agree(fault) and seen.only_tensor is None and seen.tensors is not None and not seen.tensors.common
    return alike and any(run.world_size > 1 for run in seen.pair.runs)


def values_agree(fault: Fault) -> bool:
    """Return whether the gradients of values at all recorded points agree."""
    return fault.seen.status(registry.activation_gradients) is Status.SAME


WEIGHT = f"{EMBEDDING}.weight"
SMALL = 1e-3
"""Part of the largest row's difference up to which a row is off by rounding."""


def part_that_is_off(context: ComparisonContext) -> Message | None:
    """Name the part of the first step's gradient that is off, the embedding's or the output layer's; None where records are missing, or
    every row is used.

    The embedding's gradient reaches the rows of the tokens in a batch, and no other. The output layer's gradient has all rows, for each
    logit contributes to every token's loss. So the rows of tokens that are not in the batch distinguish the two."""
    pair, first = context.pair, context.pair.first
    if first is None or first not in pair.steps("batches") or not pair.both_stored("gradients", first):
        return None
    tokens, gradients = context.first_batches[0].tokens, [run.gradients(first) for run in pair.runs]
    if tokens is None or any(WEIGHT not in of_run for of_run in gradients):
        return None
    ours, theirs = (of_run[WEIGHT] for of_run in gradients)
    if ours.shape != theirs.shape or not (np.isfinite(ours).all() and np.isfinite(theirs).all()):
        return None
    apart = np.linalg.norm(ours - theirs, axis=1)
    off = apart > SMALL * apart.max()
    looked_up = np.isin(np.arange(len(off)), tokens)
    if looked_up.all() or not off.any():
        return None
    counts = {"count": int(off.sum()), "all": len(off)}
    return message("tied.of_output" if (off & ~looked_up).any() else "tied.of_embedding", **counts)


@Hypothesis("tied_weight", GRADIENTS, outranks=("gradient_alone",), detail=part_that_is_off, is_of_one_tensor=True).by(Grounds.EXTENT)
def tied_weight(fault: Fault) -> bool:
    """The weight that the embedding shares with the output layer is the only tensor that differs."""
    is_tied = all(run.facts.model.get("tie_word_embeddings") for run in fault.seen.pair.runs)
    return is_tied and fault.seen.only_tensor is not None and fault.suspect.name == WEIGHT


@Hypothesis("gradient_alone", GRADIENTS, is_of_one_tensor=True).by(Grounds.EXTENT)
def gradient_alone(fault: Fault) -> bool:
    """One tensor differs."""
    return fault.seen.only_tensor is not None


@Hypothesis("some_gradients", GRADIENTS).by(Grounds.EXTENT)
def some_gradients(fault: Fault) -> bool:
    """Several tensors differ, by nothing that they have in common, and no boundary is between them and those that agree."""
    seen = fault.seen
    return seen.boundary is None and seen.only_tensor is None and not (seen.tensors is not None and seen.tensors.common)
