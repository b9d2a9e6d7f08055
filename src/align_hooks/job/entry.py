"""Start a training script of either side with hooks attached: a side's ``__main__`` calls :func:`launch`.

The order matters: settings are checked first, while nothing is imported and a problem costs a second; the script is found before a run
directory is claimed; the interpreter is replaced, where a variable must be set when it starts; hooks are registered; the script runs.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import sys
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, TypeAlias

from msgspec.structs import replace

from align_hooks.errors import AlignHooksError, SettingsError
from align_hooks.hooking.attach import attach, register_optional
from align_hooks.hooking.hook import Hook
from align_hooks.job import parsed_arguments
from align_hooks.job.witness import JobWitness
from align_hooks.process import limit
from align_hooks.process.command import started
from align_hooks.process.ranks import SCHEDULER, Launch
from align_hooks.process.script import die_of_interrupt, find_script, report, run_script
from align_hooks.process.status import REFUSED, VARIABLE, tell
from align_hooks.process.streams import flush, hold, say
from align_hooks.settings import Settings

if TYPE_CHECKING:
    from align_hooks.session import Session

ExceptHook: TypeAlias = Callable[[type[BaseException], BaseException, TracebackType | None], object]

STARTED = "_ALIGN_HOOKS_STARTED"
"""Set across the re-execution, so that there is never a second."""
AT_START = ("PYTHONHASHSEED",)
"""Variables that an interpreter reads only when it starts."""
BEGINNING = ("arguments", "config", "pynative_config")
"""The hooks that see whether a process is going to train."""


def launch(side: str, arguments: list[str]) -> int:
    """Run the script ``arguments[0]`` under a side's hooks, and return its exit code."""
    if not arguments or arguments[0] in ("-h", "--help"):
        usage = f"usage: python -m align_hooks.{side}_side SCRIPT [ARGUMENT ...]"
        say(f"{usage}\nSwitched on by ALIGN_HOOKS_* variables: align-hooks env lists them.", sys.stdout if arguments else sys.stderr)
        return 0 if arguments else 2
    if not parsed_arguments.asked():
        _attached.add(side)  # what `align-hooks run` attaches when the framework is imported would be a second session
    atexit.register(die_of_interrupt)  # before the script registers anything, so that it is the last to run
    try:
        settings = Settings.from_environment(os.environ)
        find_script(arguments[0])
        session = begin(side, settings, os.environ, restart=True)
    except AlignHooksError as error:
        report(error)
        return error.exit_code
    code = run_script(arguments)
    return code if session is None or os.getpid() != session.process else _account(session, code)  # a fork's end is not the run's


def _account(session: Session, code: int, *, by_run: bool = False) -> int:
    """Close a session that began, report it to ``align-hooks run``, and return the exit code.

    ``by_run``: ``align-hooks run`` prints the problems, as it knows the exit code of a script that calls ``sys.exit``.
    """
    from align_hooks.session.accounting import ended, exit_code, failure, finish

    error = getattr(sys, "last_value", None)
    failed = failure(session, code, error)
    problems = finish(session, failed) if session.begun else []
    if isinstance(error, AlignHooksError):
        tell(session.side, session.launch.rank, began=session.begun, ended=REFUSED, problems=str(error).splitlines())
    elif session.begun:
        how = failed or (ended(session, None) if session.recording.writer else None)
        is_failure = failed is not None and failed.form != "interrupted"
        tell(session.side, session.launch.rank, began=True, ended=str(how or "ended"), failed=is_failure, problems=problems)
    else:
        tell(session.side, session.launch.rank, ended="left alone, as it did not train")
    return code if by_run else exit_code(code, problems)


def side_environment(side: str) -> ModuleType:
    """Return a side's ``environment`` module."""
    return importlib.import_module(f"align_hooks.{side}_side.environment")


def variables(side: str, settings: Settings) -> dict[str, str]:
    """Return the variables that the settings need in the environment of a process of ``side``."""
    wanted = {"PYTHONHASHSEED": str(settings.seed or 0)} if settings.seed is not None or settings.deterministic else {}
    return wanted | (side_environment(side).DETERMINISTIC if settings.deterministic else {})


def begin(side: str, settings: Settings, environment: MutableMapping[str, str], *, restart: bool, lazily: bool = False) -> Session | None:
    """Begin a session as :func:`_begin` does, and attach the witness of a proof, around every other hook."""
    session = _begin(side, settings, environment, restart=restart, lazily=lazily)
    if limit.VARIABLE in environment and environment.get("MS_ROLE") != SCHEDULER:
        attach(whatever_is_set(hooks_of(side, "WITNESS")), JobWitness(side, environment[limit.VARIABLE]))
    return session


def _begin(side: str, settings: Settings, environment: MutableMapping[str, str], *, restart: bool, lazily: bool) -> Session | None:
    """Set the environment, register the hooks and return the session of this process; None where nothing is switched on.

    ``restart``: replace the interpreter where a variable must be set when it starts; else the record says that it has no effect.
    ``lazily``: let the hooks begin the session once they see that this process is going to train.
    """
    scheduler = environment.get("MS_ROLE") == SCHEDULER
    if scheduler:  # msrun starts the same script once more; it trains nothing, but must find a device
        settings, restart, lazily = Settings(device=settings.device), False, True
        environment.pop(VARIABLE, None)
    if parsed_arguments.VARIABLE in environment:
        return None
    if not settings.any_set():
        if names := [hook for hook in hooks_of(side) if hook.only_a_name]:
            with contextlib.suppress(SettingsError):  # of a launcher's variables that clash
                register_optional(names, side_environment(side).make_session(Settings(), Launch.from_environment(environment)))
        return None
    hold()
    module, wanted = side_environment(side), variables(side, settings)
    changed = {name: value for name, value in wanted.items() if environment.get(name) != value}
    too_late = set(AT_START) & changed.keys()
    environment.update(changed)
    again = environment.pop(STARTED, None) == str(os.getpid())
    if too_late and restart and not again:
        environment[STARTED] = str(os.getpid())
        flush(sys.stdout)
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    if sys.flags.ignore_environment:
        too_late |= set(AT_START) & wanted.keys()
    if any(name in sys.modules for name in module.FRAMEWORK):
        too_late |= changed.keys()
    session: Session = module.make_session(settings, Launch.from_environment(environment))
    watched = {name: environment.get(name) for name in (*module.DETERMINISTIC, *module.WATCHED)} | wanted
    session.facts["environment"] = {name: {"value": value, "effective": name not in too_late} for name, value in watched.items()}
    session.facts.update(started(side, environment))
    if not lazily:
        session.begin()
    attach(hooks_of(side), session)
    return None if scheduler else session


def hooks_of(side: str, catalogue: str = "HOOKS") -> tuple[Hook, ...]:
    """Return all hooks of a side, in the order of a run."""
    hooks: tuple[Hook, ...] = getattr(importlib.import_module(f"align_hooks.{side}_side.catalogue"), catalogue)
    return hooks


def attach_on_import(side: str, *, lazily: bool = False) -> None:
    """Attach hooks now and close the session at exit: for the import form, and for ``run`` when a framework is imported.

    A second import does nothing, and a worker process that imports the script again is left as it is. The exit code stays the script's,
    unless an error of ours ends the process; requests that never happened are printed on stderr.
    """
    only = parsed_arguments.asked()
    worker = is_worker() and not only
    if side in _attached or (worker and not lazily):
        return
    _attached.add(side)
    try:
        if only:
            _attach_whatever_is_set(side, Settings(), (*BEGINNING, "mindspeed"))
            sys.excepthook = _one_line_for_ours(sys.excepthook)
            tell(side, 0)
            return
        settings = Settings.from_environment(os.environ)
        if worker:
            if settings.any_set():  # most workers load data; only to report one that comes to train
                _attach_whatever_is_set(side, settings, BEGINNING).process = os.getppid()  # so that the session never begins here
            return
        session = begin(side, settings, os.environ, restart=False, lazily=lazily)
    except AlignHooksError as error:
        report(error)
        tell(side, 0, ended=REFUSED, problems=str(error).splitlines())
        sys.exit(error.exit_code)
    if session is not None:
        tell(side, session.launch.rank, began=session.begun)
        sys.excepthook = _one_line_for_ours(sys.excepthook)
        atexit.register(_account_at_exit, session)


def is_worker() -> bool:
    """Return whether multiprocessing started this process."""
    import multiprocessing  # not above: it would take the launcher, not the script, for the main module of its workers

    # a started interpreter imports the script, or what a fork server preloads, before it knows its parent; a process may change its name
    started = any(word.startswith("from multiprocessing.") for word in sys.orig_argv)
    return started or multiprocessing.parent_process() is not None or hasattr(multiprocessing.current_process(), "_inheriting")


def _attach_whatever_is_set(side: str, settings: Settings, names: Sequence[str]) -> Session:
    """Attach the hooks of these names, whatever the settings ask for, and return their session."""
    module = side_environment(side)
    session: Session = module.make_session(settings, Launch.from_environment(os.environ))
    session.facts["environment"] = {name: {"value": os.environ.get(name)} for name in (*module.DETERMINISTIC, *module.WATCHED)}
    attach(whatever_is_set(hook for hook in hooks_of(side) if hook.name in names), session)
    return session


def whatever_is_set(hooks: Iterable[Hook]) -> list[Hook]:
    """Return hooks that are attached whatever the settings ask for."""
    return [replace(hook, asked=lambda settings: True) for hook in hooks]


def _one_line_for_ours(hook: ExceptHook) -> ExceptHook:
    """Return an ``excepthook`` that prints an error of ours in one line, and ends the process with its exit code."""

    def excepthook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> object:
        if not isinstance(error, AlignHooksError):
            return hook(kind, error, trace)
        with contextlib.redirect_stderr(sys.__stderr__):  # torch.distributed's own hook would swallow our line
            report(error)
        sys.exit(error.exit_code)

    return excepthook


def _account_at_exit(session: Session) -> None:
    if os.getpid() == session.process:  # not in a fork
        _account(session, 1 if getattr(sys, "last_value", None) is not None else 0, by_run=VARIABLE in os.environ)


_attached: set[str] = set()
