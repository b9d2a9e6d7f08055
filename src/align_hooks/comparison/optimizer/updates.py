"""Which term of the optimizer made an update what it is, from the recorded update alone.

Where recorded updates are not those of the hyper-parameters on record (:mod:`align_hooks.comparison.optimizer.formula`), each term is
fitted to the recorded numbers while all others stay. The term that brings the misfit down furthest is changed, and this is repeated until
the misfit is rounding. So every wrong term is named with the value that the optimizer really used, also where two are wrong. A change
that makes a tensor part from the formula that followed it explains nothing.

With the state on record every term leaves a trace. Without it Adam hides scale: the clip coefficient can hardly be seen, betas only from
the second update on, and a single update cannot tell bias correction from the learning rate. :func:`blind` names the terms that an
honest-looking record cannot show.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from align_hooks.comparison.finding import Term
from align_hooks.comparison.optimizer.formula import (
    FITS,
    AdamState,
    Array,
    Evidence,
    HyperParameters,
    UpdateFormula,
    misfit,
    misfits,
    predictions,
    rests,
    rounding,
    worst,
)

ROUNDS = 8
GAIN = 0.8
"""A changed term is kept where it brings the misfit below this part of what it was."""
MOVED = 2e-5
"""Relative change of a term above which it is called different."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """``recorded`` is the misfit with the settings on record, ``explained`` that with the ``fitted`` ones, in roundings; ``fitted`` is None
    where none is better.

    ``instead`` are the other single changes that would explain the updates about as well, ``left`` the tensors whose updates
    no change explains, ``still`` those that are never updated.
    """

    recorded: float
    explained: float
    fitted: HyperParameters | None = None
    instead: tuple[HyperParameters, ...] = ()
    left: tuple[str, ...] = ()
    still: tuple[str, ...] = ()

    @property
    def follows(self) -> bool:
        """Whether the updates are those of the settings on record."""
        return self.recorded <= FITS and not self.still


def explain(evidence: Evidence, recorded: HyperParameters) -> Explanation:
    """Check updates against the formula, and where they do not follow it fit the settings that they do follow. A change that makes a tensor
    part from the formula that followed it is none that the optimizer can have made."""
    names, decay, by_tensor = evidence.names, recorded.decay, misfits(evidence, recorded)
    moved = [np.bincount(evidence.tensor, update.after != update.weights, minlength=len(names)) for update in evidence.updates]
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
        tried = [(settings, misfits(evidence, settings)) for settings in changes(evidence, best)]
        kept = [(settings, after) for settings, after in tried if (after <= FITS)[left <= FITS].all()]
        kept.sort(key=lambda change: (_rare(change[0]) or worst(change[1]) > FITS, limit_ratio(change[1]), misfit(evidence, change[0])))
        if not kept or limit_ratio(kept[0][1]) > GAIN * limit_ratio(left):
            break
        best, left = kept[0]
        if number == 0:
            instead = tuple(settings for settings, after in kept[1:] if worst(after) <= FITS and not (_rare(settings) and best.clip))
    unexplained = tuple(evidence.names[index] for index in np.flatnonzero(~(left <= FITS)))

    def of_all(settings: HyperParameters) -> HyperParameters:
        """With a decay for the tensors that stand still too: the recorded one."""
        every = decay.copy()
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


def bounded(evidence: Evidence, recorded: HyperParameters) -> Evidence:
    """The evidence with little more allowed to rounding than the settings on record allow. Else a fit would win by the rounding that it
    allows itself: with betas next to 1 the bias correction vanishes, and everything fits."""
    updates = (
        replace(update, allowed=AdamState(*(4 * limit for limit in rounding(terms, before, update.gradient, after, update.eps))))
        for update, before, terms, after in predictions(evidence, recorded)
    )
    return replace(evidence, updates=tuple(updates))


def blind(evidence: Evidence, settings: HyperParameters) -> list[Term]:
    """Terms that could be quite other than they are and would not show in this evidence."""
    decay = settings.decay
    others = {
        Term.LEARNING_RATE: replace(settings, rate=1.1),
        Term.BETA1: replace(settings, beta1=max(0.0, 1 - 2 * (1 - settings.beta1))),
        Term.BETA2: replace(settings, beta2=max(0.0, 1 - 2 * (1 - settings.beta2))),
        Term.EPS: replace(settings, eps=100 * settings.eps),
        Term.WEIGHT_DECAY: replace(settings, decay=0.5 * decay if decay.any() else np.full_like(decay, 0.1)),
    }
    if norms := clipped_norms(evidence):
        others[Term.CLIP_COEFFICIENT] = replace(settings, clip=0.5 * min(norms))
    return [term for term, changed in others.items() if worst(misfits(evidence, changed)) <= FITS]


def emptied(evidence: Evidence) -> int | None:
    """The first step after whose update all of Adam's moments on record are 0, although its gradient is not; None where none are."""
    for update in evidence.updates:
        if update.moments_after is not None and update.gradient.any() and not any(moment.any() for moment in update.moments_after):
            return update.step
    return None


def clipped_norms(evidence: Evidence) -> list[float]:
    """The global norm of each update after clipping, where it is on record."""
    return [update.coefficient * update.norm for update in evidence.updates if update.norm]


def limit_ratio(misfits: Array) -> float:
    """The misfits beyond rounding of all tensors, which a change must bring down, by their logarithms: many count, not the worst."""
    return float(np.log1p(np.maximum(misfits * misfits - 1, 0)).sum()) if np.isfinite(misfits).all() else math.inf


# ---- what could be different


def changes(evidence: Evidence, settings: HyperParameters) -> Iterator[HyperParameters]:
    """The settings with one term changed to what fits the evidence best, for every term that there is; likelier ones first."""
    yield _fitted(evidence, lambda by: replace(settings, rate=settings.rate * by), 1000)
    for beta in ("beta1", "beta2"):
        value: float = getattr(settings, beta)
        yield _fitted(evidence, lambda by, beta=beta, value=value: replace(settings, **{beta: max(0.0, 1 - (1 - value) * by)}), 1000)  # type: ignore[misc]
    yield _fitted(evidence, lambda by: replace(settings, eps=settings.eps * by), 1e4)
    if settings.decay.any():
        yield _fitted(evidence, lambda by: replace(settings, decay=settings.decay * by), 30)
        yield _grouped(evidence, settings, float(settings.decay.max()))
    else:
        common = _fitted(evidence, lambda by: replace(settings, decay=np.full_like(settings.decay, 0.1 * by)), 1000)
        yield from (common, _grouped(evidence, settings, float(common.decay.max())))
    yield replace(settings, bias_correction=not settings.bias_correction)
    yield replace(settings, decoupled=not settings.decoupled)
    yield from (replace(settings, formula=formula) for formula in UpdateFormula if formula is not settings.formula)
    if norms := clipped_norms(evidence):
        start = settings.clip or float(np.median(norms))
        yield _fitted(evidence, lambda by: replace(settings, clip=start * by), 30)
    yield _fitted(evidence, lambda by: replace(settings, scale=settings.scale * by), 1e6)
    first = evidence.updates[0].count
    yield from (replace(settings, count=count) for count in {-1, 1, 1 - first, first} - {settings.count})


def _rare(settings: HyperParameters) -> bool:
    """Whether likelier changes mimic a change (clipping scales gradients too), so that these go first where they fit."""
    return settings.scale != 1.0 or settings.count != 0


def _fitted(evidence: Evidence, change: Callable[[float], HyperParameters], reach: float) -> HyperParameters:
    """The best of ``change(factor)`` for factors from 1/reach to reach: a coarse scan, then a golden section."""
    grid = np.linspace(-math.log(reach), math.log(reach), 2 * math.ceil(math.log(reach) / 0.6) + 1)

    def score(logarithm: float) -> float:
        return misfit(evidence, change(math.exp(logarithm)))

    best = int(np.argmin([score(logarithm) for logarithm in grid]))
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    golden = (math.sqrt(5) - 1) / 2
    inner = [high - golden * (high - low), low + golden * (high - low)]
    value = [score(logarithm) for logarithm in inner]
    while high - low > 1e-6:
        if value[0] <= value[1]:
            high, inner[1], value[1] = inner[1], inner[0], value[0]
            inner[0] = high - golden * (high - low)
            value[0] = score(inner[0])
        else:
            low, inner[0], value[0] = inner[0], inner[1], value[1]
            inner[1] = low + golden * (high - low)
            value[1] = score(inner[1])
    return change(math.exp((low + high) / 2))


def _grouped(evidence: Evidence, settings: HyperParameters, highest: float) -> HyperParameters:
    """Decay switched on or off tensor by tensor, whichever fits that tensor better, and as it is where both do."""
    squares = []
    for decay in (np.zeros_like(settings.decay), np.full_like(settings.decay, highest)):
        total = np.zeros(len(evidence.names))
        for weights, *_ in rests(evidence, replace(settings, decay=decay)):
            total += np.bincount(evidence.tensor, weights * weights, minlength=len(evidence.names))
        squares.append(total)
    return replace(settings, decay=np.select([squares[1] < squares[0], squares[0] < squares[1]], [highest, 0.0], settings.decay))
