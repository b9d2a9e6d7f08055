"""The stage of gradient norms at steps on equal weights."""

from __future__ import annotations

from align_hooks.comparison.context import ComparisonContext
from align_hooks.comparison.finding import Metric
from align_hooks.comparison.stage_result import Phase, StageResult
from align_hooks.comparison.stages.stage import stage
from align_hooks.comparison.steps import exact_stage
from align_hooks.messages import message, sentences

SOURCE = sentences(message("method.guide_local_norm"), "align_hooks.record.format.norms")


@stage("local norms", Phase.BACKWARD, draws=True, is_of_tensors=True, is_pictured=True, source=SOURCE)
def local_norms(context: ComparisonContext) -> StageResult:
    """Compare norms of exact steps."""
    return exact_stage(context, local_norms, Metric.LOCAL_NORMS, context.pair.is_exact, context.pair.limits.norm)
