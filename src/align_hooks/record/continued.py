"""What ``run.json`` of a continued run keeps of its earlier segments.

It stays the run that others name by its id, and what was done to the steps that stand is still true of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from align_hooks.errors import RefusedRun
from align_hooks.record.schema import Facts
from align_hooks.settings import PREFIX


def continued(earlier: Facts, facts: Mapping[str, Any], first: int, run: Path, *, kept: int = 0) -> dict[str, Any]:
    """``facts`` of a segment that begins with step ``first``, with the id, overrides and injected steps of ``earlier``; ``kept`` are the
    steps that stay of it.

    Raises RefusedRun where earlier steps that stay were injected from another run than this segment's: a record names one source.
    """
    found = dict(facts)
    if "planned_steps" in facts:
        found["planned_steps"] = facts["planned_steps"] + kept
    if earlier.run_id is not None:
        found["run_id"] = earlier.run_id
    overrides = list(facts.get("overrides", ()))
    found["overrides"] = [*(one for one in map(to_builtins, earlier.overrides) if one not in overrides), *overrides]
    before, now = earlier.injected, facts.get("injected") or {}
    steps = [step for step in before.steps if step < first]
    if steps and now and now["run_id"] != before.run_id:
        raise RefusedRun(
            f"{PREFIX}RUN_EXISTS=continue: {run} was injected with gradients of {before.run} up to step {steps[-1]}, "
            f"now {PREFIX}INJECT_GRADIENTS names {now['run']}; choose another directory"
        )
    if steps:
        found["injected"] = {**to_builtins(before), **now, "steps": [*steps, *now.get("steps", ())]}
    return found
