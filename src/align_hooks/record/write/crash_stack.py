"""The last words of a process that a signal ends: which signal, and the stack.

A handler in Python waits for the interpreter, which a hanging collective never releases. faulthandler's handler is C: it writes the stack
to a file that is open already and hands the signal on to the default action, so that the process dies at once, of the signal, as it
does without us. A signal that the script handles, in Python or in C, stays with the script, also where the script handles it later:
registering replaces no Python handler, and a Python handler replaces the registration.

There is one exception. Without a handler, a signal ends a process that waits inside the kernel, for a network file system say. A handler
runs only once that wait is over.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from align_hooks.process.storage import opened
from align_hooks.record.format import folder, layout

SIGNALS = (signal.SIGTERM, signal.SIGHUP)
"""The signals with which schedulers, launchers and closing terminals end a process. SIGKILL cannot be handled."""
LARGEST = 1 << 16
"""Bytes that are read: faulthandler stops after a hundred frames."""
FRAME = re.compile(r'^  File "(?P<file>[^"\n]{1,600})", line (?P<line>\d{1,9}) in (?P<function>[^\n]{1,600})$', re.MULTILINE)


@dataclass
class LastWords:
    """The files of one process, open from :meth:`prepare` until :meth:`withdraw`."""

    run: Path
    rank: int
    _files: dict[signal.Signals, BinaryIO] = field(default_factory=dict)
    _handlers: dict[signal.Signals, int | None] = field(default_factory=dict)

    def prepare(self) -> None:
        """Let each unhandled signal write the stack at which it ends this process; raises OSError where there can be no file. The file of
        an earlier process of the rank is removed in any case: its signal did not end this process."""
        for number in SIGNALS:
            place = layout.last_words(self.run, self.rank, number.name)
            folder.make(self.run, place.parent)
            place.unlink(missing_ok=True)
            if _handler(number) is not None:
                continue
            self._files[number] = file = place.open("xb", buffering=0)
            faulthandler.register(number, file=file, all_threads=False, chain=True)
            self._handlers[number] = _handler(number)
        os.register_at_fork(after_in_child=self._forget)

    def withdraw(self) -> None:
        """Unregister every signal and remove the files: this process ended by itself."""
        numbers = list(self._files)
        self._forget()
        for number in numbers:
            layout.last_words(self.run, self.rank, number.name).unlink(missing_ok=True)

    def _forget(self) -> None:
        """Unregister the signals that nothing else handles by now, and close the files; a forked child does no more."""
        for number, file in self._files.items():
            if _handler(number) == self._handlers[number]:
                faulthandler.unregister(number)
            file.close()
        self._files.clear()


def _handler(number: signal.Signals) -> int | None:
    """The address of the C function that handles a signal, None for the default action; ``signal`` knows only Python's handlers."""
    getsig = ctypes.pythonapi.PyOS_getsig
    getsig.argtypes, getsig.restype = (ctypes.c_int,), ctypes.c_void_p
    address: int | None = getsig(number)
    return address


@dataclass(frozen=True, slots=True)
class SignalExit:
    """How a signal ended a process: the signal's name and the Python stack, the innermost frame first; empty where Python ran none."""

    signal: str
    stack: Sequence[tuple[str, int, str]] = ()

    def __str__(self) -> str:
        where = "".join(f" in {file}:{line} {function}" for file, line, function in self.stack[:1])
        return f"was ended by {self.signal}{where}"


def read(run: Path, rank: int) -> SignalExit | None:
    """The signal that ended a rank, and its stack; None without last words. A file that is not ours counts as none."""
    for number in SIGNALS:
        text = _text(layout.last_words(run, rank, number.name))
        if text.startswith(("Stack", "Current thread", "Thread")):
            return SignalExit(number.name, [(frame["file"], int(frame["line"]), frame["function"]) for frame in FRAME.finditer(text)])
    return None


def _text(place: Path) -> str:
    """The beginning of a regular file, not opened through a link; empty without such a file."""
    with contextlib.suppress(OSError, ValueError), opened(place, follow=False) as file:
        return bytes(file.read(0, LARGEST)).decode("utf-8", "replace")
    return ""
