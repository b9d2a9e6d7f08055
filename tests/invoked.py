"""Commands of ours called in this process, with their streams and exit codes."""

import contextlib
import io
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from subprocess import CompletedProcess
from unittest import mock

from align_hooks.cli.application import Application, main

OF_TERMINALS = ("COLUMNS", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE")


@dataclass(frozen=True)
class Result:
    """``output`` is what both streams said, in its order."""

    exit_code: int
    stdout: str
    stderr: str
    output: str
    exception: BaseException | None


class Both(io.StringIO):
    """A stream that writes to another one too."""

    def __init__(self, both: io.StringIO) -> None:
        super().__init__()
        self.both = both

    def write(self, text: str) -> int:
        self.both.write(text)
        return super().write(text)


def invoke(app: Application, words: Sequence[str], env: Mapping[str, str | None] | None = None) -> Result:
    """Call a command with variables set, or taken out by None. An error that leaves it is kept, with code 1."""
    output = io.StringIO()
    stdout, stderr = Both(output), Both(output)
    code, error = 0, None
    with mock.patch.dict(os.environ), contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
        for name, value in (env or {}).items():
            os.environ.pop(name, None)
            os.environ.update({} if value is None else {name: value})
        try:
            app([str(word) for word in words])
        except SystemExit as ended:
            code = int(ended.code or 0)
        except Exception as left:
            code, error = 1, left
    return Result(code, stdout.getvalue(), stderr.getvalue(), output.getvalue(), error)


def command(*words: object, **variables: str) -> CompletedProcess[str]:
    """Call ``align-hooks`` as a shell does, with no terminal; it ends as a process of its own would."""
    line = ["align-hooks", *map(str, words)]
    with mock.patch.object(sys, "argv", line):
        done = invoke(lambda _: main(), (), dict.fromkeys(OF_TERMINALS) | variables)
    if done.exception is not None:
        raise done.exception
    return CompletedProcess(line, done.exit_code, done.stdout, done.stderr)
