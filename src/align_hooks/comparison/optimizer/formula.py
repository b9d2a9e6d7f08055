"""Compare recorded updates with AdamW in float64: differences of each tensor's weights and moments, in roundings of fp32.

``torch.optim.AdamW`` (Megatron without Apex and Transformer Engine), Apex's and Transformer Engine's ``FusedAdam`` with ``adam_w_mode``,
and MindFormers' ``AdamW`` (``core/optim/adamw.py``, 1.6 to 1.9) differ in rounding only::

    g  = clip coefficient · gradient
    m' = β1 m + (1 - β1) g             v' = β2 v + (1 - β2) g²
    w' = (1 - lr · decay) w - lr · (m' / (1 - β1^t)) / (√(v' / (1 - β2^t)) + eps)

``mindspore.nn.AdamWeightDecay`` leaves the two bias corrections out. Adam without decoupled decay adds ``decay · w`` to g.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

Array = NDArray[np.float64]
ADAMS = frozenset({"Adam", "AdamW", "FusedAdam", "FusedAdamW", "PmaAdamW", "FusedPmaAdamW", "AdamWeightDecay", "FP32StateAdamWeightDecay"})
"""Optimizer classes of torch, Apex, Transformer Engine, MindSpore and MindFormers whose updates follow these formulas."""
FITS = 2.0
"""Largest difference, in roundings, of updates that follow their formula; honest updates have 0.3 to 0.4 on either side."""


class UpdateFormula(Enum):
    """A way to make an update of moments; both frameworks use the first. The value ends a message's id."""

    ADAMW = "adamw"
    EPS_IN_ROOT = "eps_in_root"
    EPS_BEFORE_CORRECTION = "eps_before_correction"
    DECAY_AFTER = "decay_after"
    MOMENTS_BEFORE = "moments_before"
    NESTEROV = "nesterov"


class HyperParameters(Struct, frozen=True):
    """An optimizer's hyper-parameters, as recorded or as fitted."""

    beta1: float
    beta2: float
    eps: float
    decay: Array
    """One value a tensor."""
    rate: float = 1.0
    """Factor of the recorded learning rates."""
    clip: float | None = None
    """Norm that gradients are clipped to; None keeps the recorded clip coefficients."""
    bias_correction: bool = True
    decoupled: bool = True
    scale: float = 1.0
    """Factor of the recorded gradients."""
    count: int = 0
    """Added to the recorded count of updates, the exponent of the bias correction."""
    formula: UpdateFormula = UpdateFormula.ADAMW


class AdamState(NamedTuple):
    """Weights and moments, float64, all of one shape."""

    weights: Array
    exp_avg: Array
    exp_avg_sq: Array


class UpdateTerms(Struct, frozen=True):
    """The terms of one update, arrays with one value an element."""

    settings: HyperParameters
    learning_rate: Array
    weight_decay: Array
    count: int
    """Exponent t of the bias correction, 1 at the first update."""
    before: AdamState
    gradient: Array
    """Clipped."""

    @property
    def corrections(self) -> tuple[float, float]:
        """Return the divisors of the first and the second moment."""
        betas = (self.settings.beta1, self.settings.beta2)
        return (1 - betas[0] ** self.count, 1 - betas[1] ** self.count) if self.settings.bias_correction else (1.0, 1.0)


def update(terms: UpdateTerms) -> AdamState:
    """Return the state after one update."""
    settings, (weights, *old), g = terms.settings, terms.before, terms.gradient
    if not settings.decoupled:
        g = g + terms.weight_decay * weights
    m = settings.beta1 * old[0] + (1 - settings.beta1) * g
    v = settings.beta2 * old[1] + (1 - settings.beta2) * g * g
    first, second = terms.corrections
    used, squared = old if settings.formula is UpdateFormula.MOMENTS_BEFORE else (m, v)
    if settings.formula is UpdateFormula.NESTEROV:
        used = settings.beta1 * m + (1 - settings.beta1) * g
    if settings.formula is UpdateFormula.EPS_IN_ROOT:
        denominator = np.sqrt(squared / second + settings.eps)
    elif settings.formula is UpdateFormula.EPS_BEFORE_CORRECTION:
        denominator = (np.sqrt(squared) + settings.eps) / math.sqrt(second)
    else:
        denominator = np.sqrt(squared / second) + settings.eps
    step = terms.learning_rate * (used / first) / denominator
    kept = 1 - terms.learning_rate * terms.weight_decay if settings.decoupled else 1.0
    return AdamState((weights - step) * kept if settings.formula is UpdateFormula.DECAY_AFTER else weights * kept - step, m, v)


def rounding(terms: UpdateTerms, after: AdamState, eps: float) -> AdamState:
    """Return the largest rounding of each element: of fp32 arithmetic, and of weights that are kept with ``eps``.

    Moments are sums, so their error follows their summands and not their result, which may cancel. Betas may be kept in fp32 (Apex's and
    Transformer Engine's kernels take floats): 1 - 0.999 is then off by 1e-5 of itself, and so is everything that it multiplies and
    divides. The error of the moments and of their corrections goes into the weights in proportion."""
    settings, before, g = terms.settings, terms.before, np.abs(terms.gradient)
    if not settings.decoupled:
        g = g + terms.weight_decay * np.abs(before.weights)
    fp32 = 2.0**-23
    tiny = float(np.finfo(np.float32).tiny)  # below it fp32 may round to zero
    first, second = terms.corrections
    m = fp32 * (4 * (settings.beta1 * np.abs(before.exp_avg) + (1 - settings.beta1) * g) + np.abs(before.exp_avg) + g) + tiny
    v = fp32 * (6 * (settings.beta2 * before.exp_avg_sq + (1 - settings.beta2) * g * g) + np.abs(before.exp_avg_sq - g * g)) + tiny
    moved = np.abs(after.weights - before.weights)
    denominator = np.sqrt(after.exp_avg_sq / second) + settings.eps
    step = terms.learning_rate * np.abs(after.exp_avg / first) / denominator
    betas = _of_beta(settings.beta1, terms.count, first) + _of_beta(settings.beta2, terms.count, second) / 2
    follows = terms.learning_rate * (m / first) / denominator + step * (betas + v / (2 * after.exp_avg_sq + tiny))
    return AdamState(eps * np.abs(after.weights) + fp32 * 8 * moved + follows + tiny, m, v)


def _of_beta(beta: float, count: int, correction: float) -> float:
    """Return the relative error of a bias correction computed from a beta in fp32; 0 where the correction is 1."""
    return 2.0**-23 * (count * beta**count + 1) / correction if correction != 1.0 else 0.0


State = tuple[Array, ...]
"""Weights, and Adam's first and second moment where on record."""


class RecordedUpdate(Struct, frozen=True):
    """One recorded update, sampled: flat float64 arrays over the same elements at every update."""

    step: int
    count: int
    """Adam's exponent."""
    rates: Array
    """One value a tensor."""
    norm: float | None
    """Global norm of the gradients before clipping; None where not on record."""
    coefficient: float
    before: State
    gradient: Array
    after: State
    eps: float = 2.0**-23
    """Of the type in which weights are kept."""
    allowed: AdamState | None = None
    """Bound of the rounding; None without a bound."""

    def only(self, elements: NDArray[np.bool_], tensors: NDArray[np.bool_]) -> RecordedUpdate:
        """Return the update of some tensors, whose ``elements`` these are."""
        return replace(self.sampled(elements), rates=self.rates[tensors])

    def sampled(self, elements: NDArray[np.bool_]) -> RecordedUpdate:
        """Return the update of some elements."""
        before, after = (tuple(array[elements] for array in state) for state in (self.before, self.after))
        allowed = self.allowed and AdamState(*(array[elements] for array in self.allowed))
        return replace(self, before=before, gradient=self.gradient[elements], after=after, allowed=allowed)

    @property
    def finite(self) -> bool:
        """Return whether all numbers are finite: nothing can be fitted to a NaN."""
        arrays = (self.rates, self.gradient, *self.before, *self.after)
        return math.isfinite(self.coefficient) and all(np.isfinite(array).all() for array in arrays)


class Evidence(Struct, frozen=True):
    """Consecutive updates of one run."""

    names: tuple[str, ...]
    tensor: NDArray[np.int64]
    """Index in ``names`` of every sampled element's tensor."""
    updates: tuple[RecordedUpdate, ...]

    def without(self, tensors: NDArray[np.bool_]) -> Evidence:
        """Return the evidence of the other tensors."""
        if not tensors.any():
            return self
        kept = ~tensors[self.tensor]
        names = tuple(name for name, gone in zip(self.names, tensors, strict=True) if not gone)
        index = np.cumsum(~tensors) - 1
        return Evidence(names, index[self.tensor[kept]], tuple(update.only(kept, ~tensors) for update in self.updates))

    def thinned(self, apart: NDArray[np.bool_], most: int) -> Evidence:
        """Return about ``most`` elements of all tensors, half of them of the tensors ``apart`` where there are so many."""
        if self.tensor.size <= most:
            return self
        kept = np.zeros(self.tensor.size, bool)
        for tensors in (apart, ~apart):
            places = np.flatnonzero(tensors[self.tensor])
            kept[places[:: math.ceil(2 * places.size / most) or 1]] = True
        return replace(self, tensor=self.tensor[kept], updates=tuple(update.sampled(kept) for update in self.updates))


def misfits(evidence: Evidence, settings: HyperParameters) -> Array:
    """Return each tensor's root mean square difference from the prediction, in roundings."""
    count = len(evidence.names)
    squares, updates = np.zeros((3, count)), np.zeros((3, 1))
    for kind, part in (each for parts in rests(evidence, settings) for each in enumerate(parts)):
        squares[kind] += np.bincount(evidence.tensor, part * part, minlength=count)
        updates[kind] += 1
    elements = np.bincount(evidence.tensor, minlength=count)
    # the largest of weights and moments: moments that agree must not make up for weights that do not
    return np.asarray(np.sqrt(squares / elements / np.maximum(updates, 1)).max(axis=0))


def worst(misfits: Array) -> float:
    """Return the largest misfit: one wrong parameter among hundreds is a wrong update."""
    return float(misfits.max()) if np.isfinite(misfits).all() else math.inf


def misfit(evidence: Evidence, settings: HyperParameters) -> float:
    """Return the root mean square of all differences, which is smooth: a fit minimizes it."""
    parts = [part for parts in rests(evidence, settings) for part in parts]
    total = sum(float(part @ part) for part in parts)
    return math.sqrt(total / sum(part.size for part in parts)) if math.isfinite(total) else math.inf


def rests(evidence: Evidence, settings: HyperParameters) -> Iterator[list[Array]]:
    """Yield differences of each update's weights, and of its recorded moments, in roundings."""
    for recorded, terms, after in predictions(evidence, settings):
        with np.errstate(all="ignore"):
            allowed = rounding(terms, after, recorded.eps)
            if recorded.allowed is not None:
                allowed = AdamState(*map(np.minimum, allowed, recorded.allowed))
            differences = [(array - predicted) / limit for array, predicted, limit in zip(recorded.after, after, allowed, strict=False)]
        yield differences


def predictions(evidence: Evidence, settings: HyperParameters) -> Iterator[tuple[RecordedUpdate, UpdateTerms, AdamState]]:
    """Yield each update with its terms and the predicted state after it."""
    carried = (np.zeros(evidence.tensor.size), np.zeros(evidence.tensor.size))  # stands for moments that were not recorded
    decay = settings.decay[evidence.tensor]
    for recorded in evidence.updates:
        weights, *moments = recorded.before
        coefficient = recorded.coefficient
        if settings.clip is not None and recorded.norm:
            coefficient = clip_coefficient(recorded.norm, settings.clip)
        count, rates = max(1, recorded.count + settings.count), settings.rate * recorded.rates[evidence.tensor]
        with np.errstate(all="ignore"):
            gradient = settings.scale * coefficient * recorded.gradient
            terms = UpdateTerms(settings, rates, decay, count, AdamState(weights, *(moments or carried)), gradient)
            after = update(terms)
        yield recorded, terms, after
        carried = after[1:]


def clip_coefficient(norm: float, limit: float) -> float:
    """Return what gradients of a norm are multiplied by, as ``torch.nn.utils.clip_grad_norm_`` does; at most 1."""
    return min(1.0, limit / (norm + 1e-6))


def bounded(evidence: Evidence, recorded: HyperParameters) -> Evidence:
    """Return the evidence with rounding bounded by 4 times what the settings on record allow.

    Else a fit would win by the rounding it allows itself: with betas next to 1 the bias correction vanishes, and everything fits."""
    limits = (tuple(4 * limit for limit in rounding(terms, after, update.eps)) for update, terms, after in predictions(evidence, recorded))
    updates = (replace(update, allowed=AdamState(*allowed)) for update, allowed in zip(evidence.updates, limits, strict=True))
    return replace(evidence, updates=tuple(updates))
