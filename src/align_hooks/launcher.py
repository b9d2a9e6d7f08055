"""Start a training script of either side with hooks attached.

A side's ``__main__`` is one call of :func:`launch`. Order matters: settings are checked first, because nothing of the
framework has been imported yet and a problem costs a second; then the interpreter is replaced once where a variable has
to be there at its start; then hooks are registered, and only then does the script run.
"""

from __future__ import annotations

import atexit
import importlib
import os
import sys
from collections.abc import MutableMapping

from align_hooks.errors import AlignHooksError
from align_hooks.hooking.attach import attach
from align_hooks.hooking.script import report, run_script
from align_hooks.launch import Launch
from align_hooks.session import Session, exit_code
from align_hooks.settings import Settings

STARTED = "_ALIGN_HOOKS_STARTED"
"""Set across the one re-execution, so that there is never a second."""


def launch(side: str, arguments: list[str]) -> int:
    """Run ``arguments[0]`` under ``side``'s hooks; returns the exit code for ``sys.exit``."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(
            f"usage: python -m align_hooks.{side}_side SCRIPT [ARGUMENT ...]\n"
            "Switched on by ALIGN_HOOKS_* variables: align-hooks env lists them."
        )
        return 0 if arguments else 2
    try:
        session = begin(side, os.environ, restart=True)
    except AlignHooksError as error:
        report(error)
        return error.exit_code
    try:
        code = run_script(arguments)
    except AlignHooksError as error:
        report(error)
        code = error.exit_code
    if session is None:
        return code
    return exit_code(code, session.finish(failed=code != 0))


def begin(side: str, environment: MutableMapping[str, str], *, restart: bool) -> Session | None:
    """Settings, environment, session and hooks of one process; None when nothing is switched on.

    With ``restart`` the interpreter is replaced where a variable must be there when it starts; without (the import
    form), the record says that it is not effective.
    """
    settings = Settings.from_environment(environment)
    if not settings.any_set():
        return None
    room = importlib.import_module(f"align_hooks.{side}_side.environment")
    wanted = room.variables(settings)
    late = {name for name in room.AT_START if environment.get(name) != wanted.get(name, environment.get(name))}
    changed = {name: value for name, value in wanted.items() if environment.get(name) != value}
    environment.update(changed)
    if late and restart and environment.get(STARTED) != str(os.getpid()):
        environment[STARTED] = str(os.getpid())
        sys.stdout.flush()
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    catalogue = importlib.import_module(f"align_hooks.{side}_side.catalogue")
    session: Session = room.make_session(settings, Launch.from_environment(environment))
    session.facts["environment"] = {name: {"value": value, "effective": name not in late} for name, value in wanted.items()}
    session.begin()
    attach(catalogue.HOOKS, session)
    return session


def attach_on_import(side: str) -> None:
    """The import form: attach now, account at exit. Imported a second time, or with nothing switched on, it does nothing.

    The exit code stays the script's: an exit handler cannot know it. What never happened is said on stderr.
    """
    if side in _attached:
        return
    _attached.add(side)
    try:
        session = begin(side, os.environ, restart=False)
    except AlignHooksError as error:
        report(error)
        sys.exit(error.exit_code)
    if session is not None:
        atexit.register(lambda: exit_code(0, session.finish(failed=getattr(sys, "last_value", None) is not None)))


_attached: set[str] = set()
