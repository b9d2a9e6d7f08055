"""Gradients of exact steps, and their norms."""

from __future__ import annotations

from align_hooks.comparison.ladder import Ladder
from align_hooks.comparison.stages.stage import Phase, stage
from align_hooks.comparison.steps import exact_stage
from align_hooks.comparison.verdict import Quantity, StageResult
from align_hooks.messages import message, sentences

OF_NORMS = sentences(message("method.guide_local_norm"), "align_hooks.record.norms")


@stage("local norms", Phase.BACKWARD, draws=True, is_of_tensors=True, is_pictured=True, source=OF_NORMS)
def local_norms(ladder: Ladder) -> StageResult:
    """Norms of exact steps."""
    return exact_stage(ladder, local_norms, Quantity.LOCAL_NORMS, ladder.pair.is_exact, ladder.pair.limits.norm)


@stage("gradients", Phase.BACKWARD, draws=True, is_of_tensors=True, is_pictured=True, source="align_hooks.record.sketch")
def gradients(ladder: Ladder) -> StageResult:
    """Gradients of exact steps, tensor by tensor, stored or sketched."""
    return exact_stage(ladder, gradients, Quantity.GRADIENTS, ladder.pair.is_exact, ladder.pair.limits.gradient)
