"""A training script with an oddity of its own: ``odd_job.py noise|hang|killed|endless SCRIPT [ARGUMENT ...]``."""

import os
import runpy
import signal
import sys
import time
from pathlib import Path

import torch
from megatron.training import training

kind, script = sys.argv[1:3]
sys.argv = sys.argv[2:]
sys.path[0] = str(Path(script).resolve().parent)
schedule_of = training.get_forward_backward_func


def odd(model):
    """Do what a job should not, once in each step."""
    if kind == "noise":
        with torch.no_grad():
            for parameter in model[0].parameters():
                parameter.view(-1)[0] += int.from_bytes(os.urandom(1), "little") * 1e-7
    if kind == "hang":
        time.sleep(1000)
    if kind == "killed" and "ALIGN_HOOKS_RUN" in os.environ:
        os.kill(os.getpid(), signal.SIGKILL)


def get_forward_backward_func(*args, **kwargs):
    """The schedule, with the oddity before it."""
    schedule = schedule_of(*args, **kwargs)

    def around(*given, **named):
        odd(named["model"])
        return schedule(*given, **named)

    return around


training.get_forward_backward_func = get_forward_backward_func
if kind == "endless":
    training.checkpoint_and_decide_exit = lambda *args, **kwargs: False
runpy.run_path(script, run_name="__main__")
