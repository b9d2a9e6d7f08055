"""The command below ``align-hooks run``: its environment, the signals that are passed on to it, and its exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from types import FrameType

from align_hooks.job.entry import variables
from align_hooks.process.status import VARIABLE
from align_hooks.process.streams import say
from align_hooks.settings import PREFIX, Settings, Source

STARTUP = Path(__file__).parent / "startup"
SIDES = ("torch", "ms")
PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
KEYS = (signal.SIGINT, signal.SIGQUIT)
"""Signals that a terminal sends to its whole foreground group, and so to the command too."""
NOT_FOUND, NOT_EXECUTABLE = 127, 126


def environment(settings: Settings, inherited: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The command's environment. Directories become absolute: a script may change its directory before it trains."""
    places = {field.name: getattr(settings, field.name) for field in fields(settings)}
    absolute = {PREFIX + name.upper(): str(place) for name, place in places.items() if isinstance(place, Path | Source)}
    switches = {name: value for side in SIDES for name, value in variables(side, settings).items()}
    path = os.pathsep.join([str(STARTUP), *filter(None, [inherited.get("PYTHONPATH")])])
    return {**inherited, **absolute, **switches, "PYTHONPATH": path, VARIABLE: str(folder)}


def wait(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Start the command, pass signals on to it, and return the exit code that a shell would see."""
    try:
        with signals_passed_on() as receivers, subprocess.Popen(command, env=environment) as process:
            receivers.append(process)
            code = process.wait()
    except OSError as error:
        say(f"align_hooks: {command[0]!r} cannot be started: {error.strerror}", sys.stderr)
        return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
    return code if code >= 0 else 128 - code


@contextmanager
def signals_passed_on() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Hand signals to the processes put into the list, and stay alive to account for them."""
    receivers: list[subprocess.Popen[bytes]] = []

    def pass_on(number: int, frame: FrameType | None) -> None:
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
    """Whether a terminal's keys reach this process and, with it, the command."""
    try:
        with Path("/dev/tty").open() as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False
