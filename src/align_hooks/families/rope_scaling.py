"""How Llama 3.1 scales its rotary positions: low frequencies by a factor, high ones not at all, and those between by a part of it.

The formula is that of ``_apply_scaling`` in megatron-core's ``rotary_pos_embedding.py`` and of ``rope_type: llama3`` in Transformers'
``modeling_rope_utils.py``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Llama3Scaling:
    """Scaled rotary positions of a base."""

    base: float
    factor: float
    """By how much low frequencies are divided."""
    low: float = 1.0
    """Of the original length, the wavelengths from which on frequencies are divided: ``original / low``."""
    high: float = 4.0
    """The same of the wavelengths up to which nothing is done."""
    original: int = 8192
    """Tokens of the sequences that the model was trained on before."""

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
