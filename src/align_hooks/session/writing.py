"""Writing beside training: one thread that writes what training has handed to it, in that order.

What is handed over are copies on the host (:func:`owned` sees to it), so the framework may use its own memory again at once. A step's row
of scalars is handed over after everything that it lists, so it is written when all of that is on disk and synced: a job that is killed
leaves the record that it would have left without the thread, up to a step or two earlier. A process keeps about :data:`BUFFER` bytes, or
one step's of a larger step; then training waits for the disk, and that is said.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TypeVar, cast

import numpy as np

from align_hooks.names.blocks import Array

Value = TypeVar("Value")

BUFFER = 1 << 30
"""Bytes that may wait to be written."""
NOTED = 1.0
"""Seconds for which training waited before it is said."""


@dataclass(frozen=True, slots=True)
class Job:
    """A piece of a step's record: ``what`` it is, ``step`` None between steps, and the ``size`` in bytes that it holds until it is
    written."""

    what: str
    step: int | None
    size: int
    write: Callable[[], None]


class AsyncWriter:
    """``failed`` is called on the thread with what failed to be written, its step and the error; no further job is written. ``slow`` is
    called once, on the training's thread, when it has waited for :data:`NOTED` seconds."""

    def __init__(self, failed: Callable[[str, int | None, BaseException], None], slow: Callable[[], None]) -> None:
        self._failed, self._slow = failed, slow
        self._jobs: deque[Job] = deque()
        self._held = 0
        self._busy = self._broken = self._said = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self.waited = 0.0

    def put(self, job: Job) -> None:
        """Hand over a job; waits while what is held and this one are more than the buffer."""
        with self._changed:
            if self._broken:
                return
            if self._thread is None:
                thread = threading.Thread(target=self._work, name="align_hooks writes", daemon=True)
                thread.start()  # may fail, where a process has all the threads that it may have
                self._thread = thread
            room = max(BUFFER - job.size, 0)  # a job that is larger than the buffer waits for all others
            if job.size and self._held > room:
                started = time.perf_counter()
                self._changed.wait_for(lambda: self._broken or self._held <= room)
                self.waited += time.perf_counter() - started
            if not self._broken:
                self._jobs.append(job)
                self._held += job.size
                self._changed.notify_all()
        if self.waited > NOTED and not self._said:
            self._said = True
            self._slow()

    def drain(self) -> None:
        """Wait until everything is written."""
        with self._changed:
            self._changed.wait_for(lambda: self._broken or not (self._jobs or self._busy))

    def _work(self) -> None:
        """Write jobs as they come, until one fails; the thread ends with the process."""
        what, step = "the record", None
        try:
            while True:
                job = self._next()
                what, step = job.what, job.step
                job.write()
                with self._changed:
                    self._busy = False
                    self._held -= job.size
                    self._changed.notify_all()
                del job  # its arrays are not kept until the next comes
        except BaseException as error:  # a panic of compiled code is no Exception
            self._failed(what, step, error)
        finally:  # nobody waits for a thread that is gone
            with self._changed:
                self._busy, self._broken, self._held = False, True, 0
                self._jobs.clear()
                self._changed.notify_all()

    def _next(self) -> Job:
        """The next job, as soon as there is one."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._jobs))
            self._busy = True
            return self._jobs.popleft()


def owned(value: Value) -> Value:
    """A value whose arrays are in memory of their own: an array that looks at a framework's memory, as ``asnumpy`` of MindSpore gives on a
    CPU, is copied."""
    kept: object = value
    if isinstance(value, np.ndarray):
        root: Array = value
        while isinstance(root.base, np.ndarray):
            root = root.base
        kept = value if root.base is None else value.copy()
    elif isinstance(value, Mapping):
        kept = {key: owned(item) for key, item in value.items()}
    elif type(value) in (list, tuple):
        items = map(owned, cast(Iterable[object], value))
        kept = list(items) if isinstance(value, list) else tuple(items)
    elif is_dataclass(value) and not isinstance(value, type):
        kept = replace(value, **{field.name: owned(getattr(value, field.name)) for field in fields(value)})
    return cast(Value, kept)


def held(value: object) -> int:
    """The bytes of all arrays in a value."""
    if isinstance(value, np.ndarray):
        return int(value.nbytes)
    if isinstance(value, Mapping):
        return sum(map(held, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(held, value))
    if is_dataclass(value):
        return sum(held(getattr(value, field.name)) for field in fields(value))
    return 0
