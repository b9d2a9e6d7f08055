"""``pretrain_gpt.py`` under torch's profiler: what each step asks of the device is written to PROFILED, as JSON."""

from __future__ import annotations

import atexit
import json
import os
import runpy
from collections import Counter
from pathlib import Path
from typing import Any

from device_events import counted
from megatron.training import get_args, training
from torch.profiler import profile, supported_activities

STEPS: dict[int, Counter[str]] = {}
"""Step to counts."""
stepping = training.train_step


def step(*args: Any, **kwargs: Any) -> Any:
    """A training step, profiled with all that recording does in it."""
    with profile(activities=supported_activities()) as made:
        result = stepping(*args, **kwargs)
    STEPS[get_args().curr_iteration] = counted(made.events())
    return result


def write() -> None:
    """Write the counts of all steps."""
    Path(os.environ["PROFILED"]).write_text(json.dumps(STEPS))


if __name__ == "__main__":
    training.train_step = step
    atexit.register(write)
    runpy.run_path(str(Path(__file__).parents[2] / "launch" / "pretrain_gpt.py"), run_name="__main__")
