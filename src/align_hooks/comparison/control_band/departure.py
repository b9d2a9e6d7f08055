"""Describe the step at which a long run leaves its band, as the guide's stage 3 asks: the tensors whose norms moved first, skipped
updates nearby, the text of the step's batch. A late drift below 1 % has its usual causes, the cheapest to check first."""

from __future__ import annotations

from collections.abc import Iterator

from align_hooks.comparison.context import ComparisonContext
from align_hooks.comparison.finding import Words, when
from align_hooks.comparison.metrics.measures import relative_difference
from align_hooks.messages import message, terms
from align_hooks.record.reader import Run

AROUND = 10
"""Steps examined before and after a departure."""
WIDER, FIRST = 3.0, 3
"""Times what repeats show by which a tensor's norm is off, and how many such tensors are named."""
SMALL = 0.01
"""Relative difference below which a drift has other causes than a fault of the model."""
WORDS = 24
"""Tokens decoded of each sample."""


def departure(context: ComparisonContext) -> Iterator[Words]:
    """Describe the first departure of any number; of a drift of parts without one only the usual causes."""
    first = min((band for band in context.bands if band.start is not None), key=lambda band: band.start or 0, default=None)
    if first is not None and first.start is not None and first.alarm is not None:
        yield message("departure.jump" if first.is_jump else "departure.drift", step=when(first.start))
        for described in (moved_first, skipped, decoded):
            yield from described(context, first.start)
        if first.is_jump or abs(first.candidate[first.alarm.start :]).mean() >= SMALL:
            return
    yield message("departure.small")


def moved_first(context: ComparisonContext, step: int) -> Iterator[Words]:
    """Name the tensors whose norms were the first beyond what repeats show, around a step."""
    pair, repeats = context.pair, context.noise.repeats
    near = [each for each in pair.steps("local_norms") if abs(each - step) <= AROUND]
    steps = [each for each in near if all(run.has("local_norms", each) for run in repeats)]
    if not steps:
        yield message("departure.without_norms", first=max(0, step - AROUND), last=step + AROUND)
        return
    widest: dict[str, float] = {}
    for name, error in (item for each in steps for run in repeats for item in differences(pair.reference, run, each).items()):
        widest[name] = max(widest.get(name, 0.0), error)
    for each in steps:
        errors = {name: error for name, error in differences(*pair.runs, each).items() if widest.get(name)}
        ratios = {name: error / widest[name] for name, error in errors.items() if error > WIDER * widest[name]}
        if ratios:
            names = sorted(ratios, key=lambda name: -ratios[name])
            yield message("departure.moved_first", count=len(names), step=when(each), names=terms(names[:FIRST]))
            return
    yield message("departure.no_norm_moved", count=len(steps))


def differences(reference: Run, run: Run, step: int) -> dict[str, float]:
    """Return the relative difference of each norm that both have."""
    ours, theirs = reference.local_norms(step), run.local_norms(step)
    return {name: relative_difference(norm, theirs[name]) for name, norm in ours.items() if name in theirs}


def skipped(context: ComparisonContext, step: int) -> Iterator[Words]:
    """Name the updates near a step that a side skipped for an overflow."""
    near = (pair for pair in context.pair.rows if abs(pair[0].step - step) <= AROUND)
    if steps := [ours.step for ours, theirs in near if ours.skipped or theirs.skipped]:
        yield message("departure.skipped", steps=terms(map(when, steps)))


def decoded(context: ComparisonContext, step: int) -> Iterator[Words]:
    """Yield the beginning of each sample of the step's batch as text; nothing without a tokenizer or a recorded batch."""
    run = next((run for run in reversed(context.pair.runs) if run.has("batches", step)), None)
    if context.decode is None or run is None:
        return
    tokens = run.batch(step, ("tokens",)).tokens
    for row, sample in enumerate([] if tokens is None else tokens[:FIRST, :WORDS].tolist()):
        yield message("departure.text", row=row, text=repr(context.decode(sample)))
