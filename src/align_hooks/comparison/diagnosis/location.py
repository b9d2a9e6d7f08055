"""Conclude from the stages where a fault is.

A fault *shows* in the stage that differs first in training (:mod:`.symptom`). Where it *is* takes more: a loss that differs although
every token's loss agrees was normalised differently; gradients that differ under equal losses diverge in the backward pass or in the
reduction; without token losses the mean loss may hide a fault of the forward pass. A forward pass that agreed before, in an earlier
micro-batch or an earlier step on equal weights, is not wrong itself: some state carries over. Wrong rows of a single rank are that rank's
forward pass, at any step."""

from __future__ import annotations

from align_hooks.comparison.data.token_losses import AffectedRows
from align_hooks.comparison.diagnosis.observations import TENSORS, Observations
from align_hooks.comparison.finding import Metric
from align_hooks.comparison.patterns.sharding import common_factor
from align_hooks.comparison.stage_result import FaultLocation, StageResult, Status
from align_hooks.comparison.stages import registry

MOST = 0.5
"""Part of all tensors that a fault of the forward pass moves at least."""


def location_of(seen: Observations) -> FaultLocation:
    """Return where the fault is."""
    stage, rows = seen.first.stage, seen.divergence.rows.rows
    if seen.drawn is not None and stage.draws and not seen.acting(FaultLocation.FORWARD):
        return FaultLocation.STATE
    carried = rows is AffectedRows.LATER or (seen.divergence.later and rows is not AffectedRows.RANK)
    if stage is registry.token_losses and carried:
        return FaultLocation.STATE
    worst = seen.first.findings[0] if seen.first.findings else None
    if stage is registry.weights_after_update and worst is not None and worst.quantity is Metric.CLIP_COEFFICIENT:
        return FaultLocation.CLIPPING
    if stage is registry.first_updates and not any(seen.status(compared) is Status.SAME for compared in TENSORS):
        return FaultLocation.GRADIENTS  # which nobody saw, and of which updates are made
    if stage is registry.later_losses and not seen.first.common:
        return FaultLocation.CURVE
    decided = seen.first.place or stage.place
    if decided is not None:
        return decided
    if stage in TENSORS:
        return location_of_gradients(seen)
    # the first loss: the fault is beyond the tokens' losses where these agree, or where all gradients share a factor
    scaled = bool(seen.first.common) or (seen.tensors is not None and common_factor(seen.tensors.findings) is not None)
    return FaultLocation.NORMALISATION if seen.status(registry.token_losses) is Status.SAME or scaled else FaultLocation.FORWARD


def location_of_gradients(seen: Observations) -> FaultLocation:
    """Return where a fault is that gradients show."""
    losses = seen.stages[registry.first_loss].findings if registry.first_loss in seen.stages else ()
    if losses and all(finding.error == 0 for finding in losses):  # to the bit, which no fault of the forward pass leaves them
        return FaultLocation.GRADIENTS
    hidden = seen.status(registry.token_losses) is Status.NOT_COMPARED and is_of_the_forward_pass(seen.first)
    return FaultLocation.FORWARD if hidden or is_of_the_scores(seen.first) else FaultLocation.GRADIENTS


def is_of_the_forward_pass(stage: StageResult) -> bool:
    """Return whether a forward pass explains what differs: most tensors, with the output layer's, and by no common factor."""
    out = stage.beyond
    last = "lm_head" if any("lm_head" in finding.name for finding in stage.findings) else "embed_tokens"  # tied
    return len(out) >= MOST * len(stage.findings) and any(last in finding.name for finding in out) and not stage.common


def is_of_the_scores(stage: StageResult) -> bool:
    """Return whether queries and keys of one layer, of which scores are made, differ most.

    Losses see such faults last, and not at all where attention is nearly uniform."""
    out = [finding.name for finding in stage.beyond[:2]]
    parts = {tuple(name.rpartition(".self_attn.")[::2]) for name in out}
    return len({layer for layer, _ in parts}) == 1 and {name for _, name in parts} == {"q_proj.weight", "k_proj.weight"}
