"""Settings of the model that differ although nothing recorded shows it."""

from __future__ import annotations

from align_hooks.comparison.ladder import Ladder
from align_hooks.comparison.settings import several
from align_hooks.comparison.stages.stage import stage
from align_hooks.comparison.verdict import StageResult, Status
from align_hooks.messages import message


@stage("model settings", decides=False)
def model_settings(ladder: Ladder) -> StageResult:
    """Some faults hide from losses for long, and a fault that is smaller than the rounding of the coarser compute type hides for good."""
    if not ladder.settings and not all(run.facts.model for run in ladder.pair.runs):
        return StageResult(model_settings, Status.NOT_COMPARED, message("settings.not_on_record"))
    status = Status.INCONCLUSIVE if ladder.settings else Status.SAME
    names = several([finding.what for finding in ladder.settings])
    differs = message("model_settings.differ", names=names) if ladder.settings else None
    short = message("short.as_built")
    return StageResult(model_settings, status, message("model_settings.compared"), tuple(ladder.settings), short=short, differs=differs)
