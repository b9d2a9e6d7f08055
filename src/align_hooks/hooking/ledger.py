"""The account of every change made to a framework: what was replaced, how often it ran, how to undo it.

Undoing is derived from the journal and never written by hand. An attribute that a class merely inherited is deleted
again, not "restored" into the subclass.

Another tool may patch the same attributes. While it does, our wrappers are off and hooks wait (:meth:`Ledger.lifted`): it sees the
framework alone, decorates or replaces what it likes, and each wrapper goes around the result, once, as if we had come last.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

import wrapt

from align_hooks.errors import AttachError
from align_hooks.hooking.hook import Hook

_ABSENT = object()


class Wrapper(wrapt.FunctionWrapper):  # type: ignore[misc,type-arg,unused-ignore]
    """A wrapt wrapper that pickles by name and copies as itself, like the function that it stands for."""

    def __reduce_ex__(self, protocol: object) -> str:
        return str(self.__wrapped__.__qualname__)

    def __deepcopy__(self, memo: object) -> Wrapper:
        return self


@dataclass(frozen=True, slots=True)
class Change:
    """One attribute replaced: on what, which, before and after, and whether the owner itself held it."""

    owner: Any
    name: str
    before: Any
    after: Any
    owned: bool

    def undo(self) -> None:
        """Put the attribute back; raises AttachError where somebody replaced it after us."""
        if vars(self.owner).get(self.name, _ABSENT) is not self.after:
            raise AttachError(f"{_label(self.owner)}.{self.name} was replaced by other code after align_hooks wrapped it; it is left alone")
        if self.owned:
            setattr(self.owner, self.name, self.before)
        else:
            delattr(self.owner, self.name)


@dataclass(frozen=True, slots=True)
class Wrapped:
    """One target and the wrapper around it, with what it takes to wrap it again."""

    hook: Hook
    module: ModuleType
    target: str
    around: Any
    changes: tuple[Change, ...]

    @property
    def outermost(self) -> bool:
        """Whether nobody replaced it after us."""
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
        self.journal: list[Change] = []
        self.wrapped: list[Wrapped] = []
        self.waiting: list[Callable[[], None]] | None = None

    def wrap(self, hook: Hook, module: ModuleType, target: str, around: Any, *, rebind: bool) -> None:
        """Wrap ``module.target`` once, counting calls.

        ``rebind`` is for a module that was imported before us: names that other modules took from it with ``from …
        import …`` are replaced too.
        """
        owner, name, before = find(hook, module, target)
        if any(change.owner is owner and change.name == name for change in self.journal):
            return

        def counting(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
            self.calls[hook.name] += 1
            return around(wrapped, instance, args, kwargs)

        homes = owner.__mro__ if isinstance(owner, type) else (owner,)
        raw: Any = next(
            (vars(home)[name] for home in homes if name in vars(home)), before
        )  # a staticmethod or classmethod, where it is one
        wrapper, known = Wrapper(raw, counting), len(self.journal)
        self.replace(owner, name, wrapper)
        if rebind and owner is module:
            for other, alias in _holders(before):
                if other is module or other.__name__ != getattr(before, "__module__", None):  # the tool that put it there keeps its own
                    self.replace(other, alias, wrapper)
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
        ours, self.wrapped = [one for one in self.wrapped if one.outermost], [one for one in self.wrapped if not one.outermost]
        changes = [change for one in ours for change in one.changes]
        self.journal = [change for change in self.journal if not any(change is one for one in changes)]
        withdraw(changes)
        try:
            yield
        finally:
            waiting, self.waiting = self.waiting, None
            steps: list[Callable[[], None]] = [*(partial(self._again, one) for one in ours), *waiting]
            problems = []
            for step in steps:
                try:
                    step()
                except Exception as error:
                    problems.append(error)
            if problems:
                raise problems[0]

    def _again(self, one: Wrapped) -> None:
        try:
            self.wrap(one.hook, one.module, one.target, one.around, rebind=True)
        except AttachError as error:
            self.attached.pop(one.hook.name, None)
            self.failed[one.hook.name] = str(error)
            raise

    def replace(self, owner: Any, name: str, value: Any) -> Any:
        """Set one attribute, journalled; returns what was there (None where nothing was)."""
        owned = name in vars(owner)
        before = vars(owner)[name] if owned else getattr(owner, name, None)
        setattr(owner, name, value)
        self.journal.append(Change(owner, name, before, vars(owner)[name], owned))
        return before

    def undo(self) -> None:
        """Undo all changes, the last first; raises AttachError after trying every one."""
        problems = withdraw(self.journal)
        self.journal.clear()
        self.wrapped.clear()
        self.attached.clear()
        self.pending.clear()
        if problems:
            raise AttachError("; ".join(problems))

    def unfired(self) -> list[str]:
        """Why hooks that were asked for did nothing, one sentence each, failures first; empty when all is well."""
        never = [f"hook {name!r}: {hook.trigger} was never imported" for name, hook in self.pending.items() if hook.must_fire]
        idle = [
            f"hook {name!r}: attached to {hook.trigger}, never called"
            for name, hook in self.attached.items()
            if hook.must_fire and not self.calls[name]
        ]
        return [*self.failed.values(), *never, *idle]

    def facts(self) -> dict[str, Any]:
        """As a manifest keeps them: hook name to its state and number of calls."""
        states = dict.fromkeys(self.pending, "pending") | dict.fromkeys(self.attached, "attached")
        states |= dict.fromkeys(self.failed, "failed")
        return {name: {"state": state, "calls": self.calls[name]} for name, state in sorted(states.items())}


def withdraw(changes: list[Change]) -> list[str]:
    """Undo changes, the last first; returns what could not be undone, after trying every one."""
    problems = []
    for change in reversed(changes):
        try:
            change.undo()
        except AttachError as error:
            problems.append(str(error))
    for change in changes:  # names that other modules took from ours with "from … import …"
        if isinstance(change.owner, ModuleType) and isinstance(change.after, Wrapper):
            for other, alias in _holders(change.after):
                setattr(other, alias, change.before)
    return problems


def find(hook: Hook, module: ModuleType, target: str) -> tuple[Any, str, Any]:
    """Who holds ``module.target``, under which name, and what it is; raises AttachError where it is not there."""
    *path, name = target.split(".")
    owner: Any = module
    for part in path:
        owner = getattr(owner, part, None)
    before = getattr(owner, name, _ABSENT) if hasattr(owner, "__dict__") else _ABSENT
    if before is _ABSENT:
        raise AttachError(f"hook {hook.name!r}: {module.__name__} has no {target}; run with a version inside {hook.supports}")
    return owner, name, before


def _holders(value: object) -> list[tuple[ModuleType, str]]:
    """Every module that holds ``value`` itself, and the name it holds it under."""
    modules = [module for module in list(sys.modules.values()) if isinstance(module, ModuleType)]
    return [(module, alias) for module in modules for alias, held in list(vars(module).items()) if held is value]


def _label(owner: Any) -> str:
    return getattr(owner, "__qualname__", None) or getattr(owner, "__name__", None) or repr(owner)
