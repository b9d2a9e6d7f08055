"""Numbers of each run at every step, with the limit of each difference."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from align_hooks.comparison.context import ComparisonContext
from align_hooks.comparison.metrics.limits import CLIPPING, SETTING
from align_hooks.comparison.metrics.measures import relative_difference
from align_hooks.comparison.verdict import Curve, RunSummary
from align_hooks.record.format.rows import ScalarRow
from align_hooks.record.format.schema import Rate
from align_hooks.record.reader import Run

CURVES: dict[str, Callable[[ComparisonContext, int], float]] = {
    "loss": lambda context, step: context.loss_limit(step)("loss"),
    "grad_norm": lambda context, step: CLIPPING,
    "learning_rate": lambda context, step: SETTING,
}
"""Numbers of a step that make a curve, and the limit of their relative difference at a step."""


def curves(context: ComparisonContext, *, judged: bool) -> tuple[Curve, ...]:
    """Return the curves of all common steps; without limits unless ``judged``."""
    steps = [ours.step for ours, _ in context.pair.rows]
    drawn = []
    for name, limit in CURVES.items():
        pairs = [values(getattr(ours, name), getattr(theirs, name)) for ours, theirs in context.pair.rows]
        if any(pair != (None, None) for pair in pairs):
            limits = [limit(context, step) for step in steps] if judged else []
            reference, candidate = zip(*pairs, strict=True)
            drawn.append(Curve(name, steps, reference, candidate, limits, noise(context, name, steps)))
    return tuple(drawn)


def noise(context: ComparisonContext, name: str, steps: Sequence[int]) -> list[float | None]:
    """Return by how much repeats of the reference differ from it at most, relative, for each step; None where no repeat has it."""
    repeats = [] if context.noise.problem else context.noise.repeats
    worst: list[float | None] = []
    for step in steps if repeats else ():
        reference, *numbers = (value(getattr(run.row(step), name, None)) for run in (context.pair.reference, *repeats))
        differences = [relative_difference(reference, number) for number in numbers if reference is not None and number is not None]
        worst.append(max(differences, default=None))
    return worst


def of_one(rows: Sequence[ScalarRow]) -> tuple[Curve, ...]:
    """Return the curves of a single run."""
    curves = [Curve(name, [row.step for row in rows], [value(getattr(row, name)) for row in rows]) for name in CURVES]
    return tuple(curve for curve in curves if {*curve.reference} - {None})


def value(number: Rate | None) -> float | None:
    """Return one number of a row; the largest of learning rates that differ between groups."""
    return None if number is None else float(np.max(number))


def values(ours: Rate | None, theirs: Rate | None) -> tuple[float | None, float | None]:
    """Return a number of both sides; of equally many learning rates the pair that differs most."""
    if not isinstance(ours, list) or not isinstance(theirs, list) or len(ours) != len(theirs):
        return value(ours), value(theirs)
    return max(zip(map(float, ours), map(float, theirs), strict=True), key=lambda pair: relative_difference(*pair))


def side(run: Run) -> RunSummary:
    """Return the summary of a run for a report."""
    sizes = {name: max((manifest.size(name) for manifest in run.manifests.values()), default=1) for name in ("tp", "pp", "cp", "ep", "dp")}
    return RunSummary(str(run.path), run.facts, run.world_size, {name: size for name, size in sizes.items() if size > 1}, len(run.steps))
