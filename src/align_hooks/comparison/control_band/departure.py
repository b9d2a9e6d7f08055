"""What an engineer looks for around the step at which a long run leaves its band (the guide's stage 3).

A jump or a drift; which tensors' norms moved first; skipped updates nearby; and, where a tokenizer is named, the text that the step
trained on. A late drift below 1 % has its usual causes, the cheapest to check first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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
    left = [band for band in context.bands if band.start is not None]
    first = min(left, key=lambda band: band.start or 0, default=None)
    if first is not None and first.start is not None and first.alarm is not None:
        yield message("departure.jump" if first.is_jump else "departure.drift", step=when(first.start))
        yield from moved_first(context, first.start)
        yield from skipped(context, first.start)
        yield from decoded(context, first.start)
        if first.is_jump or abs(first.series.candidate[first.alarm.start :]).mean() >= SMALL:
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
    apart: dict[int, dict[str, float]] = {}
    for each in steps:
        reference = pair.reference.local_norms(each)
        for run in repeats:
            for name, error in differences(reference, run, each):
                widest[name] = max(widest.get(name, 0.0), error)
        apart[each] = dict(differences(reference, pair.candidate, each))
    for each in steps:
        beyond = {name: error / widest[name] for name, error in apart[each].items() if widest.get(name) and error > WIDER * widest[name]}
        if beyond:
            names = sorted(beyond, key=lambda name: -beyond[name])
            yield message("departure.moved_first", count=len(names), step=when(each), names=terms(names[:FIRST]))
            return
    yield message("departure.no_norm_moved", count=len(steps))


def differences(reference: dict[str, float], run: Run, step: int) -> Iterator[tuple[str, float]]:
    """Yield name and relative difference of each norm that both have."""
    norms = run.local_norms(step)
    yield from ((name, relative_difference(norm, norms[name])) for name, norm in reference.items() if name in norms)


def skipped(context: ComparisonContext, step: int) -> Iterator[Words]:
    """Name the updates near a step that a side skipped for an overflow."""
    near = [(ours, theirs) for ours, theirs in context.pair.rows if abs(ours.step - step) <= AROUND]
    steps = [ours.step for ours, theirs in near if ours.skipped or theirs.skipped]
    if steps:
        yield message("departure.skipped", steps=terms(map(when, steps)))


def decoded(context: ComparisonContext, step: int) -> Iterator[Words]:
    """Yield the beginning of each sample of the step's batch as text; nothing without a tokenizer or a recorded batch."""
    run = next((run for run in reversed(context.pair.runs) if run.has("batches", step)), None)
    if context.decode is None or run is None:
        return
    for row, sample in enumerate(run.batch(step).arrays()["tokens"][:FIRST]):
        yield message("departure.text", row=row, text=repr(context.decode(ids_of(sample))))


def ids_of(sample: Sequence[int]) -> list[int]:
    """Return the first ids of a sample."""
    return [int(token) for token in sample[:WORDS]]
