"""A hook as data: what it is for, where it goes, and on which versions it was proven."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from align_hooks.settings import Settings

Function: TypeAlias = Callable[..., Any]
"""A function of a framework."""
Args: TypeAlias = tuple[Any, ...]
Kwargs: TypeAlias = dict[str, Any]
"""The positional and the named arguments of a call to a function of a framework."""
Result: TypeAlias = Any
"""What a function of a framework returned."""
Instance: TypeAlias = Any
"""The framework's object whose method was called; None for a function."""
Around: TypeAlias = Callable[[Function, Instance, Args, Kwargs], Result]
"""A wrapper of wrapt: ``(wrapped, instance, args, kwargs)``."""


@dataclass(frozen=True, slots=True)
class Hook:
    """A seam of a framework.

    ``body`` is ``"package.module:function"`` and is imported when the seam is first used, because bodies import frameworks.
    With targets, the function takes ``(session, wrapped, instance, args, kwargs)`` and is called in place of each target.
    Without, it takes ``(session, module)`` and is called once, when the trigger has been imported.
    ``supports`` is empty for a package that says no version: the body then checks the package for what it needs of it.
    ``only_a_name`` says that it adds a name which a script may use, and touches nothing: it is offered where nothing is switched on too.
    ``in_step`` says that its targets are called while training: an error of the body then ends recording, and not the training.
    """

    name: str
    asked: Callable[[Settings], bool]
    package: str
    supports: str
    trigger: str
    body: str
    why: str
    targets: tuple[str, ...] = ()
    must_fire: bool = True
    only_a_name: bool = False
    in_step: bool = False


def at_seam(name: str, seam: str, *, room: str, body: str = "", **facts: Any) -> Hook:
    """Make the hook at a seam, ``"trigger"`` or ``"trigger:target,target"``. Its body is a function in one of the files in ``room``,
    ``"file:function"``: unless said ``wrap``, in the file that has the hook's name."""
    trigger, _, targets = seam.partition(":")
    return Hook(name, trigger=trigger, targets=tuple(filter(None, targets.split(","))), body=f"{room}.{body or f'{name}:wrap'}", **facts)
