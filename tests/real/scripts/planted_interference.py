"""A training script beside a fault in our own hooks: ``planted_interference.py random|graph|wait SCRIPT [ARGUMENT ...]``."""

import runpy
import sys
from pathlib import Path

import torch

from align_hooks.torch_side.hooks import forward, gradients

kind, script = sys.argv[1:3]
sys.argv = sys.argv[2:]
sys.path[0] = str(Path(script).resolve().parent)
see, read = forward.wrap, gradients.wrap


def drawing(*call):
    """Read gradients, and draw a random number."""
    torch.rand(1)
    return read(*call)


def growing(*call):
    """See a forward pass, and put a node behind it that changes no bit."""
    return see(*call) * 1.0


def waiting(*call):
    """Read gradients, and wait for the device three times."""
    for _ in range(3):
        torch.cuda.synchronize()
    return read(*call)


match kind:
    case "random":
        gradients.wrap = drawing
    case "graph":
        forward.wrap = growing
    case "wait":
        gradients.wrap = waiting
runpy.run_path(script, run_name="__main__")
