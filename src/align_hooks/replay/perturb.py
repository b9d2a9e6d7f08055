"""Weights moved by one rounding step: the same run again shows what differences honest arithmetic makes of nothing.

A run repeated as it was is often the same to the bit and tells nothing of rounding. Moved weights meet every operation with other last
bits, as another kernel or another order of summation would (TTrace; Megatron-LM's own numeric checks perturb inputs so).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

EPS = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
"""One rounding step of a number of size 1, by compute type."""


@dataclass(frozen=True)
class Perturbed(Mapping[str, NDArray[Any]]):
    """Weights, each element moved by ``eps`` of itself, up or down by ``seed``.

    Signs belong to an element's place in the whole tensor, so that every layout loads the same weights.
    """

    weights: Any
    eps: float
    seed: int

    def __iter__(self) -> Iterator[str]:
        return iter(self.weights)

    def __len__(self) -> int:
        return len(self.weights)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor, without reading it."""
        return tuple(self.weights.shape(name))

    def __getitem__(self, name: str) -> NDArray[Any]:
        tensor = self.weights[name]
        bits = np.random.Generator(np.random.Philox(key=[self.seed, zlib.crc32(name.encode())])).integers(0, 2, tensor.shape, np.int8)
        moved: NDArray[Any] = tensor * (1 + np.float32(self.eps) * (2 * bits - 1).astype(np.float32))
        return moved.astype(tensor.dtype, copy=False)


def perturbation(session: Any, compute_type: str) -> tuple[int, str] | None:
    """Seed and compute type by which a session's loaded weights are moved; None where that was not asked for."""
    seed = session.settings.perturb
    if seed is None:
        return None
    session.override("loaded weights", "as they are", f"moved by {EPS[compute_type]:.3g} of themselves", f"ALIGN_HOOKS_PERTURB={seed}")
    return seed, compute_type
