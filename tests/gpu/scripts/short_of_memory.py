"""The witness of Megatron-LM, which from step 3 on is given no more of the device's memory than it holds by then."""

import os
import runpy
import sys
from pathlib import Path

import torch
from megatron.training import get_args, training

REAL = Path(__file__).parents[2] / "real" / "scripts"
stepping = training.train_step


def step(*args, **kwargs):
    """A training step; before the third the limit falls to what is reserved, all of which training needs again."""
    if get_args().curr_iteration == int(os.environ["SHORT_FROM"]) and torch.cuda.is_initialized():
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(torch.cuda.memory_reserved() / total)
    return stepping(*args, **kwargs)


if __name__ == "__main__":
    training.train_step = step
    sys.path.insert(0, str(REAL))
    runpy.run_path(str(REAL / "witness_megatron.py"), run_name="__main__")
