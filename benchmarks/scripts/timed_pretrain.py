"""``pretrain_gpt.py`` that notes how long our hooks hold the training thread in each step, and writes it to TIMED as JSON."""

from __future__ import annotations

import json
import os
import runpy
import time
from collections import defaultdict
from pathlib import Path
from types import ModuleType

from megatron.training import get_args

from align_hooks.torch_side.hooks import gradients, norm, train_step

HELD: dict[int, float] = defaultdict(float)
"""Step to seconds."""


def timed(module: ModuleType, name: str) -> None:
    """Add the time that a function takes to its step's."""
    original = getattr(module, name)

    def around(*args: object, **kwargs: object) -> object:
        begun = time.perf_counter()
        try:
            return original(*args, **kwargs)
        finally:
            HELD[get_args().curr_iteration] += time.perf_counter() - begun

    setattr(module, name, around)


if __name__ == "__main__":
    for module, name in ((gradients, "read"), (norm, "places"), (norm, "squared"), (train_step, "close"), (train_step, "keep_state")):
        timed(module, name)
    try:
        runpy.run_path(str(Path(__file__).parents[2] / "launch" / "pretrain_gpt.py"), run_name="__main__")
    finally:
        Path(os.environ["TIMED"]).write_text(json.dumps(HELD))
