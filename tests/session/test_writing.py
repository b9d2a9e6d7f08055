"""Writing beside training: order, the buffer, and what a failure leaves."""

import contextlib
import threading
from collections.abc import Callable
from queue import SimpleQueue

import numpy as np
import pytest
from msgspec import Struct

from align_hooks.session import writing
from align_hooks.session.writing import AsyncWriter, WriteTask, detach_copies


class Told:
    """What a :class:`AsyncWriter` told, and what was written."""

    def __init__(self) -> None:
        self.failures: list[tuple[str, str]] = []
        self.slow = 0
        self.written: list[str] = []
        self.writing = AsyncWriter(lambda what, step, error: self.failures.append((what, str(error))), self.is_slow)

    def is_slow(self) -> None:
        self.slow += 1

    def put(self, what: str, size: int = 0, before: Callable[[], object] = lambda: None) -> None:
        def write() -> None:
            before()
            self.written.append(what)

        self.writing.put(WriteTask(what, 0, size, write))


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    """Writing through a buffer of 100 bytes."""
    monkeypatch.setattr(writing, "BUFFER", 100)
    return Told()


def test_jobs_are_written_in_order_on_another_thread(told: Told) -> None:
    threads = set()
    for index in range(100):
        told.put(str(index), before=lambda: threads.add(threading.current_thread().name))
    told.writing.drain()
    assert told.written == [str(index) for index in range(100)]
    assert threads == {"align_hooks writes"}


class Panic(BaseException):
    """As compiled code raises it."""


def raises(error: BaseException) -> None:
    raise error


def test_what_is_no_exception_stops_recording_too(told: Told) -> None:
    told.put("first", before=lambda: raises(Panic("out of cheese")))
    told.writing.drain()
    assert told.failures == [("first", "out of cheese")] and told.written == []


def test_nothing_to_drain_starts_no_thread(told: Told) -> None:
    told.writing.drain()
    assert told.writing._thread is None


def test_the_buffer_holds_training_until_the_disk_has_taken_enough(told: Told) -> None:
    go, handed = threading.Event(), threading.Event()
    told.put("first", 60, before=go.wait)
    told.put("row")  # holds nothing, waits for nothing

    def more() -> None:
        told.put("second", 60)
        handed.set()

    threading.Thread(target=more, daemon=True).start()
    assert not handed.wait(0.2)
    go.set()
    assert handed.wait(10)
    told.writing.drain()
    assert told.written == ["first", "row", "second"]
    assert told.writing.waited > 0


def test_a_step_that_is_larger_than_the_buffer_is_taken_alone(told: Told) -> None:
    for what in ("first", "second"):
        told.put(what, 1000)
    told.writing.drain()
    assert told.written == ["first", "second"]


def test_waiting_for_the_disk_is_said_once(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "NOTED", 0.0)
    go = threading.Event()
    threading.Timer(0.1, go.set).start()
    told.put("first", 60, before=go.wait)
    for what in ("second", "third"):
        told.put(what, 60)
    told.writing.drain()
    assert told.slow == 1


def test_after_a_failure_nothing_more_is_written_and_nobody_waits(told: Told) -> None:
    """The row of a step whose file failed must not be written."""
    told.put("gradients", 60, before=lambda: raises(OSError("no space left")))
    told.put("scalars", 60)
    told.writing.drain()
    told.put("later", 1000)
    told.writing.drain()
    assert (told.written, told.failures) == ([], [("gradients", "no space left")])


class Made(Struct):
    arrays: dict[str, np.ndarray]
    rows: list[int]


def test_memory_of_a_framework_is_copied_and_our_own_is_not() -> None:
    memory = bytearray(np.arange(4, dtype=np.float32).tobytes())
    theirs, ours = np.frombuffer(memory, np.float32), np.arange(4, dtype=np.float32)
    made, _ = detach_copies((Made({"a": theirs.reshape(2, 2), "b": ours[1:]}, [1]), {"c": [theirs]}, 3))
    memory[:] = bytes(len(memory))
    assert made[0].arrays["a"].tolist() == [[0, 1], [2, 3]] and made[1]["c"][0].tolist() == [0, 1, 2, 3]
    assert np.shares_memory(made[0].arrays["b"], ours) and made[0].rows == [1] and made[2] == 3


def test_what_is_held_is_counted_wherever_it_stands() -> None:
    four = np.zeros(1, np.float32)
    for value, size in ((({"m": {"a": four}}, 3, {"a": "float32"}), 4), (Made({"a": four, "b": four}, [1]), 8), ([four, (four, None)], 8)):
        assert detach_copies(value)[1] == size


NO_THREAD = RuntimeError("can't start new thread")


@pytest.mark.parametrize(("owner", "name"), [(threading.Thread, "start"), (SimpleQueue, "get")], ids=["never was", "is gone"])
def test_nobody_waits_for_a_thread_that_never_was_or_is_gone(owner: type, name: str, told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process may have all the threads that it may have; a drain that waited for one more would end no training."""
    failing = type("Failing", (owner,), {name: lambda self: raises(NO_THREAD)})
    monkeypatch.setattr(writing if owner is SimpleQueue else threading, owner.__name__, failing)
    told = Told()
    with contextlib.suppress(RuntimeError):
        told.put("first")
    told.writing.drain()
    assert told.written == []
    assert owner is not SimpleQueue or told.failures == [("the record", str(NO_THREAD))]
