"""The stage of model settings that differ although nothing recorded shows it."""

from __future__ import annotations

from align_hooks.comparison.context import ComparisonContext
from align_hooks.comparison.settings.recorded import FAMILY, of_no_family, several
from align_hooks.comparison.stage_result import StageResult, Status
from align_hooks.comparison.stages.stage import stage
from align_hooks.messages import Message, message
from align_hooks.quantities.weights import NO_FAMILY


@stage("model settings", decides=False)
def model_settings(context: ComparisonContext) -> StageResult:
    """Compare settings: some faults hide from losses for long, and one below the rounding of the coarser type for good."""
    if not context.settings and not all(run.facts.model for run in context.pair.runs):
        return StageResult(model_settings, Status.NOT_COMPARED, message("settings.not_on_record"))
    status = Status.INCONCLUSIVE if context.settings else Status.SAME
    differs = difference_words(context) if context.settings else None
    short = message("short.as_built")
    return StageResult(model_settings, status, message("model_settings.compared"), tuple(context.settings), short=short, differs=differs)


def difference_words(context: ComparisonContext) -> Message:
    """Say what differs; where a side's model was not recognised, only that: nothing else of it is worth reading first."""
    if all(finding.name != FAMILY for finding in context.settings):
        return message("model_settings.differ", names=several([finding.what for finding in context.settings]))
    side, model = next((side, run.facts.model) for side, run in context.pair.sides if NO_FAMILY in run.facts.model)
    return message("model_settings.not_recognised", side=side, what=of_no_family(model))
