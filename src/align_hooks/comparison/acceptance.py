"""The guide's acceptance standard (MindFormers r2.6, "large model migration accuracy standard"), reported as such.

It is coarse: on a small Llama it passed seven of nine planted faults. The verdict of a comparison does not depend on it. The standard asks
for repeats of the reference, and is widened to what they differ by where that is more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TypeAlias

from align_hooks.comparison.measures import relative_difference
from align_hooks.comparison.verdict import Criterion, Judgement
from align_hooks.messages import Message, message, sentences
from align_hooks.record.schema import Row

FIRST_ABSOLUTE, FIRST_RELATIVE = 0.005, 0.005
MEAN_ABSOLUTE, MEAN_RELATIVE = 0.01, 0.01
GLOBAL_NORM = 0.10
STEPS, HOURS, LEAST = 5000, 12.0, 1000
"""How long a run is observed: steps or hours, and the fewest steps that the standard advises."""
REPEATS = 2
"""How many repeats of the reference the standard asks for."""
Pairs: TypeAlias = Sequence[tuple[Row, Row]]
"""Rows of one step each: the reference's, and another run's."""


class Outcome(Judgement):
    """Whether the standard is met, with a command's exit code."""

    ACCEPTED = ("accepted", 0)
    REFUSED = ("refused", 1)
    OPEN = ("open", 4)


@dataclass(frozen=True, slots=True)
class Gap:
    """A mean difference, absolute and relative."""

    absolute: float
    relative: float


@dataclass(frozen=True, slots=True)
class Measure:
    """One criterion: ``gap`` measures it, ``limits`` are of the absolute and the relative difference, of which one is to be met; a norm may
    be as far as its limit, a loss may not."""

    name: str
    what: Message
    gap: Callable[[Pairs], Gap | None]
    limits: Gap
    of_norm: bool = False


def first_loss(pairs: Pairs) -> Gap | None:
    """How far the first losses are apart."""
    return _apart(_losses(pairs)[:1])


def mean_loss(pairs: Pairs) -> Gap | None:
    """How far losses are apart on average."""
    return _apart(_losses(pairs))


def mean_norm(pairs: Pairs) -> Gap | None:
    """How far global norms are apart on average."""
    norms = ((ours.grad_norm, theirs.grad_norm) for ours, theirs in pairs)
    return _apart([(ours, theirs) for ours, theirs in norms if ours is not None and theirs is not None])


MEASURES = (
    Measure(
        "first_loss",
        message("acceptance.first_loss", absolute=FIRST_ABSOLUTE, percent=100 * FIRST_RELATIVE),
        first_loss,
        Gap(FIRST_ABSOLUTE, FIRST_RELATIVE),
    ),
    Measure(
        "mean_loss",
        message("acceptance.mean_loss", absolute=MEAN_ABSOLUTE, percent=100 * MEAN_RELATIVE),
        mean_loss,
        Gap(MEAN_ABSOLUTE, MEAN_RELATIVE),
    ),
    Measure("mean_norm", message("acceptance.mean_norm", percent=100 * GLOBAL_NORM), mean_norm, Gap(0.0, GLOBAL_NORM), of_norm=True),
)


def acceptance(pairs: Pairs, repeats: Sequence[Pairs] = ()) -> tuple[Criterion, ...]:
    """The three criteria, over the steps that both runs completed, and beside each what the reference's ``repeats`` differ by."""
    return tuple(_judged(measure, pairs, repeats) for measure in MEASURES)


def observed(pairs: Pairs) -> Criterion:
    """Whether a pair was observed for as long as the standard asks; None for fewer steps than it advises at least."""
    count = len(pairs)
    hours = min((sum(row.seconds or 0.0 for row in rows) for rows in zip(*pairs, strict=True)), default=0.0) / 3600
    enough = count >= STEPS or hours >= HOURS
    id = "acceptance.of_steps" if enough else "acceptance.of_fewer_steps" if count >= LEAST else "acceptance.of_too_few_steps"
    what = message("acceptance.steps", steps=STEPS, hours=HOURS, least=LEAST)
    return Criterion("steps", what, True if enough or count >= LEAST else None, message(id, count=count, hours=hours))


def outcome(criteria: Sequence[Criterion]) -> Outcome:
    """Refused where any criterion is not met, open where one could not be judged."""
    judged = [criterion.passed for criterion in criteria]
    return Outcome.REFUSED if False in judged else Outcome.OPEN if None in judged else Outcome.ACCEPTED


def told(criteria: Sequence[Criterion]) -> Message:
    """Whether the standard is met, in words, with the criteria that are not."""
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


def _losses(pairs: Pairs) -> list[tuple[float, float]]:
    losses = ((ours.loss, theirs.loss) for ours, theirs in pairs)
    return [(ours, theirs) for ours, theirs in losses if ours is not None and theirs is not None]


def _apart(values: Sequence[tuple[float, float]]) -> Gap | None:
    """The mean difference of pairs of numbers; None of no pair."""
    if not values:
        return None
    return Gap(fmean(abs(theirs - ours) for ours, theirs in values), fmean(relative_difference(*pair) for pair in values))
