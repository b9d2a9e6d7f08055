"""Find the terms of the optimizer that made an update, from the recorded update only.

Where updates do not follow the hyper-parameters on record (:mod:`align_hooks.comparison.optimizer.formula`), each term is fitted to the
recorded numbers while all others stay. The term that lowers the misfit most is changed, until the misfit is rounding.

Without the state on record Adam hides scale: the clip coefficient hardly shows, betas only from the second update on, and a single update
cannot separate bias correction from the learning rate."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from align_hooks.comparison.finding import Term
from align_hooks.comparison.optimizer.formula import FITS, Evidence, HyperParameters, UpdateFormula, bounded, misfit, misfits, rests, worst
from align_hooks.comparison.settings.recorded import listed
from align_hooks.messages import Argument, message
from align_hooks.record.format.layout import Array

ROUNDS = 8
SCANNED, FITTED = 1 << 13, 1 << 15
"""Elements by which a term is sought, and fitted; whether it explains a tensor is judged by all of the tensor's."""
GOLDEN, NEAR = (3 - math.sqrt(5)) / 2, 5e-7
GAIN = 0.8
"""Part of the misfit below which a changed term must bring it to be kept."""
MOVED = 2e-5
"""Relative change of a term above which it is called different."""


class FittedTerm(Struct, frozen=True):
    """A term that updates did not use as recorded."""

    term: Term
    recorded: Argument
    used: Argument
    names: tuple[str, ...] = ()
    """Its tensors; empty where all."""

    @property
    def key(self) -> tuple[str, tuple[str, ...]]:
        """Return what two changes share that differ only in their values."""
        return self.term.value, self.names

    @property
    def subject(self) -> Argument:
        """Return the term, and its tensors."""
        if not self.names:
            return self.term
        names = listed(self.names)
        if self.term is Term.DECAY_GROUPING:
            return message("after_update.decay_grouping", names=names)
        return message("after_update.term_of", term=self.term, names=names)


def of_numbers(term: Term, recorded: float, used: float, names: tuple[str, ...] = ()) -> FittedTerm:
    """Return a changed number: as people wrote it (fp32's view of 0.1 is 0.1), and to the digits that a fit to fp32 numbers can have."""
    return FittedTerm(term, message("after_update.number", number=recorded), message("after_update.fitted_number", number=used), names)


class Explanation(Struct, frozen=True):
    """The terms that explain updates; misfits are in roundings."""

    recorded: float
    """Misfit with the settings on record."""
    explained: float
    """Misfit with the fitted settings."""
    fitted: HyperParameters | None = None
    """None where none fits better than the recorded ones."""
    instead: tuple[HyperParameters, ...] = ()
    """Other single changes that explain the updates about as well."""
    left: tuple[str, ...] = ()
    """Tensors whose updates no change explains."""
    still: tuple[str, ...] = ()
    """Tensors that are never updated."""

    @property
    def follows(self) -> bool:
        """Return whether the updates follow the settings on record."""
        return self.recorded <= FITS and not self.still


def explain(evidence: Evidence, recorded: HyperParameters) -> Explanation:
    """Check updates against the formula; where they do not follow it, fit the settings that they follow."""
    names, decay, by_tensor = evidence.names, recorded.decay, misfits(evidence, recorded)
    moved = [np.bincount(evidence.tensor, update.after[0] != update.before[0], minlength=len(names)) for update in evidence.updates]
    as_recorded, still = worst(by_tensor), (np.sum(moved, axis=0) == 0) & (by_tensor > FITS)
    if still.all():
        return Explanation(as_recorded, math.inf, still=names)
    recorded = replace(recorded, decay=decay[~still])
    evidence = bounded(evidence.without(still), recorded)
    best, left = recorded, misfits(evidence, recorded)
    instead: tuple[HyperParameters, ...] = ()
    for number in range(ROUNDS):
        if worst(left) <= FITS:
            break
        tried = [(settings, misfits(evidence, settings)) for settings in changes(evidence, best, left > FITS)]
        # the optimizer cannot have made a change after which a tensor that followed the formula does not
        kept = [(settings, after) for settings, after in tried if (after <= FITS)[left <= FITS].all()]
        kept.sort(key=lambda change: (_rare(change[0]) or worst(change[1]) > FITS, excess(change[1]), misfit(evidence, change[0])))
        if not kept or excess(kept[0][1]) > GAIN * excess(left):
            break
        best, left = kept[0]
        if number == 0:
            instead = tuple(settings for settings, after in kept[1:] if worst(after) <= FITS and not (_rare(settings) and best.clip))
    unexplained = tuple(evidence.names[index] for index in np.flatnonzero(~(left <= FITS)))

    def of_all(settings: HyperParameters) -> HyperParameters:
        every = decay.copy()  # tensors that are never updated keep the recorded one
        every[~still] = settings.decay
        return replace(settings, decay=every)

    return Explanation(
        as_recorded,
        explained=worst(left),
        fitted=of_all(best) if best is not recorded else None,
        instead=() if unexplained else tuple(map(of_all, instead)),
        left=unexplained,
        still=tuple(names[index] for index in np.flatnonzero(still)),
    )


def blind(evidence: Evidence, settings: HyperParameters) -> list[Term]:
    """Return the terms that could be quite different and would not show in this evidence."""
    decay, norms = settings.decay, clipped_norms(evidence)
    others = {
        Term.LEARNING_RATE: replace(settings, rate=1.1),
        Term.BETA1: replace(settings, beta1=max(0.0, 1 - 2 * (1 - settings.beta1))),
        Term.BETA2: replace(settings, beta2=max(0.0, 1 - 2 * (1 - settings.beta2))),
        Term.EPS: replace(settings, eps=100 * settings.eps),
        Term.WEIGHT_DECAY: replace(settings, decay=0.5 * decay if decay.any() else np.full_like(decay, 0.1)),
    }
    if norms:
        others[Term.CLIP_COEFFICIENT] = replace(settings, clip=0.5 * min(norms))
    return [term for term, changed in others.items() if worst(misfits(evidence, changed)) <= FITS]


def emptied(evidence: Evidence) -> int | None:
    """Return the first step after which all recorded moments are 0 despite a gradient; None where none are."""
    known = (update for update in evidence.updates if len(update.after) > 1 and update.gradient.any())
    return next((update.step for update in known if not any(moment.any() for moment in update.after[1:])), None)


def clipped_norms(evidence: Evidence) -> list[float]:
    """Return the global norm of each update after clipping, where it is on record."""
    return [update.coefficient * update.norm for update in evidence.updates if update.norm]


def excess(misfits: Array) -> float:
    """Return the misfits beyond rounding of all tensors, summed by logarithms: many count, not the worst."""
    return float(np.log1p(np.maximum(misfits * misfits - 1, 0)).sum()) if np.isfinite(misfits).all() else math.inf


def changes(evidence: Evidence, settings: HyperParameters, apart: NDArray[np.bool_]) -> Iterator[HyperParameters]:
    """Yield the settings with one term changed to its best fit, for every term, likelier ones first; ``apart`` are not yet explained."""
    scanned, fitted = evidence.thinned(apart, SCANNED), evidence.thinned(apart, FITTED)

    def best(change: Callable[[float], HyperParameters], reach: float) -> HyperParameters:
        """Return the best ``change(factor)`` of factors from 1/reach to reach, by a coarse scan and a search beside its best."""
        grid = np.linspace(-math.log(reach), math.log(reach), 2 * math.ceil(math.log(reach) / 0.6) + 1)
        found = int(np.argmin([misfit(scanned, change(math.exp(logarithm))) for logarithm in grid]))
        low, high = grid[max(found - 1, 0)], grid[min(found + 1, len(grid) - 1)]
        return change(math.exp(least(lambda logarithm: misfit(fitted, change(math.exp(logarithm))) ** 2, low, high)))

    yield best(lambda by: replace(settings, rate=settings.rate * by), 1000)
    for beta in ("beta1", "beta2"):
        value: float = getattr(settings, beta)
        yield best(lambda by, beta=beta, value=value: replace(settings, **{beta: max(0.0, 1 - (1 - value) * by)}), 1000)  # type: ignore[misc]
    yield best(lambda by: replace(settings, eps=settings.eps * by), 1e4)
    if settings.decay.any():
        yield best(lambda by: replace(settings, decay=settings.decay * by), 30)
        yield _grouped(evidence, settings, float(settings.decay.max()))
    else:
        common = best(lambda by: replace(settings, decay=np.full_like(settings.decay, 0.1 * by)), 1000)
        yield from (common, _grouped(evidence, settings, float(common.decay.max())))
    yield replace(settings, bias_correction=not settings.bias_correction)
    yield replace(settings, decoupled=not settings.decoupled)
    yield from (replace(settings, formula=formula) for formula in UpdateFormula if formula is not settings.formula)
    if norms := clipped_norms(evidence):
        start = settings.clip or float(np.median(norms))
        yield best(lambda by: replace(settings, clip=start * by), 30)
    yield best(lambda by: replace(settings, scale=settings.scale * by), 1e6)
    first = evidence.updates[0].count
    yield from (replace(settings, count=count) for count in {-1, 1, 1 - first, first} - {settings.count})


def _rare(settings: HyperParameters) -> bool:
    """Return whether likelier changes mimic a change (clipping scales gradients too), and go first where they fit."""
    return settings.scale != 1.0 or settings.count != 0


def least(score: Callable[[float], float], low: float, high: float) -> float:
    """Return where a function that falls and then rises is least, to :data:`NEAR`: by parabolas, and golden sections (Brent 1973)."""
    best = second = third = low + GOLDEN * (high - low)
    at_best = at_second = at_third = score(best)
    step = last = 0.0
    while abs(best - (low + high) / 2) > 2 * NEAR - (high - low) / 2:
        one, other = (best - second) * (at_best - at_third), (best - third) * (at_best - at_second)
        moved, scale = (best - third) * other - (best - second) * one, 2 * (other - one)
        moved, scale = math.copysign(1, -scale) * moved, abs(scale)
        before, last = last, step
        if abs(moved) < abs(scale * before / 2) and scale * (low - best) < moved < scale * (high - best):
            step = moved / scale
        else:
            last = (low if best >= (low + high) / 2 else high) - best
            step = GOLDEN * last
        place = best + (step if abs(step) >= NEAR else math.copysign(NEAR, step))
        value = score(place)
        if value <= at_best:
            low, high = (best, high) if place >= best else (low, best)
            third, at_third, second, at_second, best, at_best = second, at_second, best, at_best, place, value
            continue
        low, high = (place, high) if place < best else (low, place)
        if value <= at_second or second == best:
            third, at_third, second, at_second = second, at_second, place, value
        elif value <= at_third or third in (best, second):
            third, at_third = place, value
    return best


def _grouped(evidence: Evidence, settings: HyperParameters, highest: float) -> HyperParameters:
    """Return settings with decay switched on or off tensor by tensor, by the better fit."""
    count, squares = len(evidence.names), []
    for decay in (np.zeros(count), np.full(count, highest)):
        weights = (weights for weights, *_ in rests(evidence, replace(settings, decay=decay)))
        squares.append(sum(np.bincount(evidence.tensor, each * each, minlength=count) for each in weights))
    off, on = squares
    return replace(settings, decay=np.select([on < off, off < on], [highest, 0.0], settings.decay))
