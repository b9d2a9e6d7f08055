"""Run a script as ``python script …`` would: argv, ``__main__``, ``sys.path[0]``, exit code and traceback.

``runpy.run_path`` is not used: it restores ``sys.modules`` and ``sys.argv`` when the script ends, so that exit handlers,
worker processes and pickles made by the script would see another ``__main__`` than they do without us.
"""

from __future__ import annotations

import builtins
import importlib.machinery
import io
import sys
import traceback
import types
from pathlib import Path

from align_hooks.errors import AlignHooksError, SettingsError


def run_script(arguments: list[str]) -> int:
    """Run ``arguments[0]`` with the rest as its arguments; returns the exit code that python would end with."""
    script = arguments[0]
    path = Path(script)
    if path.is_dir() or not path.exists():
        raise SettingsError(f"can't open script {script!r}: no such file in {Path.cwd()}")
    with io.open_code(str(path.absolute())) as file:
        source = file.read()
    loader = importlib.machinery.SourceFileLoader("__main__", script)
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=script, __builtins__=builtins, __loader__=loader, __package__=None, __spec__=None, __cached__=None)
    sys.modules["__main__"] = main
    sys.argv = list(arguments)
    sys.path[0] = str(path.resolve().parent)
    return guarded(lambda: exec(compile(source, script, "exec"), main.__dict__))


def guarded(body: object) -> int:
    """Call ``body`` and turn the way it ends into an exit code, printing what python would print."""
    assert callable(body)
    try:
        body()
    except SystemExit as error:
        return _code(error.code)
    except AlignHooksError as error:
        report(error)
        return error.exit_code
    except KeyboardInterrupt:
        traceback.print_exc()
        return 130
    except BaseException as error:
        error.__traceback__ = _without_our_frames(error.__traceback__)
        sys.excepthook(type(error), error, error.__traceback__)
        return 1
    return 0


def report(error: AlignHooksError) -> None:
    """Print an error of ours as one line a problem, with no traceback."""
    sys.stdout.flush()
    for line in str(error).splitlines():
        print(f"align_hooks: {line}", file=sys.stderr, flush=True)


def _code(code: object) -> int:
    if code is None or isinstance(code, int):
        return int(code or 0)
    print(code, file=sys.stderr)
    return 1


def _without_our_frames(trace: types.TracebackType | None) -> types.TracebackType | None:
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return trace
