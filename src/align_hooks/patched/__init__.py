"""The functions that a framework patched by a diff of ``patches/`` calls: which steps to record, and the printing of norms.

``ALIGN_PATCH_RUN`` names the directory and ``ALIGN_PATCH_STEPS`` the steps, by default 0. ``ALIGN_HOOKS_*`` variables would attach hooks,
which a site that patches may not use.
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
    """The first arguments of ``save_batch`` and ``save_gradients``, and this process's global rank."""

    run: Path
    step: int
    rank: int


def wanted() -> bool:
    """Return whether this process is to record anything."""
    return bool(os.environ.get(RUN))


def asked(step: int) -> StepDestination | None:
    """Return where to record step ``step`` (from 0), None for no recording; raises SettingsError for a value that cannot be read."""
    if not wanted():
        return None
    name = STEPS
    try:
        steps = Steps.parse(os.environ.get(STEPS, "0"))
        name = RUN
        run = path_of(os.environ[RUN])
    except ValueError as error:
        raise SettingsError(f"{name}: {error}") from None
    return StepDestination(run, step, Launch.from_environment(os.environ).rank) if step in steps else None
