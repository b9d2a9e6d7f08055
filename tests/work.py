"""How much is done, counted and not timed: a count is the same on every machine, however busy it is."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import pytest

HUNG = 300
"""Seconds of the processor after which what counts no call is taken for hung: a hundred times what anything here takes."""


class TooMuch(BaseException):
    """Nothing in the source catches it."""


@contextmanager
def at_most(calls: int) -> Iterator[None]:
    """What is done within may call functions, Python's and those written in C, so many times; more fails the test at once.

    A single call that never ends counts as one, so a process that hangs is ended too.
    """
    left = calls

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal left
        left -= event in ("call", "c_call")
        if left < 0:
            raise TooMuch(f"more than {calls} calls")

    def ring(*_: object) -> None:
        raise TooMuch(f"no end after {HUNG} seconds of the processor")

    before = signal.signal(signal.SIGVTALRM, ring)
    signal.setitimer(signal.ITIMER_VIRTUAL, HUNG)
    sys.setprofile(count)
    try:
        yield
    except TooMuch as why:
        pytest.fail(str(why))
    finally:
        sys.setprofile(None)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
