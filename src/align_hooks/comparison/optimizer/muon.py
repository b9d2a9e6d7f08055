"""Compare recorded updates with Muon in float64: differences of momentum and weights of each matrix, in roundings.

Megatron's ``TensorParallelMuon`` (on Emerging-Optimizers 0.2 to 0.4) and MindFormers' ``Muon`` differ in dampening alone::

    g  = clip coefficient · gradient
    m' = momentum · m + (1 - dampening) · g
    n  = m', with Nesterov's (1 - dampening) · g + momentum · m'
    w' = (1 - lr · decay) w - lr · factor · scale(rows, columns) · X, where X = n / |n|, then a X + (b X Xᵀ + c (X Xᵀ)²) X in each step

The iteration amplifies the rounding of its products, by the more the smaller a singular value of n is. So its rounding is measured: the
iteration is made again in the type of the products, and its distance from fp64 is what honest updates may differ by.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from align_hooks.comparison.metrics.measures import Rounded, root_mean_square, rounded_to
from align_hooks.record.format.schema import MuonMatrix, ParameterGroup

Array = NDArray[np.float64]
Blocks = tuple[Array, ...]
"""The parts of a matrix that are orthogonalised each by itself."""
MEASURED = 2.0
"""Times the measured rounding of the iteration: kernels that add in another order round otherwise, and as much."""
FP32 = 2.0**-23
MANTISSA = {"float32": 0, "tfloat32": 13, "bfloat16": 16}
"""Type of the products to the bits of fp32's mantissa that it lacks."""
SCALES: Mapping[str, Callable[[int, int], float]] = {
    "spectral": lambda rows, columns: math.sqrt(max(rows, columns)),
    "shape_scaling": lambda rows, columns: math.sqrt(max(1.0, rows / columns)),
    "unit_rms_norm": lambda rows, columns: math.sqrt(rows / columns),
}
"""The scale of an update, by Emerging-Optimizers' name."""
DECAYS: Mapping[str, Callable[[float, float], float]] = {
    "decoupled": lambda rate, decay: rate * decay,
    "independent": lambda rate, decay: decay,
    "palm": lambda rate, decay: rate * rate * decay,
    "l2": lambda rate, decay: 0.0,
}
"""The part of the weights that an update takes off, by the method of the decay; ``l2`` adds decay · w to the gradient instead."""


class MatrixUpdate(Struct, frozen=True):
    """One update of one matrix."""

    step: int
    rate: float
    before: Blocks
    """Weights."""
    after: Blocks
    gradient: Blocks
    """Clipped."""
    momentum: Blocks | None
    """Before the update; None where not on record."""
    next_momentum: Blocks | None
    eps: float
    """Of the type in which weights are kept."""


def parts_of(matrix: MuonMatrix, tensors: Sequence[Array]) -> Blocks:
    """Return the blocks of a matrix, of its tensors in the order of their rows."""
    cut = [np.split(tensor, matrix.blocks, axis=matrix.axis) for tensor in tensors]
    return tuple(np.concatenate([parts[index] for parts in cut]) for index in range(matrix.blocks))


def scale_of(group: ParameterGroup, shape: tuple[int, ...]) -> float:
    """Return the factor of an orthogonalised block of a shape."""
    assert group.scale_mode is not None and group.extra_scale_factor is not None
    return SCALES[group.scale_mode](*shape) * group.extra_scale_factor


def orthogonalised(block: Array, group: ParameterGroup, *, rounded: bool = False) -> Array:
    """Return the result of the Newton-Schulz iteration, in float64 or with the roundings of the products' type."""
    lacking = MANTISSA[group.products or "float32"] if rounded else None
    x: Rounded = block if lacking is None else block.astype(np.float32)
    if transposed := x.shape[0] > x.shape[1]:
        x = x.T
    x = rounded_to(x / max(float(np.linalg.norm(x)), float(np.finfo(np.float32).tiny)), lacking)
    for a, b, c in group.coefficients or ():
        square = rounded_to(x @ x.T, lacking)
        polynomial = rounded_to(b * square + c * (square @ square), lacking)
        x = rounded_to(a * x + polynomial @ x, lacking)
    return np.asarray(x.T if transposed else x, np.float64)


class BlockUpdate(Struct, frozen=True):
    """One update of one block, recorded and predicted."""

    before: Array
    after: Array
    rate: float
    decayed: float
    """The part of the weights that is taken off."""
    scale: float
    old: Array
    """Momentum before the update."""
    gradient: Array
    momentum: Array
    """Predicted, after the update."""
    recorded: Array | None
    """The same on record."""
    orthogonalised: Array
    """What is orthogonalised."""
    direction: Array
    """The result of the iteration."""
    momentum_rounding: float
    """Root mean square, as of the weights."""
    weights_rounding: float

    @property
    def step(self) -> Array:
        """What is taken off the decayed weights."""
        return self.rate * self.scale * self.direction


def predictions(group: ParameterGroup, updates: Iterable[MatrixUpdate]) -> Iterator[BlockUpdate]:
    """Yield each block of each update beside its prediction, which starts from recorded momentum where there is any."""
    assert group.momentum is not None and group.dampening is not None and group.weight_decay is not None
    carried: dict[int, Array] = {}
    for update in updates:
        for index, (before, after, g) in enumerate(zip(update.before, update.after, update.gradient, strict=True)):
            if group.weight_decay_method == "l2":
                g = g + group.weight_decay * before
            old = update.momentum[index] if update.momentum is not None else carried.get(index, np.zeros_like(g))
            m = group.momentum * old + (1 - group.dampening) * g
            recorded = None if update.next_momentum is None else update.next_momentum[index]
            used = m if recorded is None else recorded  # an error of the momentum is not one of the weights
            n = (1 - group.dampening) * g + group.momentum * used if group.nesterov else used
            direction, scale = orthogonalised(n, group), scale_of(group, n.shape)
            noise = root_mean_square(direction - orthogonalised(n, group, rounded=True))
            m_rounding = FP32 * root_mean_square(np.abs(group.momentum * old) + np.abs((1 - group.dampening) * g))
            of_weights = update.eps * root_mean_square(after) + 8 * FP32 * root_mean_square(after - before)
            rounding = of_weights + MEASURED * update.rate * scale * noise
            decayed = DECAYS[str(group.weight_decay_method)](update.rate, group.weight_decay)
            yield BlockUpdate(before, after, update.rate, decayed, scale, old, g, m, recorded, n, direction, m_rounding, rounding)
            carried[index] = used


def misfits(group: ParameterGroup, updates: Iterable[MatrixUpdate]) -> tuple[float, float]:
    """Return the largest difference of momentum, and of weights, from the prediction, in roundings."""
    momentum = weights = 0.0
    for block in predictions(group, updates):
        if block.recorded is not None:
            momentum = max(momentum, in_roundings(block.recorded - block.momentum, block.momentum_rounding))
        rest = block.after - (block.before * (1 - block.decayed) - block.step)
        weights = max(weights, in_roundings(rest, block.weights_rounding))
    return momentum, weights


def in_roundings(rest: Array, rounding: float) -> float:
    """Return the root mean square of differences in roundings."""
    return root_mean_square(rest) / max(rounding, float(np.finfo(np.float32).tiny))
