"""Start a training script of either side with hooks attached.

A side's ``__main__`` is one call of :func:`launch`. Order matters: settings are checked first, because nothing of the
framework has been imported yet and a problem costs a second; then that the script is there, before a run directory is
claimed for it; then the interpreter is replaced once where a variable has to be there at its start; then hooks are
registered, and only then does the script run.
"""

from __future__ import annotations

import atexit
import importlib
import os
import sys
from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from align_hooks.errors import AlignHooksError
from align_hooks.hooking.script import die_of_interrupt, find_script, report, run_script
from align_hooks.launch import Launch
from align_hooks.settings import Settings

if TYPE_CHECKING:
    from align_hooks.session import Session

STARTED = "_ALIGN_HOOKS_STARTED"
"""Set across the one re-execution, so that there is never a second."""


def launch(side: str, arguments: list[str]) -> int:
    """Run ``arguments[0]`` under ``side``'s hooks; returns the exit code for ``sys.exit``."""
    if not arguments or arguments[0] in ("-h", "--help"):
        usage = f"usage: python -m align_hooks.{side}_side SCRIPT [ARGUMENT ...]"
        print(f"{usage}\nSwitched on by ALIGN_HOOKS_* variables: align-hooks env lists them.", file=sys.stdout if arguments else sys.stderr)
        return 0 if arguments else 2
    atexit.register(die_of_interrupt)  # before the script registers anything, so that it is the last to run
    try:
        settings = Settings.from_environment(os.environ)
        find_script(arguments[0])
        session = begin(side, settings, os.environ, restart=True)
    except AlignHooksError as error:
        report(error)
        return error.exit_code
    code = run_script(arguments)
    return code if session is None else _account(session, code)


def _account(session: Session, code: int) -> int:
    from align_hooks.session import exit_code

    return exit_code(code, session.finish(failed=code != 0))


def begin(side: str, settings: Settings, environment: MutableMapping[str, str], *, restart: bool) -> Session | None:
    """Environment, session and hooks of one process; None when nothing is switched on.

    With ``restart`` the interpreter is replaced where a variable must be there when it starts; without (the import
    form), the record says that it is not effective.
    """
    if not settings.any_set():
        return None
    room = importlib.import_module(f"align_hooks.{side}_side.environment")
    wanted = room.variables(settings)
    changed = {name: value for name, value in wanted.items() if environment.get(name) != value}
    too_late = set(room.AT_START) & changed.keys()
    environment.update(changed)
    again = environment.pop(STARTED, None) == str(os.getpid())
    if too_late and restart and not again:
        environment[STARTED] = str(os.getpid())
        sys.stdout.flush()
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    if sys.flags.ignore_environment:
        too_late |= set(room.AT_START) & wanted.keys()
    if any(name in sys.modules for name in room.FRAMEWORK):
        too_late |= changed.keys()
    catalogue = importlib.import_module(f"align_hooks.{side}_side.catalogue")
    attach = importlib.import_module("align_hooks.hooking.attach").attach
    session: Session = room.make_session(settings, Launch.from_environment(environment))
    session.facts["environment"] = {name: {"value": value, "effective": name not in too_late} for name, value in wanted.items()}
    session.begin()
    attach(catalogue.HOOKS, session)
    return session


def attach_on_import(side: str) -> None:
    """The import form: attach now, account at exit. Imported a second time, or with nothing switched on, it does nothing.

    A worker process that imports the script again is left alone. The exit code stays the script's: an exit handler
    cannot know it. What never happened is said on stderr.
    """
    import multiprocessing  # not above: it would take the launcher, not the script, for the main module of its workers

    if side in _attached or multiprocessing.current_process().name != "MainProcess":
        return
    _attached.add(side)
    try:
        session = begin(side, Settings.from_environment(os.environ), os.environ, restart=False)
    except AlignHooksError as error:
        report(error)
        sys.exit(error.exit_code)
    if session is not None:
        atexit.register(_account_at_exit, session)


def _account_at_exit(session: Session) -> None:
    _account(session, 1 if getattr(sys, "last_value", None) is not None else 0)


_attached: set[str] = set()
