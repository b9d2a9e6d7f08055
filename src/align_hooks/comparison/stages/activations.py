"""What the points of a forward pass put out, on equal weights."""

from __future__ import annotations

from align_hooks.comparison.context import ComparisonContext
from align_hooks.comparison.metrics.points import forward_order
from align_hooks.comparison.point_stage import point_stage
from align_hooks.comparison.stage_result import FaultLocation, Phase, StageResult
from align_hooks.comparison.stages.stage import stage
from align_hooks.names.points import GRADIENT


@stage(
    "activations",
    Phase.FORWARD,
    place=FaultLocation.FORWARD,
    draws=True,
    is_of_tensors=True,
    is_pictured=True,
    source="align_hooks.record.read.activations",
)
def activations(context: ComparisonContext) -> StageResult | None:
    """The value of each point at every step that stands on equal weights, in the order of a forward pass; None where neither run recorded
    any. What is shown first is where the error jumps."""
    return point_stage(context, activations, lambda name: not name.endswith(GRADIENT), forward_order)
