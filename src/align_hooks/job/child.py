"""The command that ``align-hooks run`` starts: its environment, the signals passed on to it, and its exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from types import FrameType
from typing import IO, Any

from align_hooks.job.entry import variables
from align_hooks.process.status import VARIABLE
from align_hooks.process.streams import say
from align_hooks.settings import PREFIX, Settings, Source

STARTUP = Path(__file__).parent / "startup"
SIDES = ("torch", "ms")
PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
KEYS = (signal.SIGINT, signal.SIGQUIT)
"""Signals that a terminal sends to its foreground group, and so to the command too."""
NOT_FOUND, NOT_EXECUTABLE = 127, 126
SIGNALLED = 128
"""Exit codes above are those of commands that a signal ended, by its number."""
PATIENCE = 10
"""Seconds between SIGTERM and SIGKILL."""


def environment(settings: Settings, inherited: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return the command's environment; ``folder`` is where its processes report their state."""
    values = {field.name: getattr(settings, field.name) for field in fields(settings)}
    # absolute, as a script may change its directory before it trains
    absolute = {PREFIX + name.upper(): str(value) for name, value in values.items() if isinstance(value, Path | Source)}
    switches = {name: value for side in SIDES for name, value in variables(side, settings).items()}
    path = os.pathsep.join([str(STARTUP), *filter(None, [inherited.get("PYTHONPATH")])])
    return {**inherited, **absolute, **switches, "PYTHONPATH": path, VARIABLE: str(folder)}


def wait(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    output: IO[bytes] | None = None,
    seconds: float | None = None,
    received: list[int] | None = None,
) -> int:
    """Run the command, pass signals on to it, and return the exit code that a shell would see.

    ``output`` gets what it prints, ``received`` the signals that came. After ``seconds`` it is ended, as subprocess.TimeoutExpired says.
    """
    received = [] if received is None else received
    to: dict[str, Any] = {} if output is None else {"stdout": output, "stderr": subprocess.STDOUT, "stdin": subprocess.DEVNULL}
    try:
        with signals_passed_on(received) as receivers, subprocess.Popen(command, env=environment, **to) as process:
            receivers.append(process)
            for number in received:  # before the process was there
                process.send_signal(number)
            try:
                code = process.wait(seconds)
            except subprocess.TimeoutExpired:
                process.terminate()  # so that a launcher ends its ranks on other machines
                with suppress(subprocess.TimeoutExpired):
                    process.wait(PATIENCE)
                process.kill()
                raise
    except OSError as error:
        say(f"align_hooks: {command[0]!r} cannot be started: {error.strerror}", sys.stderr)
        return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
    return code if code >= 0 else SIGNALLED - code


@contextmanager
def signals_passed_on(received: list[int]) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Pass signals on to the processes in the list, instead of ending by them, and keep their numbers."""
    receivers: list[subprocess.Popen[bytes]] = []

    def pass_on(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if number not in KEYS or not in_foreground():
            for process in receivers:
                process.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in PASSED_ON if signal.getsignal(number) is not signal.SIG_IGN}
    try:
        yield receivers
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def in_foreground() -> bool:
    """Return whether a terminal's keys reach this process, and so the command."""
    try:
        with Path("/dev/tty").open() as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False
