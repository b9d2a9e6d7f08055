"""Attach hooks when the module of their patch point has been imported, before another module can copy the name.

A hook that cannot be attached stops that import, and is logged as failed: a second import of the module would succeed, unhooked.
"""

import contextlib
import functools
import importlib
import importlib.metadata
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Protocol, cast

import wrapt
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from align_hooks.errors import AlignHooksError, UnsupportedVersion
from align_hooks.hooking.guard import Survivor, guarded
from align_hooks.hooking.hook import Args, Function, Hook, Instance, Kwargs, Result
from align_hooks.hooking.patch_log import PatchLog
from align_hooks.settings import Settings

VERSION_MODULES = {
    "megatron-bridge": "megatron.bridge.package_info",
    "megatron-core": "megatron.core.package_info",
    "mindformers": "mindformers",
    "mindspore": "mindspore.version",
    "torch": "torch.version",
}
"""Package to the module that states its version, as a source checkout on PYTHONPATH has no metadata."""
UNBREAKABLE = ("mindspore",)
"""Packages whose import must not be stopped, or the process ends with a segmentation fault: metadata must do."""


class Attached(Survivor, Protocol):
    """The part of a side's session that handlers need."""

    settings: Settings
    patch_log: PatchLog


def attach(hooks: Iterable[Hook], session: Attached) -> None:
    """Register every hook that the settings ask for; raises at once where a module that is already imported does not fit."""
    asked = [hook for hook in hooks if hook.asked(session.settings)]
    for hook in asked:
        if hook.package in UNBREAKABLE and hook.package not in sys.modules:
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                check_version(hook, importlib.metadata.version(hook.package))
    session.patch_log.pending.update((hook.name, hook) for hook in asked)
    for hook in asked:
        if not hook.behind:
            _register(hook, session)


def _register(hook: Hook, session: Attached) -> None:
    """Have a hook attached when its trigger is imported, or at once."""
    late = hook.trigger in sys.modules
    wrapt.register_post_import_hook(functools.partial(_on_import, hook, session, late), hook.trigger)


def register_optional(hooks: Iterable[Hook], session: Attached) -> None:
    """Register hooks that only add a name, without logging them, and without an error on an unsupported version."""
    for hook in hooks:
        wrapt.register_post_import_hook(functools.partial(_add_name, hook, session), hook.trigger)


def _add_name(hook: Hook, session: Attached, module: ModuleType) -> None:
    with contextlib.suppress(UnsupportedVersion):
        check_version(hook)
        load(hook.handler)(session, module)


def _on_import(hook: Hook, session: Attached, late: bool, module: ModuleType) -> None:
    """Attach a hook to its trigger ``module``; ``late`` where that was imported before the hook was registered."""
    log = session.patch_log
    if hook.name not in log.pending:  # undone, or a reload
        return
    if hook.targets and log.waiting is not None:  # another tool patches, and has bound names by the time we attach
        log.waiting.append(functools.partial(_on_import, hook, session, True, module))
        return
    try:
        check_version(hook)
        for target in hook.targets:
            log.wrap(hook, module, target, functools.partial(_around, hook, session), rebind=late)
        if not hook.targets:
            load(hook.handler)(session, module)
            log.calls[hook.name] += 1
    except Exception as error:  # logged, so that the exit code says so even if the framework swallows the error
        expected = isinstance(error, AlignHooksError)
        log.failed[hook.name] = str(error) if expected else f"hook {hook.name!r} could not be attached: {error!r}"
        raise
    finally:
        del log.pending[hook.name]
    log.attached[hook.name] = hook
    for next_one in [other for other in log.pending.values() if other.behind == hook.name]:
        _register(next_one, session)


def attach_to(hook: Hook, session: Attached, owner: type, name: str) -> None:
    """Attach a hook, once more, to a method of a class that overrides its target."""
    if name in vars(owner) and not any(change.owner is owner and change.name == name for change in session.patch_log.journal):
        module = cast("ModuleType", SimpleNamespace(__name__=owner.__module__, **{owner.__name__: owner}))
        session.patch_log.wrap(hook, module, f"{owner.__name__}.{name}", functools.partial(_around, hook, session), rebind=False)


def _around(hook: Hook, session: Attached, wrapped: Function, instance: Instance, args: Args, kwargs: Kwargs) -> Result:
    """Call a hook's handler in the place of ``wrapped``."""

    def handler(function: Function, *call: Instance | Args | Kwargs) -> Result:
        return load(hook.handler)(session, function, *call)  # not earlier: the framework may be half imported at the trigger

    if hook.in_step:
        return guarded(handler, session, wrapped, instance, args, kwargs)
    return handler(wrapped, instance, args, kwargs)


def installed_version(package: str) -> str:
    """Import a framework, and return the version that it states."""
    module = importlib.import_module(VERSION_MODULES[package])
    version = str(getattr(module, "__version__", None) or module.version).removeprefix("r")  # MindFormers 1.3.0 says r1.3.0, a branch
    # megatron-core adds the commit of the repository around it; that of an installed one is whatever repository holds the environment
    installed = package == "megatron-core" and "site-packages" in (module.__file__ or "")
    return version.partition("+")[0] if installed else version


def versions_beside(packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of those ``packages`` that this process has imported, by module name."""
    # MindSpeed puts modules without a file in the place of packages that an NPU does not have
    imported = {name: sys.modules[name] for name in packages if getattr(sys.modules.get(name), "__file__", None)}
    return {name: _version(name, module) for name, module in imported.items()}


def _version(name: str, module: ModuleType) -> str:
    """Return the version that a module states, or that of the installation in which it lies; ``unknown`` for a checkout on PYTHONPATH."""
    if stated := getattr(module, "__version__", None):
        return str(stated)
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        installed = importlib.metadata.distribution(name)
        # the metadata may be of another installation, of another version
        folder, editable = Path(str(module.__file__)).parent, installed.read_text("direct_url.json") or ""
        if folder == Path(str(installed.locate_file(name))) or f'"file://{folder.parent}"' in editable:
            return installed.version
    return "unknown"


def check_version(hook: Hook, version: str = "") -> None:
    """Raise UnsupportedVersion where ``version``, by default that of the framework, which is imported, is outside ``hook.supports``."""
    if not hook.supports:
        return
    version = version or installed_version(hook.package)
    try:
        inside = SpecifierSet(hook.supports).contains(Version(version).base_version)
    except InvalidVersion:
        inside = False
    if not inside:
        raise UnsupportedVersion(
            f"hook {hook.name!r} was proven on {hook.package} {hook.supports}, found {version}; install a version in that range"
        )


@functools.cache
def load(path: str) -> Function:
    """Import the function that ``"package.module:function"`` names."""
    module, _, name = path.partition(":")
    function: Function = getattr(sys.modules.get(module) or importlib.import_module(module), name)  # the second takes longer in every call
    return function
