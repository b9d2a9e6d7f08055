"""Run a script as ``python script …`` would: argv, ``__main__``, ``sys.path[0]``, exit code and traceback.

``runpy.run_path`` would restore ``sys.modules`` and ``sys.argv`` at the end: exit handlers, worker processes and pickles of the script
would see another ``__main__``.
"""

from __future__ import annotations

import builtins
import contextlib
import hashlib
import importlib.machinery
import io
import os
import signal
import stat
import sys
import sysconfig
import tempfile
import time
import traceback
import types
from collections.abc import Callable
from pathlib import Path

from align_hooks.errors import AlignHooksError, RefusedRun, SettingsError, printable
from align_hooks.process.paths import well_formed
from align_hooks.process.ranks import Launch, born
from align_hooks.process.streams import flush, say

_interrupted: list[bool] = []
KEPT = 3600
"""Seconds after which the mark of a line that an earlier job printed is removed."""
INSTALLED = (
    *dict.fromkeys(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    str(Path(__file__).parents[1]),
)
"""The folders of code that no user wrote: Python's modules, installed packages, and this one."""


def find_script(script: str) -> Path:
    """Return the script's absolute path; raises SettingsError where there is none."""
    path = Path.cwd() / script
    if not path.is_file():
        why = "it is a directory" if path.is_dir() else "no such file"
        raise SettingsError(f"can't open script {script!r}: {why} in {Path.cwd()}; give the path of a python script")
    return path


def run_script(arguments: list[str]) -> int:
    """Run ``arguments[0]`` with the rest as its arguments, and return python's exit code."""
    path = find_script(arguments[0])
    with io.open_code(str(path)) as file:
        source = file.read()
    loader = importlib.machinery.SourceFileLoader("__main__", str(path))
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=str(path), __annotations__={}, __builtins__=builtins, __loader__=loader, __cached__=None)
    sys.modules["__main__"] = main
    sys.argv = list(arguments)
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = str(path.resolve().parent)
    return guarded(lambda: exec(compile(source, str(path), "exec", dont_inherit=True), main.__dict__))


def guarded(main: Callable[[], object]) -> int:
    """Call ``main``, print what python would print at its end, and return python's exit code."""
    try:
        main()
    except SystemExit as error:
        return _code(error.code)
    except BaseException as error:
        uncaught = error
    else:
        return 0
    uncaught.__traceback__ = _without_our_frames(uncaught.__traceback__)
    sys.last_type, sys.last_value, sys.last_traceback = type(uncaught), uncaught, uncaught.__traceback__
    sys.last_exc = uncaught  # type: ignore[attr-defined,unused-ignore]
    if isinstance(uncaught, AlignHooksError):
        report(uncaught)
        return uncaught.exit_code
    code = _shown(uncaught)
    if not isinstance(uncaught, KeyboardInterrupt):
        return code
    _interrupted.append(True)
    return 130


def _shown(error: BaseException) -> int:
    """Show an uncaught exception with the script's ``excepthook``, and an error of that too; returns python's exit code."""
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except SystemExit as ending:
        return _code(ending.code)
    except BaseException as failed:
        failed.__traceback__ = _without_our_frames(failed.__traceback__)
        say("Error in sys.excepthook:", sys.stderr)
        sys.__excepthook__(type(failed), failed, failed.__traceback__)
        say("\nOriginal exception was:", sys.stderr)
        sys.__excepthook__(type(error), error, error.__traceback__)
    return 1


def place_of(error: BaseException) -> str:
    """Return where an error was raised, ``file:line in function``, by the innermost frame of the user's code, or else of any.

    For a syntax error it is ``file:line``; empty without a traceback.
    """
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(INSTALLED) and not frame.filename.startswith("<")]
    if isinstance(error, SyntaxError) and error.filename and not own:
        return f"{error.filename}:{error.lineno}"
    innermost = next(iter(reversed(own or frames)), None)
    return f"{innermost.filename}:{innermost.lineno} in {innermost.name}" if innermost is not None else ""


def die_of_interrupt() -> None:
    """End by SIGINT after an interrupt, as python does, so that a shell's loop stops."""
    if _interrupted:
        flush(sys.stdout)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)


def report(error: AlignHooksError) -> None:
    """Print an error of ours on stderr, a line for each problem, without control characters."""
    flush(sys.stdout)
    # only refusals list problems in lines: any other line break is a part of a name
    for line in str(error).splitlines() if isinstance(error, SettingsError | RefusedRun) else [str(error)]:
        plain = printable(well_formed(line))
        if _first_to_say(plain):
            say(f"align_hooks: {plain}", sys.stderr)


def _first_to_say(line: str) -> bool:
    """Return whether this process, of all ranks of a host that share stderr, is to print ``line``; True where that is unknown."""
    try:
        if Launch.from_environment(os.environ).world_size == 1:
            return True
        launcher, stream = born(os.getppid()), os.fstat(sys.stderr.fileno())
        if not launcher:
            return True
        # the launcher with its start time, so that the next job prints the line again; the stream, so that each log has it
        key = f"{os.getppid()} {launcher} {stream.st_dev}:{stream.st_ino} {line}"
        path = _folder_of_digests() / hashlib.sha256(key.encode("utf-8", "backslashreplace")).hexdigest()
    except (SettingsError, OSError, ValueError, AttributeError):
        return True
    try:  # refused ranks do not communicate any more: the one that creates the file prints
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except OSError as error:
        return not isinstance(error, FileExistsError)
    return True


def _folder_of_digests() -> Path:
    """Return a private folder of this user, without old files; raises OSError where there can be none."""
    folder = Path(tempfile.gettempdir()) / f"align_hooks-said-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    state = folder.lstat()
    if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.getuid() or state.st_mode & 0o077:
        raise PermissionError(f"{folder} is not ours alone")
    for path in folder.iterdir():
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > KEPT:
                path.unlink()
    return folder


def _code(code: object) -> int:
    if code is None or isinstance(code, int):
        return int(code or 0)
    with contextlib.suppress(Exception):  # as python does: the code is 1 even where printing fails
        print(code, file=sys.stderr)
    return 1


def _without_our_frames(trace: types.TracebackType | None) -> types.TracebackType | None:
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return trace
