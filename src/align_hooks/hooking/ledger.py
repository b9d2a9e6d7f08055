"""The account of every change made to a framework: what was replaced, how often it ran, how to undo it.

Undoing is derived from the journal and never written by hand. An attribute that a class merely inherited is deleted
again, not "restored" into the subclass.

Another tool may patch the same attributes. While it does, our wrappers are off and hooks wait (:meth:`Ledger.lifted`). The tool sees the
framework alone, and decorates or replaces what it likes. Each wrapper then goes around the result, once, as if we had come last.
"""

from __future__ import annotations

import functools
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeAlias

import wrapt

from align_hooks.errors import AttachError
from align_hooks.hooking.hook import Args, Around, Function, Hook, Instance, Kwargs, Result

_ABSENT = object()
Owner: TypeAlias = Any
"""A module or a class of a framework, which holds the attribute that a hook replaces."""


class Wrapper(wrapt.FunctionWrapper):  # type: ignore[misc,type-arg,unused-ignore]
    """A wrapt wrapper that pickles by name and copies as itself, like the function that it stands for."""

    def __reduce_ex__(self, protocol: object) -> str:
        return str(self.__wrapped__.__qualname__)

    def __deepcopy__(self, memo: object) -> Wrapper:
        return self


@dataclass(frozen=True, slots=True)
class Replacement:
    """One attribute replaced: on what, which, before and after, and whether the owner itself held it."""

    owner: Owner
    name: str
    before: object
    after: object
    owned: bool

    def undo(self) -> None:
        """Put the attribute back; raises AttachError where somebody replaced it after us."""
        if vars(self.owner).get(self.name, _ABSENT) is not self.after:
            label = getattr(self.owner, "__qualname__", self.owner.__name__)
            raise AttachError(f"{label}.{self.name} was replaced by other code after align_hooks wrapped it; it is left alone")
        if self.owned:
            setattr(self.owner, self.name, self.before)
        else:
            delattr(self.owner, self.name)


@dataclass(frozen=True, slots=True)
class Wrapped:
    """A target with the wrapper around it and the arguments that wrap it again."""

    hook: Hook
    module: ModuleType
    target: str
    around: Around
    changes: tuple[Replacement, ...]

    @property
    def outermost(self) -> bool:
        """Whether nobody replaced the target after us."""
        first = self.changes[0]
        return vars(first.owner).get(first.name) is first.after


class Ledger:
    """Hooks pending (trigger not imported yet), attached and failed; calls per hook; the journal of changes; what is wrapped.

    ``waiting`` are attachments that came while the wrappers were lifted, None where they are on.
    """

    def __init__(self) -> None:
        self.pending: dict[str, Hook] = {}
        self.attached: dict[str, Hook] = {}
        self.failed: dict[str, str] = {}
        self.calls: Counter[str] = Counter()
        self.journal: list[Replacement] = []
        self.wrapped: list[Wrapped] = []
        self.waiting: list[Callable[[], None]] | None = None

    def wrap(self, hook: Hook, module: ModuleType, target: str, around: Around, *, rebind: bool) -> None:
        """Wrap ``module.target`` once, counting calls.

        ``rebind`` is for a module that was imported before us: names that other modules took from it with ``from …
        import …`` are replaced too.
        """
        owner, name, before = find(hook, module, target)
        if any(change.owner is owner and change.name == name for change in self.journal):
            return

        def counting(wrapped: Function, instance: Instance, args: Args, kwargs: Kwargs) -> Result:
            self.calls[hook.name] += 1
            return around(wrapped, instance, args, kwargs)

        homes = (vars(home) for home in (owner.__mro__ if isinstance(owner, type) else (owner,)))
        raw = next((home[name] for home in homes if name in home), before)  # a staticmethod or classmethod, where the target is one
        wrapper, known = Wrapper(raw, counting), len(self.journal)
        self.replace(owner, name, wrapper)
        for holder, alias in _holders(before) if rebind and owner is module else ():
            if holder is module or holder.__name__ != getattr(before, "__module__", None):  # the tool that put it there keeps its own
                self.replace(holder, alias, wrapper)
        self.wrapped.append(Wrapped(hook, module, target, around, tuple(self.journal[known:])))

    @contextmanager
    def lifted(self) -> Iterator[None]:
        """Take every wrapper off while another tool patches the framework; afterwards wrap each target as it then is.

        A target that somebody else replaced after us is left as it is. Where a target is gone afterwards that is remembered and
        raised, after the others were wrapped.
        """
        if self.waiting is not None:  # lifted already: patches are applied one by one inside of all of them
            yield
            return
        self.waiting = []
        lifted = [target for target in self.wrapped if target.outermost]
        self.wrapped = [target for target in self.wrapped if not target.outermost]
        changes = [change for target in lifted for change in target.changes]
        self.journal = [change for change in self.journal if not any(change is undone for undone in changes)]
        withdraw(changes)
        try:
            yield
        finally:
            waiting, self.waiting = self.waiting, None
            steps: list[Callable[[], None]] = [*(functools.partial(self._again, target) for target in lifted), *waiting]
            problems = []
            for step in steps:
                try:
                    step()
                except Exception as error:
                    problems.append(error)
            if problems:
                raise problems[0]

    def _again(self, lifted: Wrapped) -> None:
        """Wrap a target again that was lifted."""
        try:
            self.wrap(lifted.hook, lifted.module, lifted.target, lifted.around, rebind=True)
        except AttachError as error:
            self.attached.pop(lifted.hook.name, None)
            self.failed[lifted.hook.name] = str(error)
            raise

    def replace(self, owner: Owner, name: str, value: object) -> None:
        """Set one attribute, journalled."""
        owned = name in vars(owner)
        before = vars(owner)[name] if owned else getattr(owner, name, None)
        setattr(owner, name, value)
        self.journal.append(Replacement(owner, name, before, vars(owner)[name], owned))

    def surround(self, owner: Owner, name: str, body: Function) -> None:
        """Put ``body`` in the place of a function, journalled; it is called with the function and the arguments of the call."""
        original = getattr(owner, name)
        self.replace(owner, name, functools.wraps(original)(lambda *args, **kwargs: body(original, *args, **kwargs)))

    def undo(self) -> None:
        """Undo all changes, the last first; raises AttachError after trying every one."""
        problems = withdraw(self.journal)
        for account in (self.journal, self.wrapped, self.attached, self.pending):
            account.clear()
        if problems:
            raise AttachError("; ".join(problems))

    def unfired(self) -> list[str]:
        """Why hooks that were asked for did nothing, one sentence each, failures first; empty when all is well."""
        never = [f"hook {name!r}: {hook.trigger} was never imported" for name, hook in self.pending.items() if hook.must_fire]
        idle = [(name, hook) for name, hook in self.attached.items() if hook.must_fire and not self.calls[name]]
        return [*self.failed.values(), *never, *(f"hook {name!r}: attached to {hook.trigger}, never called" for name, hook in idle)]

    def facts(self) -> dict[str, dict[str, str | int]]:
        """As a manifest keeps them: hook name to its state and number of calls."""
        states = dict.fromkeys(self.pending, "pending") | dict.fromkeys(self.attached, "attached") | dict.fromkeys(self.failed, "failed")
        return {name: {"state": state, "calls": self.calls[name]} for name, state in sorted(states.items())}


def withdraw(changes: list[Replacement]) -> list[str]:
    """Undo changes, the last first; returns what could not be undone, after trying every one."""
    problems = []
    for change in reversed(changes):
        try:
            change.undo()
        except AttachError as error:
            problems.append(str(error))
    for change in changes:  # names that other modules took from ours with "from … import …"
        if isinstance(change.owner, ModuleType) and isinstance(change.after, Wrapper):
            for module, alias in _holders(change.after):
                setattr(module, alias, change.before)
    return problems


def find(hook: Hook, module: ModuleType, target: str) -> tuple[Owner, str, Function]:
    """Who holds ``module.target``, under which name, and the target itself; raises AttachError where it is not there."""
    *path, name = target.split(".")
    owner: Owner = module
    for part in path:
        owner = getattr(owner, part, None)
    if not (hasattr(owner, "__dict__") and hasattr(owner, name)):
        raise AttachError(f"hook {hook.name!r}: {module.__name__} has no {target}; run with a version inside {hook.supports}")
    return owner, name, getattr(owner, name)


def _holders(value: object) -> list[tuple[ModuleType, str]]:
    """Every module that holds ``value`` itself, and the name under which it does."""
    modules = [module for module in list(sys.modules.values()) if isinstance(module, ModuleType)]
    return [(module, alias) for module in modules for alias, named in list(vars(module).items()) if named is value]
