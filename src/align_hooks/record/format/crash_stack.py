"""The stack at which a signal ends a process.

A handler in Python waits for the interpreter, which a hanging collective never releases. faulthandler's handler is C:
it writes the stack to an open file and chains to the default action, so that the process dies at once, of the signal.
A signal that the script handles, now or later, stays with the script. One difference remains: a process that waits
inside the kernel, for a network file system say, dies only after the wait.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import re
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct, field

from align_hooks.process.storage import opened
from align_hooks.record.format import folder, layout

SIGNALS = (signal.SIGTERM, signal.SIGHUP)
"""The signals of schedulers, launchers and closing terminals. SIGKILL cannot be handled."""
LARGEST = 1 << 16
"""Bytes that are read; faulthandler stops after a hundred frames."""
FRAME = re.compile(r'^  File "(?P<file>[^"\n]{1,600})", line (?P<line>\d{1,9}) in (?P<function>[^\n]{1,600})$', re.MULTILINE)


class CrashStack(Struct):
    """The crash-stack files of one process, open from :meth:`prepare` until :meth:`withdraw`."""

    run: Path
    rank: int
    _files: dict[signal.Signals, BinaryIO] = field(default_factory=dict)
    _handlers: dict[signal.Signals, int | None] = field(default_factory=dict)

    def prepare(self) -> None:
        """Register a stack dump for each unhandled signal; raises OSError where no file can be made."""
        for number in SIGNALS:
            place = layout.last_words(self.run, self.rank, number.name)
            folder.make(self.run, place.parent)
            place.unlink(missing_ok=True)  # an earlier process's
            if _handler(number) is not None:
                continue
            self._files[number] = file = place.open("xb", buffering=0)
            faulthandler.register(number, file=file, all_threads=False, chain=True)
            self._handlers[number] = _handler(number)
        os.register_at_fork(after_in_child=self._forget)

    def withdraw(self) -> None:
        """Unregister every signal and remove the files, as the process ends by itself."""
        numbers = list(self._files)
        self._forget()
        for number in numbers:
            layout.last_words(self.run, self.rank, number.name).unlink(missing_ok=True)

    def _forget(self) -> None:
        """Unregister the signals that nothing else handles by now, and close the files, also in a forked child."""
        for number, file in self._files.items():
            if _handler(number) == self._handlers[number]:
                faulthandler.unregister(number)
            file.close()
        self._files.clear()


def _handler(number: signal.Signals) -> int | None:
    """Return the address of the C function that handles a signal; None for the default action."""
    getsig = ctypes.pythonapi.PyOS_getsig  # the module signal knows only Python's handlers
    getsig.argtypes, getsig.restype = (ctypes.c_int,), ctypes.c_void_p
    address: int | None = getsig(number)
    return address


class SignalExit(Struct, frozen=True):
    """The signal that ended a process, with the Python stack."""

    signal: str
    stack: Sequence[tuple[str, int, str]] = ()
    """File, line and function, innermost first; empty without Python frames."""

    def __str__(self) -> str:
        where = "".join(f" in {file}:{line} {function}" for file, line, function in self.stack[:1])
        return f"was ended by {self.signal}{where}"


def read(run: Path, rank: int) -> SignalExit | None:
    """Return the signal that ended a rank, with the stack; None without such a file of ours."""
    for number in SIGNALS:
        with contextlib.suppress(OSError, ValueError), opened(layout.last_words(run, rank, number.name), follow=False) as file:
            text = bytes(file.read(0, LARGEST)).decode("utf-8", "replace")
            if text.startswith(("Stack", "Current thread", "Thread")):
                frames = [(frame["file"], int(frame["line"]), frame["function"]) for frame in FRAME.finditer(text)]
                return SignalExit(number.name, frames)
    return None
