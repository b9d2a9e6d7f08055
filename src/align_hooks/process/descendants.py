"""The processes that a command leaves running below this one; without ``/proc`` none is known."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from pathlib import Path

POLL = 0.1
"""Seconds."""
SUBREAPER = 36
"""``PR_SET_CHILD_SUBREAPER`` of ``prctl(2)``."""
PATIENCE = 50
"""Polls between SIGTERM and SIGKILL."""


def adopt() -> None:
    """Become the parent, in the place of ``init``, of processes below whose own parent ends."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)


def descendants() -> dict[int, str]:
    """Return pid to name of every process below this one, and reap children that have ended."""
    parents, names = dict[int, int](), dict[int, str]()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError):
            head, _, fields = path.read_text(encoding="utf-8", errors="replace").rpartition(") ")
            pid, _, name = head.partition(" (")
            state, parent = fields.split()[:2]
            if state not in "ZX":
                parents[int(pid)], names[int(pid)] = int(parent), name
            elif int(parent) == os.getpid():
                os.waitpid(int(pid), os.WNOHANG)
    below, level = dict[int, str](), {os.getpid()}
    while level:
        level = {pid for pid, parent in parents.items() if parent in level}
        below |= {pid: names[pid] for pid in sorted(level)}
    return below


def end() -> dict[int, str]:
    """End all processes below this one, by SIGTERM and then by SIGKILL, and return their names by pid."""
    ended = descendants()
    for number in (signal.SIGTERM, signal.SIGKILL):
        for _ in range(PATIENCE):
            left = descendants()
            for pid in left:
                with contextlib.suppress(OSError):
                    os.kill(pid, number)
            if not left:
                return ended
            time.sleep(POLL)
    return ended
