"""What a record's JSON must look like before anything is made of it: a record may come from a stranger."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from align_hooks.errors import RecordError
from align_hooks.quantities.registry import SWITCHES
from align_hooks.record.files import QUOTED
from align_hooks.settings import Steps

NUMBERS = ("loss", "objective_loss", "valid_tokens", "grad_norm", "clip_coefficient", "learning_rate", "skipped")
"""What every row of scalars holds: a number or None; of a learning rate, where groups differ, a list of numbers."""

LARGEST_STEP = 10**15
"""No run has so many; a directory's name can hold the number."""


def check_manifest(manifest: Mapping[str, Any], path: Path) -> None:
    """Raise RecordError where a rank's manifest lacks its launch facts or its place is no numbers."""
    launch = manifest.get("launch")
    if not isinstance(launch, dict) or type(launch.get("world_size")) is not int:
        raise RecordError(f"{path} is no manifest: it has no launch facts")
    place = manifest.get("place", {})
    if not isinstance(place, dict) or not all(type(index) is int for index in place.values()):
        raise RecordError(f"{path} is no manifest: its place is {str(place)[:QUOTED]!r}")
    groups = manifest.get("groups", [])
    if not isinstance(groups, list) or not all(_is_group(group) for group in groups):
        raise RecordError(f"{path} is no manifest: its parameter groups cannot be read")
    hooks, recorded = manifest.get("hooks") or {}, manifest.get("recorded") or {}
    if not isinstance(hooks, dict) or not all(isinstance(hook, dict) for hook in hooks.values()):
        raise RecordError(f"{path} is no manifest: its hooks cannot be read")
    if not isinstance(recorded, dict) or not all(type(count) is int for count in recorded.values()):
        raise RecordError(f"{path} is no manifest: what it recorded is no number each")
    weaker = manifest.get("weaker") or []
    if not isinstance(weaker, list) or not all(isinstance(one, str) for one in weaker):
        raise RecordError(f"{path} is no manifest: what its file system lacks cannot be read")
    steps = (manifest.get("first_step", 0), *(deleting if isinstance(deleting := manifest.get("deleting") or [], list) else (None,)))
    if not all(type(step) is int and 0 <= step < LARGEST_STEP for step in steps):
        raise RecordError(f"{path} is no manifest: its steps are no numbers of steps")
    if not is_id(manifest.get("run_id")):
        raise RecordError(f"{path} is no manifest: its run id is none")
    if not isinstance(manifest.get("parameters", []), list):
        raise RecordError(f"{path} is no manifest: its parameter table is no list")


def check_facts(facts: Mapping[str, Any], path: Path) -> None:
    """Raise RecordError where a section of run.json is not what the comparison reads."""
    sections = [(section, facts.get(section, {})) for section in ("settings", "model", "training", "optimizer", "versions")]
    for section, held in (*sections, *((section, facts.get(section) or {}) for section in ("injected", "resolution"))):
        if not isinstance(held, dict):
            raise RecordError(f"{path}: {section} is no section of a run")
    steps = (facts.get("injected") or {}).get("steps", [])
    if not isinstance(steps, list) or not all(type(step) is int for step in steps):
        raise RecordError(f"{path}: injected.steps are no steps")
    if not is_id(facts.get("run_id")):
        raise RecordError(f"{path}: run_id is no id")
    overrides = facts.get("overrides") or []
    if not isinstance(overrides, list) or not all(isinstance(one, dict) for one in overrides):
        raise RecordError(f"{path}: the overrides cannot be read")
    long = [f"{section}.{key}" for section in ("model", "optimizer") for key, one in facts.get(section, {}).items() if _too_long(one)]
    if long:
        raise RecordError(f"{path}: {long[0]} is larger than any number that a run has")
    if not isinstance(facts.get("training", {}).get("compute_type", ""), str):
        raise RecordError(f"{path}: training.compute_type is no type")
    groups = facts.get("optimizer", {"groups": []}).get("groups")
    if not isinstance(groups, list) or not all(_is_group(group) for group in groups):
        raise RecordError(f"{path}: the optimizer's groups cannot be read")
    for kind in (switch.name for switch in SWITCHES):
        try:
            Steps.parse(facts.get("settings", {}).get(kind) or "none")
        except AttributeError:
            raise RecordError(f"{path}: settings.{kind} is no text") from None
        except ValueError as error:
            raise RecordError(f"{path}: settings.{kind}: {error}") from None


def is_id(value: Any) -> bool:
    """Whether a value may be the id of a run, or none."""
    return value is None or (isinstance(value, str) and value.isalnum() and len(value) <= 64)


def _is_group(group: Any) -> bool:
    held = group.get("parameters") if isinstance(group, dict) else None
    if not isinstance(held, list) or not all(isinstance(name, str) for name in held):
        return False
    return all(not isinstance(value, list | dict) for key, value in group.items() if key not in ("parameters", "betas"))


def check_row(row: Mapping[str, Any], where: str) -> None:
    """Raise RecordError where a row of scalars lacks a number or holds something else."""
    for key in NUMBERS:
        value = row.get(key, "")
        for one in value if isinstance(value, list) and key == "learning_rate" else [value]:
            if not _is_number(one):
                raise RecordError(f"{where}: {key} is {str(one)[:40]!r}, not a number; record the run again")
    rates = row.get("learning_rate")
    if isinstance(rates, list) and (not rates or None in rates):
        raise RecordError(f"{where}: learning_rate is {str(rates)[:40]}, not a number each; record the run again")
    for key in ("grad_norm", "loss_scale", "skipped", "squared", "seconds"):
        if not _is_number(row.get(key)) or isinstance(row.get(key), list):
            raise RecordError(f"{where}: {key} is {str(row.get(key))[:40]!r}, not one number; record the run again")
    shares = row.get("micro_batches") or []
    if not isinstance(shares, list) or not all(isinstance(one, list) and len(one) == 3 and all(map(_is_number, one)) for one in shares):
        raise RecordError(f"{where}: micro_batches are no three numbers each; record the run again")
    states = row.get("random") or []
    if not isinstance(states, list) or not all(
        isinstance(one, dict) and all(isinstance(value, str) for value in one.values()) for one in states
    ):
        raise RecordError(f"{where}: random is no digest a generator; record the run again")
    inputs = row.get("unrecorded_inputs") or []
    if not isinstance(inputs, list) or not all(isinstance(name, str) for name in inputs):
        raise RecordError(f"{where}: unrecorded_inputs are no names; record the run again")


def _is_number(value: Any) -> bool:
    """A number, None, or the string that stands for one that is not finite."""
    return (value is None or isinstance(value, bool | int | float) or value in ("nan", "inf", "-inf")) and not _too_long(value)


def _too_long(value: Any) -> bool:
    """Whether an integer is larger than any float."""
    return isinstance(value, int) and abs(value) > 1 << 1000
