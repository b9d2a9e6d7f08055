"""A hook as data: its purpose, its patch point, and the versions on which it was proven."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from align_hooks.settings import Settings

Function: TypeAlias = Callable[..., Any]
Args: TypeAlias = tuple[Any, ...]
Kwargs: TypeAlias = dict[str, Any]
Result: TypeAlias = Any
"""A framework's function, and the positional arguments, named arguments and result of a call to it."""
Instance: TypeAlias = Any
"""The framework's object whose method was called; None for a function."""
Around: TypeAlias = Callable[[Function, Instance, Args, Kwargs], Result]
"""A wrapper of wrapt: ``(wrapped, instance, args, kwargs)``."""


@dataclass(frozen=True, slots=True)
class Hook:
    """A patch point of a framework, and the handler that runs there."""

    name: str
    asked: Callable[[Settings], bool]
    """Whether the settings need the hook."""
    package: str
    supports: str
    """The proven versions of ``package``; empty for a package without a version, which the handler checks itself."""
    trigger: str
    """The module whose import attaches the hook."""
    handler: str
    """``"package.module:function"``, imported at its first call, since handlers import frameworks. The function takes
    ``(session, wrapped, instance, args, kwargs)`` in place of each target; without targets ``(session, module)``, once."""
    why: str
    targets: tuple[str, ...] = ()
    """Functions of the trigger module, ``"Class.method"`` or ``"function"``."""
    must_fire: bool = True
    variant: str = ""
    """The trainer, or the class of the model, that the hook is for, where a run has one of several; empty for a hook of all."""
    only_a_name: bool = False
    """Whether it only adds a name that scripts may use; then it is attached where nothing is switched on, too."""
    behind: str = ""
    """The name of the hook once attached to which this one is registered: a trigger that processes import that do not use it."""
    in_step: bool = False
    """Whether targets are called in a training step, where an error of the handler ends recording and not training."""


def hook_at(name: str, point: str, *, handlers: str, handler: str = "", **facts: Any) -> Hook:
    """Make the hook at ``point``, ``"trigger"`` or ``"trigger:target,target"``.

    ``handler`` is ``"file:function"`` in the package ``handlers``, by default ``wrap`` in the file of the hook's name.
    """
    trigger, _, targets = point.partition(":")
    path = f"{handlers}.{handler or f'{name}:wrap'}"
    return Hook(name, trigger=trigger, targets=tuple(filter(None, targets.split(","))), handler=path, **facts)
