"""The size of a record, from the steps that were asked for and the size of the model."""

from __future__ import annotations

import shutil
from pathlib import Path

from align_hooks.errors import RefusedRun
from align_hooks.quantities.registry import KINDS, TENSORS
from align_hooks.settings import PREFIX, Settings

ELEMENT = 4
"""Bytes of a recorded element: fp32."""


def tensors(settings: Settings, steps: range) -> int:
    """Return how many copies of the model a run of ``steps`` writes."""
    return sum(kind.copies * settings.steps(kind).count(kind.numbers(steps)) for kind in KINDS if kind.copies)


def batches(settings: Settings, steps: range) -> int:
    """Return the number of batches whose tokens a run of ``steps`` records."""
    return max((settings.steps(kind).count(kind.numbers(steps)) for kind in KINDS if kind.token_bytes or kind.choice_bytes), default=0)


def token_bytes(settings: Settings, steps: range, choices: int = 0) -> int:
    """Return the bytes that a run writes for every token of a batch, with ``choices`` experts in all layers together."""
    bytes_of = {kind: kind.token_bytes + choices * kind.choice_bytes for kind in KINDS}
    return sum(size * settings.steps(kind).count(kind.numbers(steps)) for kind, size in bytes_of.items() if size)


def refuse_full_disk(run: Path, rank: int, planned: int) -> None:
    """Raise RefusedRun where a disk cannot hold the ``planned`` bytes."""
    free = shutil.disk_usage(run).free
    if planned > free:
        *variables, last = (PREFIX + kind.variable.upper() for kind in TENSORS)
        raise RefusedRun(
            f"recording needs {planned / 1e9:.1f} GB on rank {rank} and {run} has {free / 1e9:.1f} GB free; "
            f"choose fewer steps in {', '.join(variables)} and {last}, or another disk"
        )
