"""Recorded updates beside AdamW in float64: what each tensor's weights and moments differ by, in roundings.

A recorded update is weights before and after, the gradient that went in, and where it was recorded Adam's state. It is
predicted from hyper-parameters; what is left, in units of the rounding that fp32 must make, says whether they are those that
the optimizer really used.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from align_hooks.compare.adam import Array, State, Terms, rounding, update

FITS = 2.0
"""Rest, in roundings, up to which updates follow their formula; honest ones have 0.3 to 0.4 on either side."""


@dataclass(frozen=True, slots=True)
class Settings:
    """An optimizer's hyper-parameters, as recorded or as found.

    ``decay`` has one value a tensor. ``rate`` multiplies the recorded learning rates. ``clip`` is the norm that gradients
    are clipped to; None leaves the recorded clip coefficients as they are. ``scale`` multiplies the gradients on record,
    ``count`` is added to the recorded count of updates, the exponent of the bias correction.
    """

    beta1: float
    beta2: float
    eps: float
    decay: Array
    rate: float = 1.0
    clip: float | None = None
    bias_correction: bool = True
    decoupled: bool = True
    scale: float = 1.0
    count: int = 0


@dataclass(frozen=True)
class Update:
    """One recorded update, sampled: flat float64 arrays over the same elements of the same tensors at every update.

    ``rates`` has one value a tensor. ``norm`` is the global norm of the gradients that went in, ``coefficient`` the clip
    coefficient on record, ``count`` Adam's exponent. ``eps`` is that of the type in which weights are kept, ``allowed`` the most
    that rounding is allowed.
    """

    step: int
    count: int
    rates: Array
    norm: float | None
    coefficient: float
    weights: Array
    gradient: Array
    after: Array
    moments: tuple[Array, Array] | None
    moments_after: tuple[Array, Array] | None
    eps: float = 2.0**-23
    allowed: State | None = None

    def only(self, elements: NDArray[np.bool_], tensors: NDArray[np.bool_]) -> Update:
        """The update at some of its elements, which are those of some of its tensors."""
        moments, after = ((one and (one[0][elements], one[1][elements])) for one in (self.moments, self.moments_after))
        return replace(
            self,
            rates=self.rates[tensors],
            weights=self.weights[elements],
            gradient=self.gradient[elements],
            after=self.after[elements],
            moments=moments,
            moments_after=after,
        )

    @property
    def finite(self) -> bool:
        """Whether all its numbers are; there is nothing to fit to a NaN."""
        arrays = (self.rates, self.weights, self.gradient, self.after, *(self.moments or ()), *(self.moments_after or ()))
        return math.isfinite(self.coefficient) and all(np.isfinite(array).all() for array in arrays)


@dataclass(frozen=True)
class Evidence:
    """Consecutive updates of one run. ``tensor`` is the index in ``names`` of every sampled element's tensor."""

    names: tuple[str, ...]
    tensor: NDArray[np.int64]
    updates: tuple[Update, ...]

    def without(self, tensors: NDArray[np.bool_]) -> Evidence:
        """The evidence of the other tensors."""
        if not tensors.any():
            return self
        kept = ~tensors[self.tensor]
        names = tuple(name for name, gone in zip(self.names, tensors, strict=True) if not gone)
        index = np.cumsum(~tensors) - 1
        return Evidence(names, index[self.tensor[kept]], tuple(one.only(kept, ~tensors) for one in self.updates))


def misfits(evidence: Evidence, settings: Settings) -> Array:
    """Each tensor's root mean square difference between recorded and predicted numbers, in roundings.

    Weights and moments apart, the largest of them: moments that agree must not make up for weights that do not.
    """
    count = len(evidence.names)
    squares, updates = np.zeros((3, count)), np.zeros((3, 1))
    for parts in rests(evidence, settings):
        for kind, part in enumerate(parts):
            squares[kind] += np.bincount(evidence.tensor, part * part, minlength=count)
            updates[kind] += 1
    elements = np.bincount(evidence.tensor, minlength=count)
    return np.asarray(np.sqrt(squares / elements / np.maximum(updates, 1)).max(axis=0))


def worst(misfits: Array) -> float:
    """What decides: one wrong parameter among hundreds is a wrong update."""
    return float(misfits.max()) if np.isfinite(misfits).all() else math.inf


def misfit(evidence: Evidence, settings: Settings) -> float:
    """What a fit minimizes: the root mean square of all differences, which is smooth."""
    parts = [part for parts in rests(evidence, settings) for part in parts]
    total = sum(float(part @ part) for part in parts)
    return math.sqrt(total / sum(part.size for part in parts)) if math.isfinite(total) else math.inf


def rests(evidence: Evidence, settings: Settings) -> Iterator[list[Array]]:
    """Differences of each update's weights, and of its moments where they are recorded, in roundings."""
    for one, before, terms, after in predictions(evidence, settings):
        with np.errstate(all="ignore"):
            allowed = rounding(terms, before, one.gradient, after, one.eps)
            if one.allowed is not None:
                allowed = State(*map(np.minimum, allowed, one.allowed))
            found = [(one.after - after.weights) / allowed.weights]
            if one.moments_after is not None:
                found += [(is_ - was) / by for is_, was, by in zip(one.moments_after, after[1:], allowed[1:], strict=True)]
        yield found


def predictions(evidence: Evidence, settings: Settings) -> Iterator[tuple[Update, State, Terms, State]]:
    """Each update with the state before it, its terms and the state that follows.

    Moments that were not recorded before an update are zero at the first and carried on from the prediction later.
    """
    carried = (np.zeros(evidence.tensor.size), np.zeros(evidence.tensor.size))
    decay = settings.decay[evidence.tensor]
    for one in evidence.updates:
        terms = Terms(
            learning_rate=settings.rate * one.rates[evidence.tensor],
            beta1=settings.beta1,
            beta2=settings.beta2,
            eps=settings.eps,
            weight_decay=decay,
            clip_coefficient=settings.scale * clipping(settings, one),
            count=max(1, one.count + settings.count),
            bias_correction=settings.bias_correction,
            decoupled=settings.decoupled,
        )
        before = State(one.weights, *(one.moments or carried))
        with np.errstate(all="ignore"):
            after = update(terms, before, one.gradient)
        yield one, before, terms, after
        carried = after[1:]


def clipping(settings: Settings, update: Update) -> float:
    """The coefficient that gradients are multiplied by: the one on record, or that of clipping to another norm."""
    return update.coefficient if settings.clip is None or not update.norm else min(1.0, settings.clip / (update.norm + 1e-6))
