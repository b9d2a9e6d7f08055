"""Writing beside training: one thread, which writes queued copies of what a step recorded, in their order.

The copies are on the host (:func:`detach_copies`), so that the framework may reuse its memory at once. A step's row of scalars is queued
last, and so written when everything that it lists is on disk and synced: a killed job leaves a valid record, a step or two shorter.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TypeVar, cast

import numpy as np

from align_hooks.names.blocks import Array

Value = TypeVar("Value")

BUFFER = 1 << 30
"""Bytes that may wait to be written, or one larger task; then training waits for the disk."""
NOTED = 1.0
"""Seconds of waiting after which training reports a slow disk."""


@dataclass(frozen=True, slots=True)
class WriteTask:
    """A part of a step's record to be written."""

    what: str
    step: int | None
    """None between steps."""
    size: int
    """Bytes of memory held until it is written."""
    write: Callable[[], None]


class AsyncWriter:
    """A queue of tasks and the thread that writes them; after a failure no further task is written."""

    def __init__(self, failed: Callable[[str, int | None, BaseException], None], slow: Callable[[], None]) -> None:
        """``failed`` is called on the thread with ``what``, ``step`` and the error, ``slow`` once by training, see :data:`NOTED`."""
        self._failed, self._slow = failed, slow
        self._tasks: deque[WriteTask] = deque()
        self._queued_bytes = 0
        self._busy = self._broken = self._said = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self.waited = 0.0

    def put(self, task: WriteTask) -> None:
        """Queue a task; waits while the buffer cannot hold it."""
        with self._changed:
            if self._broken:
                return
            if self._thread is None:
                thread = threading.Thread(target=self._work, name="align_hooks writes", daemon=True)
                thread.start()  # may fail at the limit of threads, and is then tried again
                self._thread = thread
            most = max(BUFFER - task.size, 0)  # a task larger than the buffer waits for all others
            if task.size and self._queued_bytes > most:
                started = time.perf_counter()
                self._changed.wait_for(lambda: self._broken or self._queued_bytes <= most)
                self.waited += time.perf_counter() - started
            if not self._broken:
                self._tasks.append(task)
                self._queued_bytes += task.size
                self._changed.notify_all()
        if self.waited > NOTED and not self._said:
            self._said = True
            self._slow()

    def drain(self) -> None:
        """Wait until everything is written."""
        with self._changed:
            self._changed.wait_for(lambda: self._broken or not (self._tasks or self._busy))

    def _work(self) -> None:
        """Write tasks as they come, until one fails; the thread ends with the process."""
        what, step = "the record", None
        try:
            while True:
                task = self._next()
                what, step = task.what, task.step
                task.write()
                with self._changed:
                    self._busy = False
                    self._queued_bytes -= task.size
                    self._changed.notify_all()
                del task  # frees its arrays before the next one comes
        except BaseException as error:  # a panic of compiled code is no Exception
            self._failed(what, step, error)
        finally:  # nobody waits for a thread that is gone
            with self._changed:
                self._busy, self._broken, self._queued_bytes = False, True, 0
                self._tasks.clear()
                self._changed.notify_all()

    def _next(self) -> WriteTask:
        """Wait for the next task, and take it from the queue."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._tasks))
            self._busy = True
            return self._tasks.popleft()


def detach_copies(value: Value) -> tuple[Value, int]:
    """Return a value with copies of the arrays that view a framework's memory, as MindSpore's ``asnumpy`` on a CPU does, and its bytes."""
    size = 0

    def detached(value: object) -> object:
        nonlocal size
        if isinstance(value, np.ndarray):
            size += int(value.nbytes)
            root: Array = value
            while isinstance(root.base, np.ndarray):
                root = root.base
            return value if root.base is None else value.copy()
        if isinstance(value, Mapping):
            return {key: detached(item) for key, item in value.items()}
        if isinstance(value, list | tuple) and type(value) in (list, tuple):
            return type(value)(map(detached, value))
        if is_dataclass(value) and not isinstance(value, type):
            return replace(value, **{field.name: detached(getattr(value, field.name)) for field in fields(value)})
        return value

    return cast(Value, detached(value)), size
