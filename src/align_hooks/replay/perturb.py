"""Weights moved by one rounding step, to see what differences rounding alone makes.

A repeated run is often equal to the bit. Moved weights give every operation other last bits, as another kernel or order of summation would
(TTrace; Megatron-LM's own numeric checks perturb inputs in this way).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from align_hooks.record.format.layout import Array

EPS = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
"""Compute type to the rounding step of the number 1."""


class Weights(Protocol):
    """A mapping from canonical name to global tensor, read on access."""

    def __getitem__(self, name: str, /) -> Array: ...
    def __contains__(self, name: object, /) -> bool: ...
    def __iter__(self) -> Iterator[str]: ...
    def __len__(self) -> int: ...
    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor, without reading it."""


@dataclass(frozen=True)
class Perturbed(Mapping[str, Array]):
    """Weights with each element moved by ``eps`` of itself, up or down as ``seed`` and its position in the global tensor say."""

    weights: Weights
    eps: float
    seed: int

    def __iter__(self) -> Iterator[str]:
        return iter(self.weights)

    def __len__(self) -> int:
        return len(self.weights)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor, without reading it."""
        return tuple(self.weights.shape(name))

    def __getitem__(self, name: str) -> Array:
        tensor = self.weights[name]
        bits = np.random.Generator(np.random.Philox(key=[self.seed, zlib.crc32(name.encode())])).integers(0, 2, tensor.shape, np.int8)
        moved: Array = tensor * (1 + np.float32(self.eps) * (2 * bits - 1).astype(np.float32))
        return moved.astype(tensor.dtype, copy=False)
