"""Weights moved by one rounding step: the same run again shows what differences honest arithmetic makes of nothing.

A run repeated as it was is often the same to the bit and tells nothing of rounding. Moved weights meet every operation with other last
bits, as another kernel or another order of summation would (TTrace; Megatron-LM's own numeric checks perturb inputs so).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from align_hooks.record.format.layout import Array

EPS = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
"""One rounding step of a number of size 1, by compute type."""


class Weights(Protocol):
    """Whole tensors by canonical name, each read when it is asked for."""

    def __getitem__(self, name: str, /) -> Array: ...
    def __contains__(self, name: object, /) -> bool: ...
    def __iter__(self) -> Iterator[str]: ...
    def __len__(self) -> int: ...
    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor, without reading it."""


@dataclass(frozen=True)
class Perturbed(Mapping[str, Array]):
    """Weights, each element moved by ``eps`` of itself, up or down by ``seed``.

    Signs belong to an element's place in the whole tensor, so that every layout loads the same weights.
    """

    weights: Weights
    eps: float
    seed: int

    def __iter__(self) -> Iterator[str]:
        return iter(self.weights)

    def __len__(self) -> int:
        return len(self.weights)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor, without reading it."""
        return tuple(self.weights.shape(name))

    def __getitem__(self, name: str) -> Array:
        tensor = self.weights[name]
        bits = np.random.Generator(np.random.Philox(key=[self.seed, zlib.crc32(name.encode())])).integers(0, 2, tensor.shape, np.int8)
        moved: Array = tensor * (1 + np.float32(self.eps) * (2 * bits - 1).astype(np.float32))
        return moved.astype(tensor.dtype, copy=False)
