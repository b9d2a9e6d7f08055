"""Attach hooks when the module that defines their seam has been imported, before anyone can copy the name.

A hook that cannot be attached stops the import that triggered it, and is remembered as failed: the import system would
let a second import of the same module succeed unhooked.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any, Protocol

import wrapt
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from align_hooks.errors import AlignHooksError, UnsupportedVersion
from align_hooks.hooking.hook import Hook
from align_hooks.hooking.ledger import Ledger
from align_hooks.settings import Settings

VERSION_MODULES = {
    "megatron-core": "megatron.core.package_info",
    "mindformers": "mindformers",
    "mindspore": "mindspore.version",
    "torch": "torch.version",
}
"""Where a package says its version. A source checkout on PYTHONPATH has no installed metadata, so metadata is not asked."""


class Attached(Protocol):
    """What hook bodies are handed; the sessions of both sides fit."""

    @property
    def settings(self) -> Settings:
        """What was asked."""

    @property
    def ledger(self) -> Ledger:
        """The account of changes."""


def attach(hooks: Iterable[Hook], session: Attached) -> None:
    """Register every hook that the settings ask for; raises at once where a module imported earlier does not fit."""
    asked = [hook for hook in hooks if hook.asked(session.settings)]
    session.ledger.pending.update((hook.name, hook) for hook in asked)
    for hook in asked:
        late = hook.trigger in sys.modules
        wrapt.register_post_import_hook(_on_import(hook, session, late=late), hook.trigger)


def _on_import(hook: Hook, session: Attached, *, late: bool) -> Callable[[ModuleType], None]:
    def on_import(module: ModuleType) -> None:
        ledger = session.ledger
        if hook.name not in ledger.pending:  # undone, or a reload
            return
        if hook.targets and ledger.waiting is not None:  # another tool is patching: its names are bound by then, as for a late module
            ledger.waiting.append(functools.partial(_on_import(hook, session, late=True), module))
            return
        try:
            check_version(hook)
            if hook.targets:
                around = _when_first_called(hook, session)
                for target in hook.targets:
                    ledger.wrap(hook, module, target, around, rebind=late)
            else:
                load(hook.body)(session, module)
                ledger.calls[hook.name] += 1
        except Exception as error:  # whatever it is, it is told: here, and by the exit code even if the framework swallows it
            expected = isinstance(error, AlignHooksError)
            ledger.failed[hook.name] = str(error) if expected else f"hook {hook.name!r} could not be attached: {error!r}"
            raise
        finally:
            del ledger.pending[hook.name]
        ledger.attached[hook.name] = hook

    return on_import


def _when_first_called(hook: Hook, session: Attached) -> Callable[..., Any]:
    """The body's wrapper, loaded at its first call: at the trigger's import the framework may be half imported itself."""
    loaded: list[Callable[..., Any]] = []

    def around(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        if not loaded:
            loaded.append(load(hook.body)(session))
        return loaded[0](wrapped, instance, args, kwargs)

    return around


def installed_version(package: str) -> str:
    """The version of a framework that is importable here, as it states it itself; MindFormers 1.3.0 says r1.3.0, the name of a branch.

    megatron-core adds the commit of the repository that it lies in, which of an installed one is whatever holds the environment.
    """
    module = importlib.import_module(VERSION_MODULES[package])
    said = str(getattr(module, "__version__", None) or module.version).removeprefix("r")
    installed = package == "megatron-core" and "site-packages" in (module.__file__ or "")
    return said.partition("+")[0] if installed else said


def check_version(hook: Hook) -> None:
    """Raise UnsupportedVersion where the installed framework is outside ``hook.supports``, if it says its version at all."""
    if not hook.supports:
        return
    found = installed_version(hook.package)
    try:
        inside = SpecifierSet(hook.supports).contains(Version(found).base_version)
    except InvalidVersion:
        inside = False
    if not inside:
        raise UnsupportedVersion(
            f"hook {hook.name!r} was proven on {hook.package} {hook.supports}, found {found}; install a version in that range"
        )


def load(body: str) -> Any:
    """The function that ``"package.module:function"`` names."""
    module, _, function = body.partition(":")
    return getattr(importlib.import_module(module), function)
