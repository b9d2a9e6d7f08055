"""The script in ``argv[1]``, with a count of the host's waits for the device: WAITS names a file, JSON of step to line of code to waits.

torch.cuda warns at each wait. Whose it is says the innermost line that is none of torch's.
"""

import atexit
import json
import os
import runpy
import sys
import threading
import traceback
import warnings
from collections import Counter, defaultdict
from pathlib import Path

import torch
from megatron.training import get_args, training

STEPS: dict[int, Counter[str]] = defaultdict(Counter)
OURS, LIBRARY = (f"{os.sep}{name}{os.sep}" for name in ("align_hooks", "torch"))
stepping = training.train_step


def shown(message, category, filename, lineno, file=None, line=None) -> None:
    """Count a warning in the place of showing it."""
    if "synchroniz" not in str(message):
        return
    callers = [
        frame for frame in traceback.extract_stack()[:-1] if LIBRARY not in frame.filename and not frame.filename.endswith("warnings.py")
    ]
    file = callers[-1].filename
    caller = f"{file.rpartition(OURS)[2]}:{callers[-1].lineno}" if OURS in file else "the framework"
    thread = "" if threading.current_thread() is threading.main_thread() else " in another thread"
    STEPS[current()][caller + thread] += 1


def current() -> int:
    """Return the step that runs now."""
    return getattr(get_args(), "curr_iteration", 0)


def step(*args, **kwargs):
    """A training step, in which each wait is told of."""
    torch.cuda.set_sync_debug_mode("warn")
    try:
        return stepping(*args, **kwargs)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@atexit.register
def write() -> None:
    """Write the counts, and the peak of the device's memory."""
    counts = {step: dict(waits) for step, waits in STEPS.items()}
    Path(os.environ["WAITS"]).write_text(json.dumps({"waits": counts, "peak": torch.cuda.max_memory_allocated()}))


if __name__ == "__main__":
    warnings.simplefilter("always")
    warnings.showwarning = shown
    training.train_step = step
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
