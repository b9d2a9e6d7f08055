"""Distances between two runs, quantity by quantity.

Findings take them between reference and candidate, noise between a reference and its repeat, so that a measured limit is of the very
number that it limits.

Some gradients are nothing but rounding, such as a bias of all keys without rotary positions: softmax cancels it. Adam divides a gradient
by its own size, so it updates these tensors too, in directions that no two layouts share, and their weights diverge."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from align_hooks.comparison.data import token_losses as tokens
from align_hooks.comparison.data.routing import apart, shares
from align_hooks.comparison.finding import Metric, Words, when
from align_hooks.comparison.metrics.limits import ROUNDED, weights_eps
from align_hooks.comparison.metrics.measures import Moved, Task, distances, measure, norm_of, ratio, relative_difference, root_mean_square
from align_hooks.messages import message
from align_hooks.names.points import GRADIENT
from align_hooks.process.work import ALONE, WorkPool
from align_hooks.record.format.rows import ScalarRow
from align_hooks.record.read.tensors import Tensors
from align_hooks.record.reader import Run

Sketches = Mapping[str, NDArray[np.float64]]
"""As ``Run.sketches`` returns them."""


class Distance(Struct, frozen=True):
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
TIMES = 3.0
"""Times by which the sizes of two honest updates may differ, beside their gradients' norms."""


def of_numbers(name: str, reference: float, candidate: float) -> Distance:
    """Return the distance of two numbers."""
    return Distance(name, reference, candidate, relative_difference(reference, candidate), candidate / reference if reference else None)


def of_losses(ours: ScalarRow | None, theirs: ScalarRow | None) -> Distances:
    """Yield loss and objective of two rows; the objective without its other terms where a side does not know these."""
    if ours is None or theirs is None:
        return
    if ours.loss is not None and theirs.loss is not None:
        yield of_numbers("loss", ours.loss, theirs.loss)
    if ours.objective_loss is not None and theirs.objective_loss is not None:
        known = ours.terms is not None and theirs.terms is not None
        reference, candidate = (0.0 if known else sum((row.terms or {}).values()) for row in (ours, theirs))
        yield of_numbers("objective_loss", ours.objective_loss - reference, theirs.objective_loss - candidate)


def of_terms(ours: ScalarRow | None, theirs: ScalarRow | None) -> Distances:
    """Yield the other terms of the loss of two rows; a term that a side lacks is 0 there."""
    if ours is None or theirs is None or ours.terms is None or theirs.terms is None:
        return
    for name in sorted({*ours.terms, *theirs.terms}):
        yield of_numbers(name, ours.terms.get(name, 0.0), theirs.terms.get(name, 0.0))


def token_losses(reference: Run, run: Run, step: int, eps: float, work: WorkPool = ALONE) -> Distances:
    """Yield the distance of all token losses of a step together, of tokens with the same experts."""
    known = all(each.has("batches", step) for each in (reference, run))
    if known and (losses := tokens.compared(reference.batch(step), run.batch(step), apart(reference, run, step))):
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
    rounding = among(ours, theirs, eps)
    for name in sorted(ours.keys() & theirs.keys()):
        values = ours[name], theirs[name]
        yield Distance(name, *values, error=0.0) if name in rounding else of_numbers(name, *values)


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
        norms = reference.weight_norms(step) if kind is Metric.WEIGHTS else {}
        yield from of_tensors(ours, theirs, message("distances.of_step", what=kind, step=when(step)), work, norms)
    elif all(each.has_sketches(kind, step) for each in (reference, run)):
        work.progress(message("distances.sketches", what=kind, step=when(step)))
        yield from of_sketches(reference.sketches(kind, step), run.sketches(kind, step))


def of_tensors(ours: Tensors, theirs: Tensors, subject: Words, work: WorkPool, norms: Mapping[str, float] | None = None) -> Distances:
    """Return distances of two sets of tensors; ``subject`` names them in the progress, ``norms`` are recorded ones of the reference."""
    names = [name for name in ours if name in theirs and ours.shape(name) == theirs.shape(name)]
    return measured({name: Task(ours.whole(name), theirs.whole(name), (norms or {}).get(name)) for name in names}, subject, work)


def measured(tasks: Mapping[str, Task], subject: Words, work: WorkPool) -> Distances:
    """Yield distances of pairs of tensors."""
    results = work.map(measure, [*tasks.values()], [task.bytes for task in tasks.values()])
    for index, name in enumerate(tasks):
        work.progress(message("distances.tensor", what=subject, name=name), index, len(tasks))
        found = next(results)
        difference, norm, length = found.difference, found.reference, found.candidate
        scale = direction = None
        if norm and length and math.isfinite(difference):
            scale = (norm**2 + length**2 - difference**2) / (2 * norm**2)
            direction = math.sqrt(max(length**2 - (scale * norm) ** 2, 0.0)) / length
        yield Distance(name, norm, length, ratio(difference, norm), scale, direction, found.by_digest)


def activations(reference: Run, run: Run, step: int, eps: float, work: WorkPool = ALONE) -> Distances:
    """Yield values and gradients at each common point: from tensors, else sketches, else norms.

    A gradient below ``eps`` times the step's largest is rounding on either side."""
    if not all(each.has("activations", step) for each in (reference, run)):
        return
    ours, theirs = reference.activations(step), run.activations(step)
    names = [name for name in ours if name in theirs.names and ours.width(name) == theirs.width(name)]
    floor = eps * max((ours[name].norm for name in names if name.endswith(GRADIENT)), default=0.0)
    subject = message("distances.of_step", what=Metric.ACTIVATIONS, step=when(step))
    for index, name in enumerate(names):
        work.progress(message("distances.tensor", what=subject, name=name), index, len(names))
        if ours[name].sketched and theirs[name].sketched:
            distance = next(of_sketches({name: ours[name].sketch}, {name: theirs[name].sketch}))
        else:
            distance = of_numbers(name, ours[name].norm, theirs[name].norm)
        if ours.has_tensor(name) and theirs.has_tensor(name):
            reference_tensor, tensor = ours.tensor(name), theirs.tensor(name)
            if reference_tensor.shape == tensor.shape:
                difference, norm, _ = distances(reference_tensor, tensor)
                error = ratio(difference, norm) if math.isfinite(distance.error) else distance.error  # sums that contradict the tensors
                distance = replace(distance, error=error)
        small = name.endswith(GRADIENT) and max(distance.reference, distance.candidate) < floor
        yield replace(distance, error=0.0) if small else distance


def updates(reference: Run, run: Run, step: int, eps: float, work: WorkPool = ALONE) -> Distances:
    """Yield changes of the weights by the update of ``step``."""
    runs, rounding = (reference, run), max(map(weights_eps, (reference, run)))
    small = rounding_norms(reference, run, step, eps)
    if all(each.has("weights", number) for each in runs for number in (step, step + 1)):
        found, sizes = _of_moved(reference, run, step, work)
    elif all(each.has_sketches("weights", number) for each in runs for number in (step, step + 1)):
        work.progress(message("distances.sketches_of_update", step=when(step)))
        before, after = ([each.sketches("weights", number) for each in runs] for number in (step, step + 1))
        found = of_sketches(*map(_change_of_sketches, before, after))
        sizes = {name: math.sqrt(sketch[0]) for name, sketch in before[0].items()}
    else:
        return
    for distance in found:
        moved = distance.error * distance.reference if distance.reference else distance.candidate
        # neither what the weights' own type rounds away counts, nor what Adam makes of a gradient that is rounding
        noise = distance.name in small and alike(small[distance.name], (distance.reference, distance.candidate))
        yield replace(distance, error=0.0) if noise or moved <= rounding * sizes[distance.name] else distance


def _of_moved(reference: Run, run: Run, step: int, work: WorkPool) -> tuple[Distances, dict[str, float]]:
    """Return distances of an update's changes, of tensors with one shape in all four states, and the reference's norms before."""
    states = before, _, _, _ = [each.weights(number) for each in (reference, run) for number in (step, step + 1)]
    shared = [name for name in before if all(name in state for state in states)]
    tasks: dict[str, Task] = {}
    for name in (name for name in shared if len({state.shape(name) for state in states}) == 1):
        old, new, others_old, others_new = (state.whole(name) for state in states)
        tasks[name] = Task(Moved(old, new), Moved(others_old, others_new))
    sizes = reference.weight_norms(step)
    lacking = {name: before.whole(name) for name in tasks if name not in sizes}
    sizes |= zip(lacking, work.map(norm_of, [*lacking.values()], [whole.bytes for whole in lacking.values()]), strict=True)
    return measured(tasks, message("distances.update", step=when(step)), work), sizes


def _change_of_sketches(before: Sketches, after: Sketches) -> Sketches:
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


def rounding_norms(reference: Run, run: Run, step: int, eps: float) -> dict[str, tuple[float, float]]:
    """Return :func:`among` of the gradient norms (L2) of both sides; empty where a side recorded none."""
    known = all(each.has("local_norms", step) for each in (reference, run))
    return among(reference.local_norms(step), run.local_norms(step), eps) if known else {}


def among(ours: Mapping[str, float], theirs: Mapping[str, float], eps: float) -> dict[str, tuple[float, float]]:
    """Return both norms of each tensor that rounding made: both below ``eps`` times the reference's largest, and not both 0."""
    least = eps * max(ours.values(), default=0.0)
    return {name: (ours[name], theirs[name]) for name in ours.keys() & theirs.keys() if 0 < max(ours[name], theirs[name]) < least}


def alike(gradients: tuple[float, float], updates: tuple[float, float]) -> bool:
    """Return whether Adam makes updates of such sizes of gradients of such norms."""
    # from the whole rate, which has one size, to proportional, below Adam's epsilon; no tensor that is not updated
    (small, least), (large, most) = sorted(zip(gradients, updates, strict=True))
    return least <= TIMES * most and most * small <= TIMES * least * large


def rounding_drift(reference: Run, run: Run, step: int, eps: float) -> dict[str, float]:
    """Return the distance (L2) by which the sides may have moved each tensor whose gradient was rounding at every known step before."""
    found: set[str] | None = None
    rates = 0.0  # each element moves by the whole learning rate at a step, either way
    for row in reference.rows:
        if row.step >= step or found == set():
            break
        rates += 0.0 if row.learning_rate is None else float(np.max(row.learning_rate))
        if all(each.has("local_norms", row.step) for each in (reference, run)):
            names = rounding_norms(reference, run, row.step, eps).keys()
            found = set(names) if found is None else found & names
    sizes = {shard.name: math.prod(shard.shape) for rank in reference.manifests for shard in reference.shards(rank)} if found else {}
    return {name: 2 * rates * math.sqrt(sizes[name]) for name in found or () if name in sizes}


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
