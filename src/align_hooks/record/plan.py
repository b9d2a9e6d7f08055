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
    """How many times a run of ``steps`` writes something of every token of a batch."""
    return sum(settings.steps(kind).count(kind.numbers(steps)) for kind in KINDS if kind.token_bytes)


def token_bytes(settings: Settings, steps: range) -> int:
    """Bytes that a run of ``steps`` writes for every token of a batch."""
    return sum(kind.token_bytes * settings.steps(kind).count(kind.numbers(steps)) for kind in KINDS if kind.token_bytes)
