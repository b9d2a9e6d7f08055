"""One update of AdamW in float64, as both frameworks write it.

``torch.optim.AdamW`` (Megatron without Apex and Transformer Engine), Apex's and Transformer Engine's ``FusedAdam`` with
``adam_w_mode``, and MindFormers' ``AdamW`` (``core/optim/adamw.py``, 1.6 to 1.9) differ in rounding only::

    g  = clip coefficient · gradient
    m' = β1 m + (1 - β1) g             v' = β2 v + (1 - β2) g²
    w' = (1 - lr · decay) w - lr · (m' / (1 - β1^t)) / (√(v' / (1 - β2^t)) + eps)

``mindspore.nn.AdamWeightDecay`` leaves the two bias corrections out. Adam without decoupled decay adds ``decay · w`` to g.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Terms:
    """What one update is made with. ``count`` is the exponent t of the bias correction, 1 at the first update.

    Learning rate and weight decay are numbers, or arrays with one value an element where parameter groups differ.
    """

    learning_rate: float | Array
    beta1: float
    beta2: float
    eps: float
    weight_decay: float | Array
    clip_coefficient: float
    count: int
    bias_correction: bool = True
    decoupled: bool = True

    @property
    def corrections(self) -> tuple[float, float]:
        """What the first and the second moment are divided by."""
        return (1 - self.beta1**self.count, 1 - self.beta2**self.count) if self.bias_correction else (1.0, 1.0)


class State(NamedTuple):
    """Weights and moments, float64, all of one shape."""

    weights: Array
    exp_avg: Array
    exp_avg_sq: Array


def update(terms: Terms, before: State, gradient: Array) -> State:
    """The state after one update with ``gradient``, which is not clipped yet."""
    weights, m, v = before
    g = terms.clip_coefficient * gradient
    if not terms.decoupled:
        g = g + terms.weight_decay * weights
    m = terms.beta1 * m + (1 - terms.beta1) * g
    v = terms.beta2 * v + (1 - terms.beta2) * g * g
    first, second = terms.corrections
    kept = weights * (1 - terms.learning_rate * terms.weight_decay) if terms.decoupled else weights
    return State(kept - terms.learning_rate * (m / first) / (np.sqrt(v / second) + terms.eps), m, v)


def rounding(terms: Terms, before: State, gradient: Array, after: State, eps: float) -> State:
    """How far each element may be off because the framework computes in fp32 and keeps weights with ``eps``: one rounding each.

    Moments are sums, so their error follows their summands and not their result, which may cancel. Betas may be held in fp32
    (Apex's and Transformer Engine's kernels take floats): 1 - 0.999 is then off by 1e-5 of itself, and so is what it
    multiplies and divides. What the moments and their corrections are off, the weights are off by in proportion.
    """
    g = np.abs(terms.clip_coefficient * gradient)
    if not terms.decoupled:
        g = g + terms.weight_decay * np.abs(before.weights)
    fp32 = 2.0**-23
    tiny = float(np.finfo(np.float32).tiny)  # below it fp32 may round to zero
    first, second = terms.corrections
    m = fp32 * (4 * (terms.beta1 * np.abs(before.exp_avg) + (1 - terms.beta1) * g) + np.abs(before.exp_avg) + g) + tiny
    v = fp32 * (6 * (terms.beta2 * before.exp_avg_sq + (1 - terms.beta2) * g * g) + np.abs(before.exp_avg_sq - g * g)) + tiny
    moved = np.abs(after.weights - before.weights)
    denominator = np.sqrt(after.exp_avg_sq / second) + terms.eps
    step = terms.learning_rate * np.abs(after.exp_avg / first) / denominator
    held = _held(terms.beta1, terms.count, first) + _held(terms.beta2, terms.count, second) / 2
    follows = terms.learning_rate * (m / first) / denominator + step * (held + v / (2 * after.exp_avg_sq + tiny))
    return State(eps * np.abs(after.weights) + fp32 * 8 * moved + follows + tiny, m, v)


def _held(beta: float, count: int, correction: float) -> float:
    """Relative error of a bias correction that is computed in fp32 from a beta in fp32; none is made where it is 1."""
    return 2.0**-23 * (count * beta**count + 1) / correction if correction != 1.0 else 0.0
