"""Which seams of a framework are there: what a child process of the doctor finds out, by importing the framework as a run would.

Looking at files would be quicker and would believe them: whether a module can be imported on this machine, and in which version and
from which place, only importing it tells. Nothing is wrapped and no hook's body is loaded. Two frameworks cannot be imported into one
process, hence one child a side.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from align_hooks.errors import AlignHooksError, AttachError, UnsupportedVersion, in_a_line
from align_hooks.hooking.attach import check_version, installed_version
from align_hooks.hooking.hook import Hook
from align_hooks.hooking.ledger import find
from align_hooks.job.entry import room
from align_hooks.settings import Settings

PACKAGES = {"torch": ("torch", "megatron-core"), "ms": ("mindspore", "mindformers")}
IMPORTED = {"torch": "torch", "megatron-core": "megatron.core", "mindspore": "mindspore", "mindformers": "mindformers"}
"""Module of each package, whose place says which of several installations a run would get."""
FOUND, ABSENT, BROKEN = "found", "not there", "broken"
LACKING, UNFIT = "not in its module", "of a version that was not tried"
"""What ends a run as soon as the module is imported, whether the hook must fire or not."""
MARK = "align_hooks seams: "
"""Begins the one line that the parent reads; frameworks print what they like around it."""


def main(side: str, folder: str) -> None:
    """Print what there is of ``side`` as one line of JSON; ``folder`` is on the path first, as a training script's own folder is."""
    warnings.simplefilter("ignore")
    sys.path[0] = folder
    room(side)
    catalogue = importlib.import_module(f"align_hooks.{side}_side.catalogue")
    told = {name: package(name) for name in PACKAGES[side]}
    found = {"packages": told, "hooks": seams(catalogue.HOOKS, settings()), "devices": devices(side)}
    print(f"\n{MARK}{json.dumps(found)}", flush=True)


def settings() -> Settings | None:
    """What is asked for; None where the variables cannot be read, which the parent tells."""
    try:
        return Settings.from_environment(os.environ)
    except AlignHooksError:
        return None


def package(name: str) -> dict[str, str]:
    """A package's version and the directory that it comes from; why not, where it cannot be imported."""
    try:
        module = importlib.import_module(IMPORTED[name])
        return {"version": installed_version(name), "place": str(Path(next(iter(module.__path__)))), "why": ""}
    except ModuleNotFoundError as error:
        if error.name and IMPORTED[name].startswith(error.name):
            return {"version": "", "place": "", "why": ""}
        return {"version": "", "place": "", "why": f"importing {IMPORTED[name]} ends with {in_a_line(error)}"}
    except BaseException as error:  # a framework may end a process that lacks its driver
        return {"version": "", "place": "", "why": f"importing {IMPORTED[name]} ends with {in_a_line(error)}"}


def seams(hooks: Iterable[Hook], asked: Settings | None) -> list[dict[str, Any]]:
    """Every hook, whether it is asked for, and whether its seam is there."""
    found = []
    for hook in hooks:
        state, why = seam(hook)
        found.append(
            {
                "name": hook.name,
                "seam": ", ".join(f"{hook.trigger}.{target}" for target in hook.targets) or hook.trigger,
                "purpose": hook.why,
                "supports": f"{hook.package} {hook.supports or 'of any version'}",
                "asked": asked is None or hook.asked(asked),
                "needed": hook.must_fire,
                "state": state,
                "why": why,
            }
        )
    return found


def seam(hook: Hook) -> tuple[str, str]:
    """The state of one seam, and why it is no better."""
    try:
        module = importlib.import_module(hook.trigger)
    except ModuleNotFoundError as error:
        inside = error.name is not None and (hook.trigger == error.name or hook.trigger.startswith(f"{error.name}."))
        return (ABSENT, f"no module {error.name}") if inside else (BROKEN, in_a_line(error))
    except BaseException as error:
        return BROKEN, in_a_line(error)
    try:
        check_version(hook)
        for target in hook.targets:
            find(hook, module, target)
    except UnsupportedVersion as error:
        return UNFIT, str(error)
    except AttachError as error:
        return LACKING, str(error)
    except Exception as error:
        return BROKEN, in_a_line(error)
    return FOUND, ""


def devices(side: str) -> list[dict[str, Any]]:
    """Accelerators that the framework sees, each with its free and its whole memory in bytes; empty where it sees none."""
    try:
        return list(importlib.import_module(f"align_hooks.{side}_side.devices").devices())
    except BaseException as error:
        return [{"name": f"cannot be asked: {in_a_line(error)}", "free": None, "total": None}]


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
