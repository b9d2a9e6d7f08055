"""Llama 3.1's scaling of rotary positions: low frequencies by a factor, high ones not at all, and those between by a part of it.

The formula is in megatron-core's ``rotary_pos_embedding.py`` (``_apply_scaling``) and Transformers' ``modeling_rope_utils.py``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Llama3Scaling:
    """Scaled rotary positions of a base."""

    base: float
    factor: float
    """The divisor of low frequencies."""
    low: float = 1.0
    """Frequencies of wavelengths above ``original / low`` are divided."""
    high: float = 4.0
    """Frequencies of wavelengths below ``original / high`` stay."""
    original: int = 8192
    """Tokens of a sequence in the original training."""

    def frequencies(self, size: int) -> list[float]:
        """Return the frequency of each pair of a head's ``size`` rotated elements, in radians a position, ``[size / 2]``."""
        return [self._scaled(self.base ** (-2 * at / size)) for at in range(size // 2)]

    def _scaled(self, frequency: float) -> float:
        wavelength = 2 * math.pi / frequency
        if wavelength < self.original / self.high:
            return frequency
        if wavelength > self.original / self.low:
            return frequency / self.factor
        smooth = (self.original / wavelength - self.low) / (self.high - self.low)
        return (1 - smooth) * frequency / self.factor + smooth * frequency

    def facts(self) -> dict[str, object]:
        """Return ``rope_scaling`` of ``config.json``."""
        return {
            "rope_type": "llama3",
            "factor": self.factor,
            "low_freq_factor": self.low,
            "high_freq_factor": self.high,
            "original_max_position_embeddings": self.original,
        }
