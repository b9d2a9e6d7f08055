"""What ``run.json`` of a continued run keeps of its earlier segments.

Other runs name the run by its id, which stays. Its overrides and injected gradients are still those of the steps that stay.
"""

from __future__ import annotations

from pathlib import Path

from msgspec import to_builtins

from align_hooks.errors import RefusedRun
from align_hooks.record.layout import JsonObject
from align_hooks.record.schema import Facts
from align_hooks.settings import PREFIX


def continued(earlier: Facts, facts: JsonObject, first: int, run: Path, *, kept: int = 0) -> JsonObject:
    """``facts`` of a segment that begins with step ``first``, with the id, overrides and injected steps of ``earlier``; ``kept`` is how
    many of its steps stay.

    Raises RefusedRun where earlier steps that stay were injected from another run than this segment's: a record names one source.
    """
    merged = dict(facts)
    if "planned_steps" in facts:
        merged["planned_steps"] = facts["planned_steps"] + kept
    if earlier.run_id is not None:
        merged["run_id"] = earlier.run_id
    overrides = list(facts.get("overrides", ()))
    merged["overrides"] = [*(override for override in map(to_builtins, earlier.overrides) if override not in overrides), *overrides]
    before, after = earlier.injected, facts.get("injected") or {}
    steps = [step for step in before.steps if step < first]
    if steps and after and after["run_id"] != before.run_id:
        raise RefusedRun(
            f"{PREFIX}RUN_EXISTS=continue: {run} was injected with gradients of {before.run} up to step {steps[-1]}, "
            f"now {PREFIX}INJECT_GRADIENTS names {after['run']}; choose another directory"
        )
    if steps:
        merged["injected"] = {**to_builtins(before), **after, "steps": [*steps, *after.get("steps", ())]}
    return merged
