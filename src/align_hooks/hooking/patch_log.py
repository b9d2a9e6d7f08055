"""The patch log: what was replaced in a framework, how often each hook ran, and how to undo it.

Another tool may patch the same attributes. Meanwhile our wrappers are off and hooks wait (:meth:`PatchLog.suspended`); then each wrapper
goes around the result, once, as if we had come last.
"""

from __future__ import annotations

import functools
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, TypeAlias

import wrapt
from msgspec import Struct

from align_hooks.errors import AttachError
from align_hooks.hooking.hook import Args, Around, Function, Hook, Instance, Kwargs, Result

_ABSENT = object()
Owner: TypeAlias = Any
"""A module or a class of a framework, which holds the attribute that a hook replaces."""


class Wrapper(wrapt.FunctionWrapper):  # type: ignore[misc,type-arg,unused-ignore]
    """A wrapt wrapper that pickles by name and copies as itself, as functions do."""

    def __reduce_ex__(self, protocol: object) -> str:
        return str(self.__wrapped__.__qualname__)

    def __deepcopy__(self, memo: object) -> Wrapper:
        return self


class Replacement(Struct, frozen=True):
    """A replaced attribute."""

    owner: Owner
    name: str
    before: object
    after: object
    owned: bool
    """Whether the owner held the attribute itself; an inherited one is deleted to undo the replacement."""

    @property
    def is_ours(self) -> bool:
        """Whether nothing replaced the attribute after us."""
        return vars(self.owner).get(self.name, _ABSENT) is self.after


class Wrapped(Struct, frozen=True):
    """A target with a wrapper around it: the arguments of :meth:`PatchLog.wrap`, and the changes that it made."""

    hook: Hook
    module: ModuleType
    target: str
    around: Around
    changes: tuple[Replacement, ...]
    """The change of the target itself first."""


class PatchLog:
    """The hooks of a process by name, and every change that they made."""

    def __init__(self) -> None:
        self.pending: dict[str, Hook] = {}
        """Hooks whose trigger was not imported yet."""
        self.attached: dict[str, Hook] = {}
        self.failed: dict[str, str] = {}
        """Why hooks could not be attached."""
        self.calls: Counter[str] = Counter()
        self.excused: set[str] = set()
        """The names of hooks of a training loop that does not run."""
        self.journal: list[Replacement] = []
        self.wrapped: list[Wrapped] = []
        self.waiting: list[Callable[[], None]] | None = None
        """Attachments that wait until the wrappers are on again; None while they are on."""

    def wrap(self, hook: Hook, module: ModuleType, target: str, around: Around, *, rebind: bool) -> None:
        """Wrap ``module.target`` once, counting calls; with ``rebind`` also where other modules imported it with ``from … import …``."""
        owner, name, before = find(hook, module, target)
        holders = map(vars, owner.__mro__ if isinstance(owner, type) else (owner,))
        raw = next((held[name] for held in holders if name in held), before)  # a staticmethod or classmethod, where the target is one
        # of a variant that is derived from another, the base's wrapper is enough
        if any((change.owner is owner and change.name == name) or (hook.variant and change.after is raw) for change in self.journal):
            return

        def counting(wrapped: Function, instance: Instance, args: Args, kwargs: Kwargs) -> Result:
            self.calls[hook.name] += 1
            return around(wrapped, instance, args, kwargs)

        wrapper, known = Wrapper(raw, counting), len(self.journal)
        self.replace(owner, name, wrapper)
        for holder, alias in _holders(before) if rebind and owner is module else ():
            if holder is module or holder.__name__ != getattr(before, "__module__", None):  # the tool that put it there keeps its own
                self.replace(holder, alias, wrapper)
        self.wrapped.append(Wrapped(hook, module, target, around, tuple(self.journal[known:])))

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Take our wrappers off while another tool patches the framework, then wrap each target as the tool left it.

        A target that was replaced after us keeps its wrapper. The first target that is gone is raised, after the others were wrapped.
        """
        if self.waiting is not None:  # nested: a tool applies patches one by one inside of applying all
            yield
            return
        self.waiting = []
        removed = [target for target in self.wrapped if target.changes[0].is_ours]
        self.wrapped = [target for target in self.wrapped if not target.changes[0].is_ours]
        changes = [change for target in removed for change in target.changes]
        self.journal = [change for change in self.journal if not any(change is undone for undone in changes)]
        withdraw(changes)
        try:
            yield
        finally:
            waiting, self.waiting = self.waiting, None
            problems = []
            again: list[Callable[[], None]] = [functools.partial(self._wrap_again, target) for target in removed]
            for attach in again + waiting:
                try:
                    attach()
                except Exception as error:
                    problems.append(error)
            if problems:
                raise problems[0]

    def _wrap_again(self, target: Wrapped) -> None:
        try:
            self.wrap(target.hook, target.module, target.target, target.around, rebind=True)
        except AttachError as error:
            self.attached.pop(target.hook.name, None)
            self.failed[target.hook.name] = str(error)
            raise

    def replace(self, owner: Owner, name: str, value: object) -> None:
        """Set one attribute, and log the change."""
        owned = name in vars(owner)
        before = vars(owner)[name] if owned else getattr(owner, name, None)
        setattr(owner, name, value)
        self.journal.append(Replacement(owner, name, before, vars(owner)[name], owned))

    def surround(self, owner: Owner, name: str, handler: Function) -> None:
        """Replace a function, logged: ``handler`` is called with the function and the arguments of the call."""
        original = getattr(owner, name)
        self.replace(owner, name, functools.wraps(original)(lambda *args, **kwargs: handler(original, *args, **kwargs)))

    def undo(self) -> None:
        """Undo all changes, the last first, and raise AttachError for those that could not be undone."""
        problems = withdraw(self.journal)
        for account in (self.journal, self.wrapped, self.attached, self.pending):
            account.clear()
        if problems:
            raise AttachError("; ".join(problems))

    def unfired(self) -> list[str]:
        """Return a sentence for each requested hook that did nothing, failures first."""
        must = {name for name, hook in {**self.pending, **self.attached}.items() if hook.must_fire and not self.is_excused(hook)}
        never = [f"hook {name!r}: {hook.trigger} was never imported" for name, hook in self.pending.items() if name in must]
        idle = [(name, hook) for name, hook in self.attached.items() if name in must and not self.calls[name]]
        return [*self.failed.values(), *never, *(f"hook {name!r}: attached to {hook.trigger}, never called" for name, hook in idle)]

    def excuse(self, *modules: str) -> None:
        """Expect no calls of hooks in these modules, whose training loop does not run."""
        self.excused |= {name for name, hook in {**self.pending, **self.attached}.items() if hook.trigger.startswith(modules)}

    def is_excused(self, hook: Hook) -> bool:
        """Return whether another trainer, or another class of model, runs than the one that a hook is for."""
        running = {other.variant for other in self.attached.values() if self.calls[other.name]} - {""}
        return hook.name in self.excused or bool(hook.variant and running and hook.variant not in running)

    def facts(self) -> dict[str, dict[str, str | int]]:
        """Return hook name to state and number of calls, for the manifest."""
        known = [("pending", self.pending), ("attached", self.attached)]
        states = {name: state for state, hooks in known for name, hook in hooks.items() if not self.is_excused(hook)}
        states |= dict.fromkeys(self.failed, "failed")
        return {name: {"state": state, "calls": self.calls[name]} for name, state in sorted(states.items())}


def withdraw(changes: list[Replacement]) -> list[str]:
    """Undo changes, the last first, and return a sentence for each that could not be undone."""
    problems = []
    for change in reversed(changes):
        if not change.is_ours:
            label = getattr(change.owner, "__qualname__", change.owner.__name__)
            problems.append(f"{label}.{change.name} was replaced by other code after align_hooks wrapped it; it is left alone")
        elif change.owned:
            setattr(change.owner, change.name, change.before)
        else:
            delattr(change.owner, change.name)
    for change in changes:  # modules that imported a wrapper with "from … import …"
        if isinstance(change.owner, ModuleType) and isinstance(change.after, Wrapper):
            for module, alias in _holders(change.after):
                setattr(module, alias, change.before)
    return problems


def find(hook: Hook, module: ModuleType, target: str) -> tuple[Owner, str, Function]:
    """Return the owner of ``module.target``, the name in it, and the target; raises AttachError where there is none."""
    *path, name = target.split(".")
    owner: Owner = module
    for part in path:
        owner = getattr(owner, part, None)
    if not (hasattr(owner, "__dict__") and hasattr(owner, name)):
        raise AttachError(f"hook {hook.name!r}: {module.__name__} has no {target}; run with a version inside {hook.supports}")
    return owner, name, getattr(owner, name)


def _holders(value: object) -> list[tuple[ModuleType, str]]:
    """Return every imported module that holds ``value``, and its name there."""
    modules = [module for module in list(sys.modules.values()) if isinstance(module, ModuleType)]
    return [(module, alias) for module in modules for alias, named in list(vars(module).items()) if named is value]
