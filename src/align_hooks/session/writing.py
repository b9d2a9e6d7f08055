"""Writing beside training: one thread, which writes queued copies of what a step recorded, in their order.

The copies are on the host (:func:`detach_copies`), so that the framework may reuse its memory at once. A step's row of scalars is queued
last, and so written when everything that it lists is on disk and synced: a killed job leaves a valid record, a step or two shorter.
"""

import threading
import time
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import TypeVar, cast

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from align_hooks.names.blocks import Array

Value = TypeVar("Value")

BUFFER = 1 << 30
"""Bytes that may wait to be written, or one larger task; then training waits for the disk."""
NOTED = 1.0
"""Seconds of waiting after which training reports a slow disk."""


class WriteTask(Struct, frozen=True):
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
        self._tasks = SimpleQueue[WriteTask]()
        self._queued_bytes = 0
        self._space = threading.Condition()
        self._broken = self._said = False
        self._thread: threading.Thread | None = None
        self.waited = 0.0

    def put(self, task: WriteTask) -> None:
        """Queue a task; waits while the buffer cannot hold it."""
        if self._broken:
            return
        if self._thread is None:
            thread = threading.Thread(target=self._work, args=(self._tasks,), name="align_hooks writes", daemon=True)
            thread.start()  # may fail at the limit of threads, and is then tried again
            self._thread = thread
        if task.size:
            self._wait_for_space(task.size)
        self._tasks.put(task)
        if self._broken:  # while it waited
            self._tasks = SimpleQueue()

    def _wait_for_space(self, size: int) -> None:
        most = max(BUFFER - size, 0)  # a task larger than the buffer waits for all others
        with self._space:
            if self._queued_bytes > most:
                started = time.perf_counter()
                self._space.wait_for(lambda: self._broken or self._queued_bytes <= most)
                self.waited += time.perf_counter() - started
            self._queued_bytes += size
        if self.waited > NOTED and not self._said:
            self._said = True
            self._slow()

    def drain(self) -> None:
        """Wait until everything is written."""
        if self._thread is not None:
            done = threading.Event()
            self._tasks.put(WriteTask("the record", None, 0, done.set))
            while not self._broken and self._thread.is_alive() and not done.wait(0.1):
                pass

    def _work(self, tasks: SimpleQueue[WriteTask]) -> None:
        """Write tasks as they come, until one fails; the thread ends with the process."""
        what, step = "the record", None
        try:
            while True:
                task = tasks.get()
                what, step = task.what, task.step
                task.write()
                self._release(task.size)
                del task  # frees its arrays before the next one comes
        except BaseException as error:  # a panic of compiled code is no Exception
            try:
                self._failed(what, step, error)
            finally:  # nobody waits for a thread that is gone, and what still waits is let go
                self._broken, self._tasks = True, SimpleQueue()
                self._release(self._queued_bytes)

    def _release(self, size: int) -> None:
        """Make space for a task that waits."""
        if size:
            with self._space:
                self._queued_bytes -= size
                self._space.notify_all()


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
        if isinstance(value, Struct):
            return replace(value, **{name: detached(getattr(value, name)) for name in value.__struct_fields__})
        return value

    return cast(Value, detached(value)), size
