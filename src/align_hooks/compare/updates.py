"""Which term of the optimizer made an update what it is, from the recorded update alone.

Where recorded updates are not those of the hyper-parameters on record (:mod:`align_hooks.compare.formula`), each term is
fitted to the recorded numbers, all others held, and the term that brings the rest down furthest is changed; then again,
until the rest is rounding. So the terms that are wrong are named, each with the value that the optimizer really used, and two
wrong ones are found too. A change that makes a tensor part from the formula that followed it explains nothing.

With the state on record every term leaves a trace. Without it Adam hides scale: the clip coefficient can hardly be seen,
betas only from the second update on, and a single update cannot tell bias correction from the learning rate.
:func:`blind` says what an honest-looking record cannot show.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from align_hooks.compare.adam import Array, State, rounding
from align_hooks.compare.formula import FITS, Evidence, Settings, misfit, misfits, predictions, rests, worst
from align_hooks.compare.verdict import Term

ROUNDS = 8
GAIN = 0.8
"""A changed term is kept where it brings the rest below this part of what it was."""
MOVED = 2e-5
"""Relative change of a term above which it is called different."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """``rest`` with the settings on record and ``explained`` with those found, in roundings; ``found`` is None where none is better.

    ``instead`` are the other single changes that would explain the updates about as well, ``left`` the tensors whose updates
    no change explains, ``still`` those that are never updated.
    """

    rest: float
    explained: float
    found: Settings | None = None
    instead: tuple[Settings, ...] = ()
    left: tuple[str, ...] = ()
    still: tuple[str, ...] = ()

    @property
    def follows(self) -> bool:
        """Whether the updates are those of the settings on record."""
        return self.rest <= FITS and not self.still

    @property
    def complete(self) -> bool:
        """Whether they are AdamW's, with the settings on record or with those found."""
        return not self.left


def explain(evidence: Evidence, recorded: Settings) -> Explanation:
    """Check updates against the formula, and where they do not follow it find the settings that they do follow.

    A change that makes a tensor part from the formula that followed it is none that the optimizer can have made.
    """
    names, decay, found = evidence.names, recorded.decay, misfits(evidence, recorded)
    rest, still = worst(found), never_made(evidence) & (found > FITS)
    if still.all():
        return Explanation(rest, math.inf, still=names)
    recorded = replace(recorded, decay=decay[~still])
    evidence = bounded(evidence.without(still), recorded)
    best, found = recorded, misfits(evidence, recorded)
    instead: tuple[Settings, ...] = ()
    for number in range(ROUNDS):
        if worst(found) <= FITS:
            break
        tried = [(one, misfits(evidence, one)) for one in changes(evidence, best)]
        kept = [(one, after) for one, after in tried if (after <= FITS)[found <= FITS].all()]
        kept.sort(key=lambda one: (_rare(one[0]) or worst(one[1]) > FITS, excess(one[1]), misfit(evidence, one[0])))
        if not kept or excess(kept[0][1]) > GAIN * excess(found):
            break
        best, found = kept[0]
        if number == 0:
            instead = tuple(one for one, after in kept[1:] if worst(after) <= FITS and not (_rare(one) and best.clip))
    left = tuple(evidence.names[at] for at in np.flatnonzero(~(found <= FITS)))

    def of_all(one: Settings) -> Settings:
        """With a decay for the tensors that stand still too: what is on record."""
        every = decay.copy()
        every[~still] = one.decay
        return replace(one, decay=every)

    return Explanation(
        rest=rest,
        explained=worst(found),
        found=of_all(best) if best is not recorded else None,
        instead=() if left else tuple(map(of_all, instead)),
        left=left,
        still=tuple(names[at] for at in np.flatnonzero(still)),
    )


def bounded(evidence: Evidence, recorded: Settings) -> Evidence:
    """The evidence with little more allowed to rounding than the settings on record allow.

    Else a fit would win by what it allows itself: with betas next to 1 the bias correction vanishes, and everything fits.
    """
    updates = []
    for one, before, terms, after in predictions(evidence, recorded):
        updates.append(replace(one, allowed=State(*(4 * limit for limit in rounding(terms, before, one.gradient, after, one.eps)))))
    return replace(evidence, updates=tuple(updates))


def never_made(evidence: Evidence) -> NDArray[np.bool_]:
    """Tensors of which no element moved at any update."""
    moved = np.zeros(len(evidence.names))
    for one in evidence.updates:
        moved += np.bincount(evidence.tensor, one.after != one.weights, minlength=len(evidence.names))
    return np.asarray(moved == 0)


def blind(evidence: Evidence, settings: Settings) -> list[Term]:
    """Terms that could be quite other than they are and would not show in this evidence."""
    norms = [one.norm for one in evidence.updates if one.norm]
    others = {
        Term.LEARNING_RATE: replace(settings, rate=1.1),
        Term.BETA1: replace(settings, beta1=max(0.0, 1 - 2 * (1 - settings.beta1))),
        Term.BETA2: replace(settings, beta2=max(0.0, 1 - 2 * (1 - settings.beta2))),
        Term.EPS: replace(settings, eps=100 * settings.eps),
        Term.WEIGHT_DECAY: replace(
            settings, decay=np.where(settings.decay.any(), 0.5, 0.0) * settings.decay + 0.1 * (not settings.decay.any())
        ),
        Term.CLIP_COEFFICIENT: replace(settings, clip=0.5 * min(one.coefficient * one.norm for one in evidence.updates if one.norm))
        if norms
        else None,
    }
    return [term for term, other in others.items() if other is not None and worst(misfits(evidence, other)) <= FITS]


def excess(misfits: Array) -> float:
    """What a change must bring down: the misfits beyond rounding of all tensors, by their logarithms: many count, not the worst."""
    return float(np.log1p(np.maximum(misfits * misfits - 1, 0)).sum()) if np.isfinite(misfits).all() else math.inf


# ---- what could be different


def changes(evidence: Evidence, settings: Settings) -> Iterator[Settings]:
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
    norms = [one.norm for one in evidence.updates if one.norm]
    if norms:
        start = settings.clip or float(np.median([one.coefficient * one.norm for one in evidence.updates if one.norm]))
        yield _fitted(evidence, lambda by: replace(settings, clip=start * by), 30)
    yield _fitted(evidence, lambda by: replace(settings, scale=settings.scale * by), 1e6)
    first = evidence.updates[0].count
    yield from (replace(settings, count=count) for count in {-1, 1, 1 - first} - {settings.count})


def _rare(settings: Settings) -> bool:
    """Whether a change is one that likelier ones mimic (clipping scales gradients too), so that these go first where they fit."""
    return settings.scale != 1.0 or settings.count != 0


def _fitted(evidence: Evidence, change: Callable[[float], Settings], reach: float) -> Settings:
    """The best of ``change(factor)`` for factors from 1/reach to reach: a coarse scan, then a golden section."""
    grid = np.linspace(-math.log(reach), math.log(reach), 2 * math.ceil(math.log(reach) / 0.6) + 1)
    score = [misfit(evidence, change(math.exp(one))) for one in grid]
    at = int(np.argmin(score))
    low, high = grid[max(at - 1, 0)], grid[min(at + 1, len(grid) - 1)]
    golden = (math.sqrt(5) - 1) / 2
    inner = [high - golden * (high - low), low + golden * (high - low)]
    value = [misfit(evidence, change(math.exp(one))) for one in inner]
    while high - low > 1e-6:
        if value[0] <= value[1]:
            high, inner[1], value[1] = inner[1], inner[0], value[0]
            inner[0] = high - golden * (high - low)
            value[0] = misfit(evidence, change(math.exp(inner[0])))
        else:
            low, inner[0], value[0] = inner[0], inner[1], value[1]
            inner[1] = low + golden * (high - low)
            value[1] = misfit(evidence, change(math.exp(inner[1])))
    return change(math.exp((low + high) / 2))


def _grouped(evidence: Evidence, settings: Settings, highest: float) -> Settings:
    """Decay switched on or off tensor by tensor, whichever fits that tensor better, and as it is where both do."""
    squares = []
    for decay in (np.zeros_like(settings.decay), np.full_like(settings.decay, highest)):
        each = np.zeros(len(evidence.names))
        for weights, *_ in rests(evidence, replace(settings, decay=decay)):
            each += np.bincount(evidence.tensor, weights * weights, minlength=len(evidence.names))
        squares.append(each)
    return replace(settings, decay=np.select([squares[1] < squares[0], squares[0] < squares[1]], [highest, 0.0], settings.decay))
