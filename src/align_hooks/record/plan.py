"""What recording will write, from what was asked for and how large the model is."""

from __future__ import annotations

from align_hooks.record import layout
from align_hooks.settings import Settings

ELEMENT = 4
"""Bytes of a recorded element: fp32."""
TOKEN = 32
"""Bytes of a token in a recorded batch: ids, labels and positions in int64, loss mask and loss in fp32; a mask of its own is more."""


def tensors(settings: Settings, steps: range) -> int:
    """How many times a run of ``steps`` writes as many elements as the model has."""
    states = range(steps.start, steps.stop + 1)
    gradients = settings.gradients.count(steps)
    weights = settings.weights.count(states)
    return gradients + weights + len(layout.MOMENTS) * settings.optimizer_state.count(states)


def batches(settings: Settings, steps: range) -> int:
    """How many batches a run of ``steps`` writes."""
    return settings.batches.count(steps)
