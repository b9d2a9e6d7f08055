"""One rung as a command: its variables, the words of its slots, and the changed copy of its YAML file."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

from align_hooks.configuration.values import ConfigurationError
from align_hooks.configuration.yaml_edits import with_settings
from align_hooks.record.write import output
from align_hooks.scenarios.plan import SLOTS, ExperimentPlan, Rung
from align_hooks.settings import PREFIX


def environment(plan: ExperimentPlan, index: int) -> dict[str, str]:
    """Return the variables of a rung: the plan's own, the directory of the record, what is recorded and what is replayed."""
    values = {"RUN": str(plan.run(plan.rungs[index].name)), **plan.record}
    if (source := plan.feeds(index)) is not None:
        values |= replayed(source)
    return {**plan.environment, **{PREFIX + name: value for name, value in values.items()}}


def replayed(source: Path) -> dict[str, str]:
    """Return the variables, without their prefix, by which a run has the initial weights and the batches of another."""
    return {"REPLAY_BATCHES": str(source), "LOAD_WEIGHTS": f"{source}@0"}


def command(plan: ExperimentPlan, rung: Rung) -> str:
    """Return the command of a rung, as a shell reads it."""
    filled = {"ranks": str(rung.ranks), "changes": rung.arguments, "config": shlex.quote(str(configured(plan, rung)))}
    return SLOTS.sub(lambda slot: filled[slot.group(1)], plan.side(rung).command)


def configured(plan: ExperimentPlan, rung: Rung) -> Path:
    """Return the path of a rung's YAML file: the plan's own, or the changed copy beside the record."""
    return plan.run(rung.name).with_name(f"{rung.name}.yaml") if rung.keys else Path(plan.side(rung).config or "")


def write_config(plan: ExperimentPlan, rung: Rung) -> None:
    """Write the changed copy of a rung's YAML file, if any; raises ConfigurationError where a file or a key does not allow it."""
    if not rung.keys:
        return
    source, target = Path(plan.side(rung).config or ""), configured(plan, rung)
    try:
        text = with_settings(source.read_text(encoding="utf-8"), str(source), {key: json.dumps(value) for key, value in rung.keys.items()})
        output.write(target, text)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{rung.name}: {getattr(error, 'filename', None) or source} {getattr(error, 'strerror', error)}") from None


def attached(plan: ExperimentPlan, rung: Rung) -> list[str]:
    """Return the arguments of the process that runs a rung with the hooks attached."""
    return [sys.executable, "-m", "align_hooks", "run", "--", "bash", "-c", command(plan, rung)]


def script(plan: ExperimentPlan, index: int) -> str:
    """Return a launch script of a rung for a cluster, to be started on every node like the training's own script."""
    rung = plan.rungs[index]
    lines = ["#!/usr/bin/env bash", f"# Rung {index + 1} of {len(plan.rungs)}: {rung.name}", "set -eu"]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in environment(plan, index).items()]
    return "\n".join([*lines, f"exec align-hooks run -- bash -c {shlex.quote(command(plan, rung))}", ""])
