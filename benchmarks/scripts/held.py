"""How long a tool holds the training thread: the time inside of its functions, step by step, if TIMED names a file for it.

A rehearsal on a CPU asks Python about every call of torch, which no accelerator does. Our own reading goes past that, and so do the
functions of other tools here: what they cost is theirs.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from megatron.training import get_args

HELD: dict[int, float] = defaultdict(float)
"""Step to seconds."""
inside: list[float] = []
"""Of each function under way that is a tool's the seconds in which it waited for the framework's."""


def past(owner: object, *names: str) -> None:
    """Let functions of another tool go past a rehearsal's replacements, and time them."""
    for name in names:
        original = without_mode(getattr(owner, name))
        setattr(owner, name, ours(original) if "TIMED" in os.environ else original)


def without_mode(original: Any) -> Any:
    """The function, whose calls of torch are torch's alone."""

    def called(*args: Any, **kwargs: Any) -> Any:
        with torch._C.DisableTorchFunction():
            return original(*args, **kwargs)

    return called


def ours(original: Any) -> Any:
    """A tool's function, whose time is its step's, without that of :func:`theirs` inside."""

    @functools.wraps(original)
    def called(*args: Any, **kwargs: Any) -> Any:
        inside.append(0.0)
        begun = time.perf_counter()
        try:
            return original(*args, **kwargs)
        finally:
            taken = time.perf_counter() - begun
            HELD[getattr(get_args(), "curr_iteration", -1)] += taken - inside.pop()  # -1 while the model is built
            if inside:
                inside[-1] += taken

    return called


@functools.cache  # one and the same of one function, as whoever looks up its signature once expects
def theirs(original: Any) -> Any:
    """The framework's function that a tool calls."""

    @functools.wraps(original, assigned=())
    def called(*args: Any, **kwargs: Any) -> Any:
        begun = time.perf_counter()
        inside.append(0.0)  # what a tool does deeper inside is its own
        try:
            return original(*args, **kwargs)
        finally:
            inside.pop()
            inside[-1] += time.perf_counter() - begun

    return called


def write() -> None:
    """Write what was measured to TIMED, as JSON."""
    Path(os.environ["TIMED"]).write_text(json.dumps(HELD))


if "TIMED" in os.environ:
    atexit.register(write)
