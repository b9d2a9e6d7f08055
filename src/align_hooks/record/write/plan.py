"""The size of a record, from the steps that were asked for and the size of the model."""

from __future__ import annotations

from align_hooks.quantities.registry import KINDS
from align_hooks.settings import Settings

ELEMENT = 4
"""Bytes of a recorded element: fp32."""


def tensors(settings: Settings, steps: range) -> int:
    """How many times a run of ``steps`` writes as many elements as the model has."""
    return sum(kind.copies * settings.steps(kind).count(kind.numbers(steps)) for kind in KINDS if kind.copies)


def batches(settings: Settings, steps: range) -> int:
    """Of how many batches a run of ``steps`` writes something of every token."""
    return max((settings.steps(kind).count(kind.numbers(steps)) for kind in KINDS if kind.token_bytes or kind.choice_bytes), default=0)


def token_bytes(settings: Settings, steps: range, choices: int = 0) -> int:
    """Bytes that a run of ``steps`` writes for every token of a batch, which is given to so many experts in all layers together."""
    bytes_of = {kind: kind.token_bytes + choices * kind.choice_bytes for kind in KINDS}
    return sum(size * settings.steps(kind).count(kind.numbers(steps)) for kind, size in bytes_of.items() if size)
