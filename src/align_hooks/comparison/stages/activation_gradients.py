"""The stage of gradients at points of the forward pass, on equal weights."""

from __future__ import annotations

from align_hooks.comparison.context import ComparisonContext
from align_hooks.comparison.stage_result import FaultLocation, Phase, StageResult
from align_hooks.comparison.stages.stage import stage
from align_hooks.comparison.steps import point_stage

SOURCE = "align_hooks.record.read.activations"


@stage(
    "activation gradients", Phase.BACKWARD, place=FaultLocation.GRADIENTS, draws=True, is_of_tensors=True, is_pictured=True, source=SOURCE
)
def activation_gradients(context: ComparisonContext) -> StageResult | None:
    """Compare the gradient of each point from the output back; None where neither run recorded any."""
    return point_stage(context, activation_gradients, backward=True)
