"""The stage of values at points of the forward pass, on equal weights."""

from __future__ import annotations

from align_hooks.comparison.context import ComparisonContext
from align_hooks.comparison.stage_result import FaultLocation, Phase, StageResult
from align_hooks.comparison.stages.stage import stage
from align_hooks.comparison.steps import point_stage

SOURCE = "align_hooks.record.read.activations"


@stage("activations", Phase.FORWARD, place=FaultLocation.FORWARD, draws=True, is_of_tensors=True, is_pictured=True, source=SOURCE)
def activations(context: ComparisonContext) -> StageResult | None:
    """Compare the value of each point in the order of the forward pass; None where neither run recorded any."""
    return point_stage(context, activations, backward=False)
