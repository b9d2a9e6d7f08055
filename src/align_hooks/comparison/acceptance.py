"""The guide's acceptance standard (MindFormers r2.6, "large model migration accuracy standard"), reported as such.

It is coarse: on a small Llama it passed seven of nine planted faults, so no verdict depends on it. The standard asks for repeats of the
reference, and is widened to their differences where these are larger."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import TypeAlias

from msgspec import Struct

from align_hooks.comparison.metrics.measures import relative_difference
from align_hooks.comparison.verdict import Criterion, Judgement
from align_hooks.messages import Message, message, sentences
from align_hooks.record.format.rows import ScalarRow

GLOBAL_NORM = 0.10
STEPS, HOURS, LEAST = 5000, 12.0, 1000
"""Steps or hours of a run that the standard asks for, and the fewest steps that it advises."""
REPEATS = 2
"""Repeats of the reference that the standard asks for."""
Pairs: TypeAlias = Sequence[tuple[ScalarRow, ScalarRow]]
"""Rows of one step each: the reference's, and another run's."""


class AcceptanceOutcome(Judgement):
    """Whether the standard is met."""

    ACCEPTED = ("accepted", 0)
    REFUSED = ("refused", 1)
    OPEN = ("open", 4)


class Gap(Struct, frozen=True):
    """A mean difference, absolute and relative."""

    absolute: float
    relative: float


class Measure(Struct, frozen=True):
    """One criterion; a norm may reach its limit, a loss may not."""

    name: str
    what: Message
    limits: Gap
    """Absolute and relative difference, of which one is to be kept."""
    of_norm: bool = False
    """Whether the number is the global norm, else the loss."""
    first_only: bool = False
    """Whether only the first step counts."""

    def gap(self, pairs: Pairs) -> Gap | None:
        """Return the mean difference; None where no step has both numbers."""
        number = "grad_norm" if self.of_norm else "loss"
        both = [(getattr(ours, number), getattr(theirs, number)) for ours, theirs in pairs]
        known = [pair for pair in both if None not in pair][: 1 if self.first_only else None]
        if not known:
            return None
        return Gap(fmean(abs(theirs - ours) for ours, theirs in known), fmean(relative_difference(*pair) for pair in known))


FIRST, MEAN = Gap(0.005, 0.005), Gap(0.01, 0.01)
MEASURES = (
    Measure("first_loss", message("acceptance.first_loss", absolute=FIRST.absolute, percent=100 * FIRST.relative), FIRST, first_only=True),
    Measure("mean_loss", message("acceptance.mean_loss", absolute=MEAN.absolute, percent=100 * MEAN.relative), MEAN),
    Measure("mean_norm", message("acceptance.mean_norm", percent=100 * GLOBAL_NORM), Gap(0.0, GLOBAL_NORM), of_norm=True),
)


def acceptance(pairs: Pairs, repeats: Sequence[Pairs] = ()) -> tuple[Criterion, ...]:
    """Return the three criteria over the common steps; differences as large as those of ``repeats`` of the reference are met."""
    return tuple(_judged(measure, pairs, repeats) for measure in MEASURES)


def observed(pairs: Pairs) -> Criterion:
    """Return whether a pair was observed for as long as the standard asks; None for fewer steps than it advises."""
    count = len(pairs)
    hours = min((sum(row.seconds or 0.0 for row in rows) for rows in zip(*pairs, strict=True)), default=0.0) / 3600
    enough, advised = count >= STEPS or hours >= HOURS, count >= LEAST
    id = "acceptance.of_steps" if enough else "acceptance.of_fewer_steps" if advised else "acceptance.of_too_few_steps"
    what = message("acceptance.steps", steps=STEPS, hours=HOURS, least=LEAST)
    return Criterion("steps", what, enough or advised or None, message(id, count=count, hours=hours))


def outcome(criteria: Sequence[Criterion]) -> AcceptanceOutcome:
    """Return refused where a criterion is not met, open where one could not be judged."""
    judged = [criterion.passed for criterion in criteria]
    return AcceptanceOutcome.REFUSED if False in judged else AcceptanceOutcome.OPEN if None in judged else AcceptanceOutcome.ACCEPTED


def outcome_words(criteria: Sequence[Criterion]) -> Message:
    """Return in words whether the standard is met, and the criteria that are not."""
    failed = [criterion.what for criterion in criteria if criterion.passed is False]
    if failed:
        return message("acceptance.failed", criteria=sentences(*failed))
    return message("acceptance.met" if all(criterion.passed for criterion in criteria) else "acceptance.unknown")


def _judged(measure: Measure, pairs: Pairs, repeats: Sequence[Pairs]) -> Criterion:
    limits, gap = measure.limits, measure.gap(pairs)
    if gap is None:
        return Criterion(measure.name, measure.what, None, message("acceptance.no_norm" if measure.of_norm else "acceptance.no_loss"))
    own = [each for repeat in repeats if (each := measure.gap(repeat)) is not None and math.isfinite(each.relative)]
    widest = Gap(max((each.absolute for each in own), default=0.0), max((each.relative for each in own), default=0.0))
    within = gap.absolute < limits.absolute or gap.relative < limits.relative or (measure.of_norm and gap.relative <= limits.relative)
    widened = bool(own) and (gap.absolute <= widest.absolute or gap.relative <= widest.relative)
    return Criterion(measure.name, measure.what, within or widened, _words(measure, gap), _words(measure, widest) if own else None)


def _words(measure: Measure, gap: Gap) -> Message:
    if measure.of_norm:
        return message("acceptance.of_norm", relative=gap.relative)
    return message("acceptance.of_losses", absolute=gap.absolute, relative=gap.relative)
