"""The stage of gradients at steps on equal weights."""

from __future__ import annotations

from align_hooks.comparison.context import ComparisonContext
from align_hooks.comparison.finding import Metric
from align_hooks.comparison.stage_result import Phase, StageResult
from align_hooks.comparison.stages.stage import stage
from align_hooks.comparison.steps import exact_stage


@stage("gradients", Phase.BACKWARD, draws=True, is_of_tensors=True, is_pictured=True, source="align_hooks.record.format.sketch")
def gradients(context: ComparisonContext) -> StageResult:
    """Compare gradients of exact steps, tensor by tensor, stored or sketched."""
    return exact_stage(context, gradients, Metric.GRADIENTS, context.pair.is_exact, context.pair.limits.gradient)
