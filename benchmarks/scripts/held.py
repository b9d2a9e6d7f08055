"""How long a tool holds the training thread: the time inside of its functions, step by step, if TIMED names a file for it."""

from __future__ import annotations

import atexit
import json
import os
import time
from collections import defaultdict
from pathlib import Path

from megatron.training import get_args

HELD: dict[int, float] = defaultdict(float)
"""Step to seconds."""
inside = False


def timed(owner: object, *names: str) -> None:
    """Add the time that functions take to their step's; of one that calls another, once."""
    for name in names if "TIMED" in os.environ else ():
        setattr(owner, name, around(getattr(owner, name)))


def around(original):
    """The function, timed."""

    def called(*args, **kwargs):
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
