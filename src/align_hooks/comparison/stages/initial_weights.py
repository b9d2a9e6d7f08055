"""The stage of the weights that both runs start from."""

from __future__ import annotations

import math

from msgspec.structs import replace

from align_hooks.comparison.context import ComparisonContext
from align_hooks.comparison.finding import Metric, Pattern, Words
from align_hooks.comparison.patterns import conversion
from align_hooks.comparison.patterns.sharding import SHOWN
from align_hooks.comparison.stage_result import FaultLocation, Phase, StageResult, Status
from align_hooks.comparison.stages.stage import stage
from align_hooks.comparison.steps import exact_stage
from align_hooks.messages import Message, message, sentences


@stage("initial weights", Phase.START, place=FaultLocation.WEIGHTS, is_of_tensors=True, is_pictured=True)
def initial_weights(context: ComparisonContext) -> StageResult:
    """Compare the initial weights, to the bit or within the rounding of sketches."""
    result = exact_stage(context, initial_weights, Metric.WEIGHTS, lambda step: step == context.pair.first, 0.0)
    if (stale := _stale_main_parameters(context)) is not None:
        result = replace(result, status=Status.DIFFERENT, common=None, differs=None, place=FaultLocation.WEIGHTS)
        return result.with_common(stale, Pattern.STALE_MAIN_PARAMETERS)
    if result.status is Status.DIFFERENT and not result.common:
        known = _converted(context, result)
        result = replace(result, differs=None).with_common(known) if known is not None else result
    if result.status is Status.DIFFERENT and not context.pair.candidate.facts.settings.get("load_weights"):
        return replace(result, summary=sentences(result.summary, message("initial_weights.none_loaded")))
    return result


def _stale_main_parameters(context: ComparisonContext) -> Message | None:
    """Name the only side whose optimizer starts from other weights than its model: main parameters are recorded, not the model's."""
    stale = [(side, names) for side, run in context.pair.sides if (names := run.stale_main_parameters)]
    if len(stale) != 1:
        return None
    ((side, names),) = stale
    return message("initial_weights.stale_main_parameters", side=side, count=len(names), first=names[0])


def _converted(context: ComparisonContext, result: StageResult) -> Words | None:
    """Describe the known mistakes of a conversion that made the weights that differ most; None without any."""
    pair, step = context.pair, context.pair.first or 0
    wrong = [finding.name for finding in result.beyond[:SHOWN]]
    if step in pair.steps("weights"):
        sizes = {name: math.sqrt(sketch[0]) for name, sketch in pair.reference.sketches("weights", step).items()}
        ours, theirs = (run.weights(step) for run in pair.runs)
        mistakes = [conversion.mistake(ours, theirs, name, sizes) for name in wrong]
    else:
        (sums, others), shapes = (run.sketches("weights", step) for run in pair.runs), pair.pieces(pair.reference)
        mistakes = [conversion.mistake_by_sketches(sums, others, name, shapes) for name in wrong]
    known = conversion.exchanged([mistake for mistake in mistakes if mistake is not None])
    return sentences(*known) if known else None
