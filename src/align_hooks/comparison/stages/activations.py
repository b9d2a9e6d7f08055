"""What the points of a forward pass put out, and what the backward pass hands back to them, on equal weights."""

from __future__ import annotations

from collections.abc import Mapping

from align_hooks.comparison.ladder import Ladder
from align_hooks.comparison.point_stage import point_stage
from align_hooks.comparison.points import backward_order, forward_order
from align_hooks.comparison.stages.stage import Phase, stage
from align_hooks.comparison.verdict import Place, StageResult
from align_hooks.names.points import GRADIENT

OF_POINTS: Mapping[str, object] = {"draws": True, "is_of_tensors": True, "is_pictured": True, "source": "align_hooks.record.activations"}


@stage("activations", Phase.FORWARD, place=Place.FORWARD, **OF_POINTS)
def activations(ladder: Ladder) -> StageResult | None:
    """The value of each point at every step that stands on equal weights, in the order of a forward pass; None where neither run recorded
    any. What is shown first is where the error jumps."""
    return point_stage(ladder, activations, lambda name: not name.endswith(GRADIENT), forward_order)


@stage("activation gradients", Phase.BACKWARD, place=Place.GRADIENTS, **OF_POINTS)
def activation_gradients(ladder: Ladder) -> StageResult | None:
    """The gradient of each point at every step that stands on equal weights, from the output back; None where neither run recorded any."""
    return point_stage(ladder, activation_gradients, lambda name: name.endswith(GRADIENT), backward_order)
