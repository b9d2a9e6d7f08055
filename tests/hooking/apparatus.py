"""What the orderings are built from. A snippet imports it first; it imports nothing of the stand-in framework."""

import sys
from types import ModuleType
from typing import Any

from align_hooks.hooking.attach import VERSION_MODULES, attach
from align_hooks.hooking.hook import Hook
from align_hooks.process.ranks import Launch
from align_hooks.session import Session
from align_hooks.session.accounting import exit_code, failure, finish
from align_hooks.settings import Settings

__all__ = ["Settings", "attach", "attempt", "everything", "exit_code", "failure", "finish", "hook", "new_session", "session"]

VERSION_MODULES["stand-in"] = "stand_in.version"


def new_session(settings: Settings | None = None) -> Session:
    """A real session without a record, of a run that asked for a seed."""
    return Session("stand-in", settings or Settings(seed=1), Launch())


session = new_session()
"""That of a snippet which says nothing else."""


def hook(name: str = "training", *targets: str, **changes: Any) -> Hook:
    """A hook on ``stand_in.seams``, on ``train`` unless targets are given."""
    asked = {"asked": lambda settings: settings.seed is not None, "targets": targets or ("train",), "why": "a test"}
    place = {"package": "stand-in", "supports": ">=1.5,<2", "trigger": "stand_in.seams", "handler": "hook_bodies:note"}
    return Hook(name, **(asked | place | changes))


def everything() -> dict[str, Any]:
    """Every attribute of every module and class of the stand-in framework that is imported, by dotted name."""
    attributes = {}
    for module_name, module in list(sys.modules.items()):
        if module_name.partition(".")[0] == "stand_in" and isinstance(module, ModuleType):
            for name, value in vars(module).items():
                attributes[f"{module_name}.{name}"] = value
                if isinstance(value, type):
                    attributes |= {f"{module_name}.{name}.{inner}": member for inner, member in vars(value).items()}
    return attributes


def attempt(action: Any) -> list[str]:
    """The kind and the message of the error that ``action`` ends with; fails where there is none."""
    try:
        action()
    except Exception as error:
        return [type(error).__name__, str(error)]
    raise AssertionError("no error was raised")
