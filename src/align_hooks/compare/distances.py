"""How far one run is from another, quantity by quantity: what findings are judged by, and what noise is measured in.

Both ask the same of different pairs, a reference and a candidate or a reference and its repeat, so that a limit that was measured is
one of the very number that it limits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from align_hooks.compare import token_losses as tokens
from align_hooks.compare.limits import weights_eps
from align_hooks.compare.measures import distances, ratio, relative_difference
from align_hooks.compare.verdict import Quantity, Words
from align_hooks.messages import message
from align_hooks.messages.progress import Progress, silent
from align_hooks.record.reader import Run
from align_hooks.record.schema import Row
from align_hooks.record.tensors import Tensors

Sketches = Mapping[str, NDArray[np.float64]]
"""As ``Run.sketches`` returns them."""
LOSSES = ("loss", "objective_loss")


@dataclass(frozen=True, slots=True)
class Distance:
    """One quantity of two runs: its value or, of a tensor, its norm on each side, and their relative distance ``error``.

    Of two tensors ``scale`` is the number that brings the reference closest to the candidate, and ``direction`` the relative error that
    is left then; of two numbers there is only a scale; None where it is of no meaning.
    """

    name: str
    reference: float
    candidate: float
    error: float
    scale: float | None = None
    direction: float | None = None


Distances = Iterator[Distance]


def losses(reference: Run, run: Run, step: int, eps: float) -> Distances:
    """Loss and objective of a step."""
    yield from of_losses(*(one.row(step) for one in (reference, run)))


def of_losses(ours: Row | None, theirs: Row | None) -> Distances:
    """The same of two rows of scalars."""
    for key in LOSSES:
        one, other = getattr(ours, key, None), getattr(theirs, key, None)
        if one is not None and other is not None:
            yield Distance(key, one, other, relative_difference(one, other), other / one if one else None)


def token_losses(reference: Run, run: Run, step: int, eps: float) -> Distances:
    """Each token's loss of a step, all of them together."""
    if all(step in one.batch_steps() for one in (reference, run)):
        found = tokens.compared(reference.batch(step), run.batch(step))
        if found is not None:
            distance, size, other = distances(*found)
            yield Distance("token losses", size, other, ratio(distance, size))


def local_norms(reference: Run, run: Run, step: int, eps: float) -> Distances:
    """Norms of a step. One below ``eps`` times the step's largest is made by rounding on either side."""
    if not all(step in one.local_norm_steps() for one in (reference, run)):
        return
    ours, theirs = (one.local_norms(step) for one in (reference, run))
    floor = eps * max(ours.values(), default=0.0)
    for name in sorted(ours.keys() & theirs.keys()):
        rounding = max(ours[name], theirs[name]) < floor
        error = 0.0 if rounding else relative_difference(ours[name], theirs[name])
        scale = theirs[name] / ours[name] if ours[name] and not rounding else None
        yield Distance(name, ours[name], theirs[name], error, scale)


def gradients(reference: Run, run: Run, step: int, eps: float, progress: Progress = silent) -> Distances:
    """Gradients of a step. One below ``eps`` times the step's largest is made by rounding on either side."""
    found = list(_of_tensors(Quantity.GRADIENTS, reference, run, step, progress))
    floor = eps * max((one.reference for one in found), default=0.0)
    for one in found:
        small = max(one.reference, one.candidate) < floor
        yield Distance(one.name, one.reference, one.candidate, 0.0 if small else one.error, one.scale, one.direction)


def weights(reference: Run, run: Run, step: int, eps: float, progress: Progress = silent) -> Distances:
    """Weights after ``step`` updates."""
    yield from _of_tensors(Quantity.WEIGHTS, reference, run, step, progress)


def _of_tensors(kind: Quantity, reference: Run, run: Run, step: int, progress: Progress) -> Distances:
    """Every tensor that both have in one shape, one at a time; by sketches where not both stored them, none where one has neither."""
    if all(step in one.steps_of(kind) for one in (reference, run)):
        ours, theirs = (getattr(one, kind.value)(step) for one in (reference, run))
        yield from of_tensors(ours, theirs, message("distances.of_step", what=kind, step=step), progress)
    elif all(step in one.sketch_steps(kind) for one in (reference, run)):
        progress(message("distances.sketches", what=kind, step=step))
        yield from of_sketches(reference.sketches(kind, step), run.sketches(kind, step))


def of_tensors(ours: Tensors | Change, theirs: Tensors | Change, what: Words, progress: Progress) -> Distances:
    """Two sets of tensors."""
    names = list(ours)
    for index, name in enumerate(names):
        if name in theirs and ours.shape(name) == theirs.shape(name):
            progress(message("distances.tensor", what=what, name=name), index, len(names))
            distance, size, other = distances(ours[name], theirs[name])
            yield Distance(name, size, other, ratio(distance, size), *scale_and_direction(distance, size, other))


def updates(reference: Run, run: Run, step: int, eps: float, progress: Progress = silent) -> Distances:
    """What the update of ``step`` changed of the weights. A change that the weights' own type rounds away is no distance."""
    both, rounding = (reference, run), max(map(weights_eps, (reference, run)))
    if all({step, step + 1} <= set(one.weight_steps()) for one in both):
        ours, theirs = (Change(one.weights(step), one.weights(step + 1)) for one in both)
        found, sizes = of_tensors(ours, theirs, message("distances.update", step=step), progress), ours.sizes
    elif all({step, step + 1} <= set(one.sketch_steps("weights")) for one in both):
        progress(message("distances.sketches_of_update", step=step))
        before = [one.sketches("weights", step) for one in both]
        after = [one.sketches("weights", step + 1) for one in both]
        found = of_sketches(*(change_of_sketches(*one) for one in zip(before, after, strict=True)))
        sizes = {name: math.sqrt(one[0]) for name, one in before[0].items()}
    else:
        return
    for one in found:
        moved = one.error * one.reference if one.reference else one.candidate
        rounded = moved <= rounding * sizes[one.name]
        yield Distance(one.name, one.reference, one.candidate, 0.0 if rounded else one.error, one.scale, one.direction)


@dataclass(frozen=True)
class Change:
    """What stands between two sets of tensors, each made when asked for; ``sizes`` are the norms of what it was before, once asked for."""

    before: Tensors
    after: Tensors
    sizes: dict[str, float] = field(default_factory=dict)

    def __iter__(self) -> Iterator[str]:
        return (name for name in self.before if name in self.after)

    def __contains__(self, name: object) -> bool:
        return name in self.before and name in self.after

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a whole tensor."""
        return self.before.shape(name)

    def __getitem__(self, name: str) -> NDArray[Any]:
        before = self.before[name]
        self.sizes[name] = float(np.linalg.norm(before))
        changed: NDArray[Any] = self.after[name] - before
        return changed


def change_of_sketches(before: Sketches, after: Sketches) -> Sketches:
    """The sketches of what changed; its squared sum, which does not add up, is estimated as the mean square of the signed ones."""
    changed = {name: after[name][1:] - before[name][1:] for name in before if name in after}
    return {name: np.concatenate([[np.mean(np.square(sums))], sums]) for name, sums in changed.items()}


def scale_and_direction(distance: float, size: float, other: float) -> tuple[float | None, float | None]:
    """Of a candidate of norm ``other`` at ``distance`` from a reference of norm ``size``: the best factor, and the relative rest."""
    if not (size and other and math.isfinite(distance)):
        return None, None
    scale = (size**2 + other**2 - distance**2) / (2 * size**2)
    return scale, math.sqrt(max(other**2 - (scale * size) ** 2, 0.0)) / other


def of_sketches(ours: Sketches, theirs: Sketches) -> Distances:
    """Two sets of tensors by their sketches: norms and a common factor are exact, what is left once that is taken out is estimated.

    Two tensors are at least as far apart as their norms are, which keeps what all signs happen to hide from being nothing.
    """
    for name in ours:
        if name not in theirs:
            continue
        (size, other), one, there = (math.sqrt(each[name][0]) for each in (ours, theirs)), ours[name][1:], theirs[name][1:]
        if not (np.isfinite(ours[name]).all() and np.isfinite(theirs[name]).all()):
            yield Distance(name, size, other, math.nan)
            continue
        known = float(one @ one)
        if not (size and other):
            yield Distance(name, size, other, ratio(max(size, other), size))
            continue
        if not known:
            yield Distance(name, size, other, max(abs(other - size), _root_mean_square(there)) / size)
            continue
        scale = float(one @ there) / known
        rest = _root_mean_square(there - scale * one)
        distance = max(math.hypot((scale - 1) * size, rest), abs(other - size))
        yield Distance(name, size, other, distance / size, scale, rest / other)


def _root_mean_square(sums: NDArray[np.float64]) -> float:
    return float(np.sqrt(np.mean(np.square(sums))))


MEASURED: dict[str, Callable[..., Distances]] = {
    "losses": losses,
    "token_losses": token_losses,
    "local_norms": local_norms,
    "gradients": gradients,
    "weights": weights,
    "updates": updates,
}
"""Every kind of quantity that limits are measured of."""
UNMEASURED = ("batches", "optimizer_state")
"""Recorded quantities of which none are: they are held equal, or against the default alone."""
