"""Distances between two runs, quantity by quantity.

Findings take them between reference and candidate, noise between a reference and its repeat, so that a measured limit is of the very
number that it limits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from align_hooks.comparison.data import token_losses as tokens
from align_hooks.comparison.data.routing import apart, shares
from align_hooks.comparison.finding import Metric, Words, when
from align_hooks.comparison.metrics import rounding_alone
from align_hooks.comparison.metrics.limits import ROUNDED, weights_eps
from align_hooks.comparison.metrics.measures import distances, ratio, relative_difference, root_mean_square
from align_hooks.comparison.metrics.streams import Moved, Task, measure, norm_of
from align_hooks.messages import message
from align_hooks.names.points import GRADIENT
from align_hooks.process.work import ALONE, WorkPool
from align_hooks.record.format.rows import ScalarRow
from align_hooks.record.read.tensors import Tensors
from align_hooks.record.reader import Run

Sketches = Mapping[str, NDArray[np.float64]]
"""As ``Run.sketches`` returns them."""
NO_NORMS: Mapping[str, float] = {}


@dataclass(frozen=True, slots=True)
class Distance:
    """The distance of one quantity of two runs."""

    name: str
    reference: float
    """The value; of a tensor its norm."""
    candidate: float
    error: float
    """The relative distance."""
    scale: float | None = None
    """The factor that brings the reference closest to the candidate; None where it has no meaning."""
    direction: float | None = None
    """Of two tensors the relative error left at ``scale``; None of numbers."""
    by_digest: bool = False
    """Whether both are equal by their digests."""


Distances = Iterator[Distance]


def of_losses(ours: ScalarRow | None, theirs: ScalarRow | None) -> Distances:
    """Yield loss and objective of two rows; the objective without its other terms where a side does not know these."""
    if ours is None or theirs is None:
        return
    whole = ours.terms is not None and theirs.terms is not None
    objectives = (row.objective_loss if whole or row.objective_loss is None else language_model(row) for row in (ours, theirs))
    for key, (reference, candidate) in {"loss": (ours.loss, theirs.loss), "objective_loss": tuple(objectives)}.items():
        if reference is not None and candidate is not None:
            scale = candidate / reference if reference else None
            yield Distance(key, reference, candidate, relative_difference(reference, candidate), scale)


def language_model(row: ScalarRow) -> float | None:
    """Return the language model's part of the objective."""
    return None if row.objective_loss is None else row.objective_loss - sum((row.terms or {}).values())


def of_terms(ours: ScalarRow | None, theirs: ScalarRow | None) -> Distances:
    """Yield the other terms of the loss of two rows; a term that a side lacks is 0 there."""
    if ours is None or theirs is None or ours.terms is None or theirs.terms is None:
        return
    for name in sorted({*ours.terms, *theirs.terms}):
        reference, candidate = ours.terms.get(name, 0.0), theirs.terms.get(name, 0.0)
        yield Distance(name, reference, candidate, relative_difference(reference, candidate), candidate / reference if reference else None)


def token_losses(reference: Run, run: Run, step: int, eps: float, work: WorkPool = ALONE) -> Distances:
    """Yield the distance of all token losses of a step together, of tokens with the same experts."""
    if all(each.has("batches", step) for each in (reference, run)):
        losses = tokens.compared(reference.batch(step), run.batch(step), apart(reference, run, step))
        if losses is not None:
            distance, ours, theirs = distances(*losses)
            yield Distance("token losses", ours, theirs, ratio(distance, ours))


def routing(reference: Run, run: Run, step: int, eps: float, work: WorkPool = ALONE) -> Distances:
    """Yield for each layer with experts the share of a step's tokens that went to other experts, and the number of tokens."""
    for name, share, count in shares(reference, run, step):
        yield Distance(f"{name}.weight", count, count, share)


def local_norms(reference: Run, run: Run, step: int, eps: float, work: WorkPool = ALONE) -> Distances:
    """Yield norms of a step. One below ``eps`` times the step's largest is rounding on either side."""
    if not all(each.has("local_norms", step) for each in (reference, run)):
        return
    ours, theirs = reference.local_norms(step), run.local_norms(step)
    alone = rounding_alone.among(ours, theirs, eps)
    for name in sorted(ours.keys() & theirs.keys()):
        rounding = name in alone
        error = 0.0 if rounding else relative_difference(ours[name], theirs[name])
        scale = theirs[name] / ours[name] if ours[name] and not rounding else None
        yield Distance(name, ours[name], theirs[name], error, scale)


def gradients(reference: Run, run: Run, step: int, eps: float, work: WorkPool = ALONE) -> Distances:
    """Yield gradients of a step. One below ``eps`` times the step's largest is rounding on either side."""
    found = list(_of_tensors(Metric.GRADIENTS, reference, run, step, work))
    floor = eps * max((distance.reference for distance in found), default=0.0)
    for distance in found:
        yield replace(distance, error=0.0) if max(distance.reference, distance.candidate) < floor else distance


def weights(reference: Run, run: Run, step: int, eps: float, work: WorkPool = ALONE) -> Distances:
    """Return distances of the weights after ``step`` updates."""
    return _of_tensors(Metric.WEIGHTS, reference, run, step, work)


def _of_tensors(kind: Metric, reference: Run, run: Run, step: int, work: WorkPool) -> Distances:
    """Yield every tensor that both have in one shape, by sketches where not both stored them."""
    if all(each.has(kind, step) for each in (reference, run)):
        ours, theirs = (getattr(each, kind.value)(step) for each in (reference, run))
        norms = reference.weight_norms(step) if kind is Metric.WEIGHTS else NO_NORMS
        yield from of_tensors(ours, theirs, message("distances.of_step", what=kind, step=when(step)), work, norms)
    elif all(each.has_sketches(kind, step) for each in (reference, run)):
        work.progress(message("distances.sketches", what=kind, step=when(step)))
        yield from of_sketches(reference.sketches(kind, step), run.sketches(kind, step))


def of_tensors(ours: Tensors, theirs: Tensors, subject: Words, work: WorkPool, norms: Mapping[str, float] = NO_NORMS) -> Distances:
    """Return distances of two sets of tensors; ``subject`` names them in the progress, ``norms`` are recorded ones of the reference."""
    names = [name for name in ours if name in theirs and ours.shape(name) == theirs.shape(name)]
    return measured(names, [Task(ours.whole(name), theirs.whole(name), norms.get(name)) for name in names], subject, work)


def measured(names: Sequence[str], tasks: Sequence[Task], subject: Words, work: WorkPool) -> Distances:
    """Yield distances of pairs of tensors."""
    results = work.map(measure, tasks, [task.bytes for task in tasks])
    for index, name in enumerate(names):
        work.progress(message("distances.tensor", what=subject, name=name), index, len(names))
        found = next(results)
        apart, norm, length = found.apart, found.reference, found.candidate
        distance = Distance(name, norm, length, ratio(apart, norm), by_digest=found.by_digest)
        if norm and length and math.isfinite(apart):
            scale = (norm**2 + length**2 - apart**2) / (2 * norm**2)
            direction = math.sqrt(max(length**2 - (scale * norm) ** 2, 0.0)) / length
            distance = replace(distance, scale=scale, direction=direction)
        yield distance


def activations(reference: Run, run: Run, step: int, eps: float, work: WorkPool = ALONE) -> Distances:
    """Yield values and gradients at each common point: from tensors, else sketches, else norms.

    A gradient below ``eps`` times the step's largest is rounding on either side."""
    if not all(each.has("activations", step) for each in (reference, run)):
        return
    ours, theirs = reference.activations(step), run.activations(step)
    names = [name for name in ours if name in theirs.names and ours.width(name) == theirs.width(name)]
    floor = eps * max((ours[name].norm for name in names if name.endswith(GRADIENT)), default=0.0)
    for index, name in enumerate(names):
        subject = message("distances.of_step", what=Metric.ACTIVATIONS, step=when(step))
        work.progress(message("distances.tensor", what=subject, name=name), index, len(names))
        if ours[name].sketched and theirs[name].sketched:
            distance = next(of_sketches({name: ours[name].sketch}, {name: theirs[name].sketch}))
        else:
            norms = ours[name].norm, theirs[name].norm
            distance = Distance(name, *norms, relative_difference(*norms), norms[1] / norms[0] if norms[0] else None)
        if ours.has_tensor(name) and theirs.has_tensor(name):
            reference_tensor, tensor = ours.tensor(name), theirs.tensor(name)
            if reference_tensor.shape == tensor.shape:
                apart_by, norm, _ = distances(reference_tensor, tensor)
                error = ratio(apart_by, norm) if math.isfinite(distance.error) else distance.error  # sums that contradict the tensors
                distance = replace(distance, error=error)
        small = name.endswith(GRADIENT) and max(distance.reference, distance.candidate) < floor
        yield replace(distance, error=0.0) if small else distance


def updates(reference: Run, run: Run, step: int, eps: float, work: WorkPool = ALONE) -> Distances:
    """Yield changes of the weights by the update of ``step``."""
    runs, rounding = (reference, run), max(map(weights_eps, (reference, run)))
    alone = rounding_alone.norms(reference, run, step, eps)
    if all(each.has("weights", number) for each in runs for number in (step, step + 1)):
        found, sizes = _of_moved(reference, run, step, work)
    elif all(each.has_sketches("weights", number) for each in runs for number in (step, step + 1)):
        work.progress(message("distances.sketches_of_update", step=when(step)))
        before, after = ([each.sketches("weights", number) for each in runs] for number in (step, step + 1))
        found = of_sketches(*map(change_of_sketches, before, after))
        sizes = {name: math.sqrt(sketch[0]) for name, sketch in before[0].items()}
    else:
        return
    for distance in found:
        moved = distance.error * distance.reference if distance.reference else distance.candidate
        # neither what the weights' own type rounds away counts, nor what Adam makes of a gradient that is rounding
        noise = distance.name in alone and rounding_alone.alike(alone[distance.name], (distance.reference, distance.candidate))
        yield replace(distance, error=0.0) if noise or moved <= rounding * sizes[distance.name] else distance


def _of_moved(reference: Run, run: Run, step: int, work: WorkPool) -> tuple[Distances, dict[str, float]]:
    """Return distances of an update's changes, of tensors with one shape in all four states, and the reference's norms before."""
    states = before, _, _, _ = [each.weights(number) for each in (reference, run) for number in (step, step + 1)]
    shared = [name for name in before if all(name in state for state in states)]
    names = [name for name in shared if len({state.shape(name) for state in states}) == 1]
    moved = {name: [Moved(*(state.whole(name) for state in side)) for side in (states[:2], states[2:])] for name in names}
    tasks = [Task(ours, theirs) for ours, theirs in moved.values()]
    sizes = reference.weight_norms(step)
    lacking = [name for name in names if name not in sizes]
    wholes = [before.whole(name) for name in lacking]
    sizes |= zip(lacking, work.map(norm_of, wholes, [whole.bytes for whole in wholes]), strict=True)
    return measured(names, tasks, message("distances.update", step=when(step)), work), sizes


def change_of_sketches(before: Sketches, after: Sketches) -> Sketches:
    """Return the sketches of what changed; a squared sum does not add up, and is estimated as the mean square of the signed ones."""
    changed = {name: after[name][1:] - before[name][1:] for name in before if name in after}
    return {name: np.concatenate([[np.mean(np.square(sums))], sums]) for name, sums in changed.items()}


def of_sketches(ours: Sketches, theirs: Sketches) -> Distances:
    """Yield distances by sketches: a common factor is exact, the error left at it is estimated."""
    for name in ours:
        if name not in theirs:
            continue
        (norm, length), reference, candidate = (math.sqrt(each[name][0]) for each in (ours, theirs)), ours[name][1:], theirs[name][1:]
        if not (np.isfinite(ours[name]).all() and np.isfinite(theirs[name]).all()):
            yield Distance(name, norm, length, math.nan)
        elif not (norm and length):
            yield Distance(name, norm, length, ratio(max(norm, length), norm))
        elif not (known := float(reference @ reference)):
            yield Distance(name, norm, length, max(abs(length - norm), root_mean_square(candidate)) / norm)
        else:
            scale = float(reference @ candidate) / known
            left = root_mean_square(candidate - scale * reference)
            of_norms = abs(length - norm)
            # the difference of the norms shows what all signs happen to hide; recorders round norms by ROUNDED
            distance = max(math.hypot((scale - 1) * norm, left), of_norms if of_norms > ROUNDED * norm else 0.0)
            yield Distance(name, norm, length, distance / norm, scale, left / length)


def error_of_sketches(ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> float:
    """Return the relative distance of two tensors by their sketches."""
    return next(of_sketches({"": ours}, {"": theirs})).error


MEASURED: dict[str, Callable[..., Distances]] = {
    "losses": lambda reference, run, step, eps, work=ALONE: of_losses(reference.row(step), run.row(step)),
    "loss_terms": lambda reference, run, step, eps, work=ALONE: of_terms(reference.row(step), run.row(step)),
    "token_losses": token_losses,
    "routing": routing,
    "local_norms": local_norms,
    "gradients": gradients,
    "weights": weights,
    "updates": updates,
    "activations": activations,
}
"""Kind of quantity to its distances, of every kind that limits are measured of."""
