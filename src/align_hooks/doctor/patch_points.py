"""The patch points of a framework: a child process of the doctor imports the framework as a run would, and reports.

Reading files would be quicker, but only an import shows whether a module can be imported on this machine, its version
and its place. Nothing is wrapped, and no handler is loaded. Each side has its own child, as two frameworks cannot be
imported into the same process.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import shutil
import sys
import warnings
from contextlib import suppress
from pathlib import Path
from typing import TypedDict

from align_hooks.errors import AlignHooksError, AttachError, UnsupportedVersion, in_a_line
from align_hooks.hooking.attach import check_version, installed_version, load
from align_hooks.hooking.hook import Hook
from align_hooks.hooking.patch_log import find
from align_hooks.job.entry import side_environment
from align_hooks.settings import Settings

PACKAGES = {"torch": ("torch", "megatron-core"), "ms": ("mindspore", "mindformers")}
IMPORTED = {"torch": "torch", "megatron-core": "megatron.core", "mindspore": "mindspore", "mindformers": "mindformers"}
"""Module of each package; its place says which of several installations a run would get."""
FOUND, ABSENT, BROKEN = "found", "not there", "broken"
LACKING, UNFIT = "not in its module", "of a version that was not tried"
"""States that end a run as soon as the module is imported, whether the hook must fire or not."""
HELPER, TOOLS = "megatron.core.datasets.helpers_cpp", ("make", "g++")
"""The compiled module that makes Megatron-LM's samples, and what compiles it, with pybind11."""
STAND_IN = "hyper_parallel"
"""The hook of a rehearsal that answers for a package which is not here."""
MARK = "align_hooks patch points: "
"""The beginning of the line that the parent reads; frameworks print other lines around it."""


class Package(TypedDict):
    """A package; all fields are empty where it is missing."""

    version: str
    place: str
    why: str


class HookStatus(TypedDict):
    """A hook and its patch point."""

    name: str
    patch_point: str
    purpose: str
    supports: str
    asked: bool
    needed: bool
    """Whether the hook must fire."""
    state: str
    why: str


class Device(TypedDict):
    """An accelerator, with memory in bytes, None where it is not known."""

    name: str
    free: int | None
    total: int | None


def main(side: str, folder: str, trainer: str = "") -> None:
    """Print packages, hooks and devices of ``side`` as a line of JSON; ``folder``, the training script's, is first on the path.

    ``trainer`` is the framework's that will run; empty for the usual one."""
    warnings.simplefilter("ignore")
    sys.path[0] = folder
    side_environment(side)
    catalogue = importlib.import_module(f"align_hooks.{side}_side.catalogue")
    packages = {name: package(name) for name in PACKAGES[side]}
    settings = None
    with suppress(AlignHooksError):  # the parent reports variables that cannot be read
        settings = Settings.from_environment(os.environ)
    usual = next((hook.variant for hook in catalogue.HOOKS if hook.variant), "")
    wanted = [hook for hook in catalogue.HOOKS if hook.variant in ("", trainer or usual)]
    if trainer and settings is not None and settings.device == "cpu":
        for hook in (hook for hook in wanted if hook.name == STAND_IN):  # before what needs it is imported
            load(hook.handler)(None, importlib.import_module(hook.trigger))
    hooks = [hook_status(hook, settings) for hook in wanted]
    report = {"packages": packages, "hooks": hooks, "devices": devices(side), "uncompiled": uncompiled(), "prefix": sys.prefix}
    print(f"\n{MARK}{json.dumps(report)}", flush=True)


def package(name: str) -> Package:
    """Import a package and describe it."""
    try:
        module = importlib.import_module(IMPORTED[name])
        return {"version": installed_version(name), "place": str(Path(next(iter(module.__path__)))), "why": ""}
    except BaseException as error:  # a framework may end a process that lacks its driver
        is_missing = isinstance(error, ModuleNotFoundError) and error.name and IMPORTED[name].startswith(error.name)
        return {"version": "", "place": "", "why": "" if is_missing else f"importing {IMPORTED[name]} ends with {in_a_line(error)}"}


def uncompiled() -> list[str]:
    """Return the folder of a data helper that is not compiled, and the tools that its compilation lacks; empty where it is compiled."""
    try:
        if importlib.util.find_spec(HELPER) is not None:
            return []
    except (ImportError, ValueError):  # no Megatron-LM, or a stand-in for it
        return []
    folder = next(iter(importlib.import_module(HELPER.rpartition(".")[0]).__path__))
    lacking = [tool for tool in TOOLS if shutil.which(tool) is None]
    return [folder, *lacking, *(["pybind11"] if importlib.util.find_spec("pybind11") is None else [])]


def hook_status(hook: Hook, asked: Settings | None) -> HookStatus:
    """Return a hook with the state of its patch point."""
    state, why = _state(hook)
    return {
        "name": hook.name,
        "patch_point": ", ".join(f"{hook.trigger}.{target}" for target in hook.targets) or hook.trigger,
        "purpose": hook.why,
        "supports": f"{hook.package} {hook.supports or 'of any version'}",
        "asked": asked is None or hook.asked(asked),
        "needed": hook.must_fire,
        "state": state,
        "why": why,
    }


def _state(hook: Hook) -> tuple[str, str]:
    """Return the state of a hook's patch point, and why it is not found; empty where it is."""
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


def devices(side: str) -> list[Device]:
    """Return the accelerators that the framework sees."""
    try:
        return list(importlib.import_module(f"align_hooks.{side}_side.devices").devices())
    except BaseException as error:
        return [{"name": f"cannot be asked: {in_a_line(error)}", "free": None, "total": None}]


if __name__ == "__main__":
    main(*sys.argv[1:])
