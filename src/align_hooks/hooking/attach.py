"""Attach hooks when the module that defines their seam has been imported, before anyone can copy the name.

A hook that cannot be attached stops the import that triggered it, and is remembered as failed: the import system would
let a second import of the same module succeed unhooked.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.metadata
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Protocol

import wrapt
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from align_hooks.errors import AlignHooksError, UnsupportedVersion
from align_hooks.hooking.guard import Survivor, guarded
from align_hooks.hooking.hook import Args, Function, Hook, Instance, Kwargs, Result
from align_hooks.hooking.ledger import Ledger
from align_hooks.settings import Settings

VERSION_MODULES = {
    "megatron-core": "megatron.core.package_info",
    "mindformers": "mindformers",
    "mindspore": "mindspore.version",
    "torch": "torch.version",
}
"""The module of a package that states its version. A source checkout on PYTHONPATH has no installed metadata, so metadata is asked of
:data:`UNBREAKABLE` alone."""
UNBREAKABLE = ("mindspore",)
"""Packages whose import cannot be broken off: MindSpore's compiled parts then end the process with a segmentation fault when it exits."""
UNKNOWN_VERSION = "unknown"
"""The version of an imported package that states none."""


class Attached(Survivor, Protocol):
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
    for hook in asked:
        if hook.package in UNBREAKABLE and hook.package not in sys.modules:
            refuse_unsupported(hook, metadata_version(hook.package))
    session.ledger.pending.update((hook.name, hook) for hook in asked)
    for hook in asked:
        late = hook.trigger in sys.modules
        wrapt.register_post_import_hook(functools.partial(_on_import, hook, session, late), hook.trigger)


def offer(hooks: Iterable[Hook], session: Attached) -> None:
    """Have hooks that only add a name add it, in a script where nothing is switched on: with no account, and not where it does not fit."""
    for hook in hooks:
        wrapt.register_post_import_hook(functools.partial(_on_offer, hook, session), hook.trigger)


def _on_offer(hook: Hook, session: Attached, module: ModuleType) -> None:
    """Add a name to the module of its trigger, where the framework is of a version on which that was proven."""
    with contextlib.suppress(UnsupportedVersion):
        check_version(hook)
        load(hook.body)(session, module)


def _on_import(hook: Hook, session: Attached, late: bool, module: ModuleType) -> None:
    """Attach a hook to the module of its trigger; ``late`` where the module was imported before the hook was registered."""
    ledger = session.ledger
    if hook.name not in ledger.pending:  # undone, or a reload
        return
    if hook.targets and ledger.waiting is not None:  # another tool is patching: its names are bound by then, as for a late module
        ledger.waiting.append(functools.partial(_on_import, hook, session, True, module))
        return
    try:
        check_version(hook)
        for target in hook.targets:
            ledger.wrap(hook, module, target, functools.partial(_around, hook, session), rebind=late)
        if not hook.targets:
            load(hook.body)(session, module)
            ledger.calls[hook.name] += 1
    except Exception as error:  # of any kind: it is told here, and by the exit code even if the framework swallows it
        expected = isinstance(error, AlignHooksError)
        ledger.failed[hook.name] = str(error) if expected else f"hook {hook.name!r} could not be attached: {error!r}"
        raise
    finally:
        del ledger.pending[hook.name]
    ledger.attached[hook.name] = hook


def _around(hook: Hook, session: Attached, wrapped: Function, instance: Instance, args: Args, kwargs: Kwargs) -> Result:
    """Call a hook's body, which is loaded at its first call: at the trigger's import the framework may be half imported itself."""

    def body(function: Function, *call: Instance | Args | Kwargs) -> Result:
        return load(hook.body)(session, function, *call)

    if hook.in_step:
        return guarded(body, session, wrapped, instance, args, kwargs)
    return body(wrapped, instance, args, kwargs)


def installed_version(package: str) -> str:
    """The version of a framework that can be imported, as the framework states it; MindFormers 1.3.0 says r1.3.0, the name of a branch.

    megatron-core adds a commit of the repository in which it lies. An installed package lies in the repository, if any, around the
    environment, so its commit is left out.
    """
    module = importlib.import_module(VERSION_MODULES[package])
    version = str(getattr(module, "__version__", None) or module.version).removeprefix("r")
    installed = package == "megatron-core" and "site-packages" in (module.__file__ or "")
    return version.partition("+")[0] if installed else version


def metadata_version(package: str) -> str | None:
    """The version of an installed package by its metadata, for which nothing of it is imported; None without any."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def versions_beside(packages: Iterable[str]) -> dict[str, str]:
    """The versions of those packages, by the names of their modules, that this process has imported; nothing is imported for it.

    A module of no file is none: MindSpeed puts some in the place of packages that an NPU does not have.
    """
    imported = {name: sys.modules[name] for name in packages if getattr(sys.modules.get(name), "__file__", None)}
    return {name: _version(name, module) for name, module in imported.items()}


def _version(name: str, module: ModuleType) -> str:
    """The version that a module states, or that of the installation that it lies in; ``unknown`` of a checkout on PYTHONPATH.

    A checkout has no metadata, and those of another installation may be of another version.
    """
    stated = getattr(module, "__version__", None)
    if stated:
        return str(stated)
    try:
        installed = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return UNKNOWN_VERSION
    place, editable = Path(str(module.__file__)).parent, installed.read_text("direct_url.json") or ""
    lies_there = place == Path(str(installed.locate_file(name))) or f'"file://{place.parent}"' in editable
    return installed.version if lies_there else UNKNOWN_VERSION


def check_version(hook: Hook) -> None:
    """Raise UnsupportedVersion where the installed framework is outside ``hook.supports``, if it says its version at all."""
    if hook.supports:
        refuse_unsupported(hook, installed_version(hook.package))


def refuse_unsupported(hook: Hook, version: str | None) -> None:
    """Raise UnsupportedVersion where a framework's version is outside ``hook.supports``; None is not known, and no reason."""
    if not hook.supports or version is None:
        return
    try:
        inside = SpecifierSet(hook.supports).contains(Version(version).base_version)
    except InvalidVersion:
        inside = False
    if not inside:
        raise UnsupportedVersion(
            f"hook {hook.name!r} was proven on {hook.package} {hook.supports}, found {version}; install a version in that range"
        )


@functools.cache
def load(body: str) -> Function:
    """The function that ``"package.module:function"`` names."""
    module, _, name = body.partition(":")
    function: Function = getattr(importlib.import_module(module), name)
    return function
