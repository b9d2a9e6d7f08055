"""What a framework that was patched by a diff of ``patches/`` calls: what it is asked to record, and the printing of norms.

``ALIGN_PATCH_RUN`` names the directory and ``ALIGN_PATCH_STEPS`` the steps, 0 by default. They are apart from the
``ALIGN_HOOKS_*`` variables because those attach hooks, which a site that patches may not use.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from align_hooks.errors import SettingsError
from align_hooks.process.paths import path_of
from align_hooks.process.ranks import Launch
from align_hooks.record.format.norms import print_norms
from align_hooks.settings import Steps

__all__ = ["StepDestination", "asked", "print_norms", "wanted"]
RUN, STEPS = "ALIGN_PATCH_RUN", "ALIGN_PATCH_STEPS"


class StepDestination(NamedTuple):
    """Where a step is recorded: the first arguments of ``save_batch`` and ``save_gradients``, and this process's global rank."""

    run: Path
    step: int
    rank: int


def wanted() -> bool:
    """Whether anything is asked for in this process."""
    return bool(os.environ.get(RUN))


def asked(step: int) -> StepDestination | None:
    """Where step ``step`` (from 0) is to be recorded; None where it is not asked for. Raises SettingsError for no steps value."""
    if not wanted():
        return None
    try:
        steps = Steps.parse(os.environ.get(STEPS, "0"))
    except ValueError as error:
        raise SettingsError(f"{STEPS}: {error}") from None
    try:
        run = path_of(os.environ[RUN])
    except ValueError as error:
        raise SettingsError(f"{RUN}: {error}") from None
    return StepDestination(run, step, Launch.from_environment(os.environ).rank) if step in steps else None
