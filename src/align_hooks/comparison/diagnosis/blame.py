"""Put together where a fault is, what to suspect, and its likely causes in words."""

from __future__ import annotations

from collections.abc import Sequence

from align_hooks.comparison.context import ComparisonContext
from align_hooks.comparison.diagnosis.hypotheses.registry import HYPOTHESES
from align_hooks.comparison.diagnosis.hypothesis import Fault, likeliest
from align_hooks.comparison.diagnosis.location import location_of
from align_hooks.comparison.diagnosis.observations import Observations
from align_hooks.comparison.diagnosis.suspects import origins_of, suspect, suspects
from align_hooks.comparison.finding import Words
from align_hooks.comparison.stage_result import FaultLocation, StageResult, Status, differing
from align_hooks.comparison.stages import registry
from align_hooks.comparison.verdict import Blame
from align_hooks.messages import Message, Side, message, sentences, terms
from align_hooks.names.points import place

OF_A_PASS = (FaultLocation.FORWARD, FaultLocation.GRADIENTS)
"""Places of which points are recorded."""
SUSPECTS = 5
NEAR = 10.0
"""Times a default limit within which an error may be rounding that grew over many points, so that a suspect is a guess."""


def blame(first: StageResult | None, stages: Sequence[StageResult], context: ComparisonContext) -> Blame | None:
    """Return place, suspects and likely causes of the stage that differs first; None where none does."""
    if first is None or first.status is not Status.DIFFERENT:
        return None
    seen = Observations(first, stages, context)
    fault = located(seen)
    location, culprits = fault.location, fault.suspects
    causes = likeliest(fault, HYPOTHESES)
    likely: list[Words] = [first.common] if location is FaultLocation.WEIGHTS and first.common and first.place is None else []
    one_sided = lone_token_losses(context) if location is FaultLocation.FORWARD and not seen.logits_agree else None
    if one_sided is not None:  # a loss function may differ as well, and no tensor tells the two apart
        culprits, causes = tuple(suspect(finding) for finding in seen.acting(location)), ()
        likely.append(one_sided)
    likely += not_ruled_out(seen, location)
    if location in OF_A_PASS and first.place is None and not context.noise.repeats:
        times = max(finding.limit_ratio for stage in stages if stage.status is Status.DIFFERENT for finding in stage.beyond)
        if times < NEAR:
            likely, causes = [message("blame.measure_first", times=times)], ()  # any other name would be a guess
    for one in causes:
        words = message("blame.cause", cause=message(f"cause.{one.cause}"), look=message(f"look.{one.cause}"))
        likely.append(sentences(words, one.detail(context) if one.detail is not None else None))
    concerned = first.stage is not registry.hyper_parameters and stages[0].status is not Status.NOT_COMPARABLE
    later = [finding.what for finding in differing(stages, registry.hyper_parameters)] if concerned else []
    if later:  # they can have had no effect yet where the runs part first
        likely.append(message("blame.acts_later", names=terms(later)))
    return Blame(location, tuple(culprits[:SUSPECTS]), tuple(likely), tuple(one.cause for one in causes), is_open(seen, location))


def located(seen: Observations) -> Fault:
    """Return the fault that a comparison shows, with its suspects and points."""
    location = location_of(seen)
    points = tuple(place(origin.name).kind for origin in origins_of(seen, location)) if location in OF_A_PASS else ()
    return Fault(seen, location, suspects(seen, location), points)


def is_open(seen: Observations, location: FaultLocation) -> bool:
    """Return whether nothing on record says which of the two sides is the wrong one."""
    of_both = location is FaultLocation.GRADIENTS and seen.first.common is None
    numbers = location in (FaultLocation.FORWARD, FaultLocation.STATE) or of_both
    return numbers and seen.first.place is None and not seen.acting(location) and not seen.logits_agree


def lone_token_losses(context: ComparisonContext) -> Message | None:
    """Say that only one side has token losses at the first step, though both recorded its batch; None otherwise."""
    if context.pair.first not in context.pair.steps("batches"):
        return None
    without = [side for side, batch in zip(Side, context.first_batches, strict=True) if batch.token_losses is None]
    return message("blame.no_token_losses", side=without[0]) if len(without) == 1 else None


def not_ruled_out(seen: Observations, location: FaultLocation) -> list[Message]:
    """Return other sources of a fault of the forward pass, which no record rules out."""
    inputs = sorted({name for run in seen.pair.runs for name in run.unrecorded_inputs})
    unseen = [message("blame.unrecorded_inputs", names=terms(inputs))] if inputs else []
    if seen.status(registry.initial_weights) is Status.NOT_COMPARED:
        unseen.append(message("blame.weights_not_compared"))
    return unseen if location is FaultLocation.FORWARD else []
