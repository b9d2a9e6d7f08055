"""A hook as data: its purpose, its patch point, and the versions on which it was proven."""

import functools
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any, TypeAlias

from msgspec import Struct

from align_hooks.data_file import sections
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


def bound(wrapped: Function, args: Args, kwargs: Kwargs) -> inspect.BoundArguments:
    """Return a call's arguments by name; raises TypeError where the function does not take them."""
    return _signature(wrapped).bind(*args, **kwargs)


def argument(wrapped: Function, args: Args, kwargs: Kwargs, name: str) -> Any:
    """Return an argument of a call by its name, without the cost of :func:`bound`; None where it is not given."""
    place = _place(wrapped, name)
    return args[place] if place is not None and place < len(args) else kwargs.get(name)


def with_argument(wrapped: Function, args: Args, kwargs: Kwargs, name: str, value: object) -> tuple[Args, Kwargs]:
    """Return a call's arguments with another value of one, given as it was."""
    place = _place(wrapped, name)
    if place is not None and place < len(args):
        return (*args[:place], value, *args[place + 1 :]), kwargs
    return args, kwargs | {name: value}


def _place(wrapped: Function, name: str) -> int | None:
    """Return the index of a parameter; None for one that is not given by position."""
    parameters = _signature(wrapped).parameters
    by_keyword = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return [*parameters].index(name) if name in parameters and parameters[name].kind not in by_keyword else None


def _signature(wrapped: Function) -> inspect.Signature:
    function = wrapped if isinstance(wrapped, MethodType) else getattr(wrapped, "__wrapped__", wrapped)
    # kept of functions alone: an object with a method may hold a model, and need not have a hash
    return _of_function(function) if isinstance(function, FunctionType) else inspect.signature(function)


@functools.lru_cache(maxsize=64)
def _of_function(function: Function) -> inspect.Signature:
    return inspect.signature(function)  # a tenth of a millisecond, in which a step would wait


class Hook(Struct, frozen=True):
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


class HookTable(Struct, frozen=True):
    """A side's hooks as lines of a file, ``name | asked | versions | trigger:target,target | handler | marks | variant | why``.

    A handler is ``folder.file:function`` of the side, by default ``wrap`` in the file of the hook's name below ``hooks``. Marks are fields
    of :class:`Hook`: ``optional`` (it need not fire), ``in_step``, ``only_a_name`` and ``behind=…``.
    """

    file: Path
    asked: Mapping[str, Callable[[Settings], bool]]
    """Word of a line to whether settings need its hook."""
    versions: Mapping[str, tuple[str, str]]
    """Word of a line to a package and its proven versions."""

    def hooks(self, section: str) -> tuple[Hook, ...]:
        """Return the hooks of a section, in their order."""
        return tuple(self._hook(*map(str.strip, line.split("|"))) for line in sections(self.file)[section])

    def _hook(self, name: str, asked: str, versions: str, point: str, handler: str, marks: str, variant: str, why: str) -> Hook:
        trigger, _, targets = point.partition(":")
        path = f"align_hooks.{self.file.parent.name}.{handler or f'hooks.{name}:wrap'}"
        marked: Any = {mark: value or True for mark, _, value in (word.partition("=") for word in marks.split())}
        must_fire = not marked.pop("optional", False)
        of = self.versions[versions]
        return Hook(name, self.asked[asked], *of, trigger, path, why, tuple(filter(None, targets.split(","))), must_fire, variant, **marked)
