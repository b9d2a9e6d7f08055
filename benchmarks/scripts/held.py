"""How long a tool holds the training thread: the time inside of its functions, step by step, if TIMED names a file for it.

A rehearsal on a CPU asks Python about every call of torch, which no accelerator does. Our own reading goes past that, and so do the
functions of other tools here: what they cost is theirs.
"""

from __future__ import annotations

import atexit
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
inside = False


def past(owner: object, *names: str) -> None:
    """Let functions of another tool go past a rehearsal's replacements, and time them."""
    for name in names:
        setattr(owner, name, without_mode(getattr(owner, name)))
    timed(owner, *names)


def timed(owner: object, *names: str) -> None:
    """Add the time that functions take to their step's; of one that calls another, once."""
    for name in names if "TIMED" in os.environ else ():
        setattr(owner, name, around(getattr(owner, name)))


def without_mode(original: Any) -> Any:
    """The function, whose calls of torch are torch's alone."""

    def called(*args: Any, **kwargs: Any) -> Any:
        with torch._C.DisableTorchFunction():
            return original(*args, **kwargs)

    return called


def around(original: Any) -> Any:
    """The function, timed."""

    def called(*args: Any, **kwargs: Any) -> Any:
        global inside
        if inside:
            return original(*args, **kwargs)
        inside, begun = True, time.perf_counter()
        try:
            return original(*args, **kwargs)
        finally:
            inside = False
            HELD[get_args().curr_iteration] += time.perf_counter() - begun

    return called


def write() -> None:
    """Write what was measured to TIMED, as JSON."""
    Path(os.environ["TIMED"]).write_text(json.dumps(HELD))


if "TIMED" in os.environ:
    atexit.register(write)
