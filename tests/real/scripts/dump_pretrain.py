"""``launch/pretrain_gpt.py`` with msprobe around each training step, as its documentation puts it. MSPROBE_CONFIG names a file."""

import os
import runpy
import sys
from pathlib import Path
from typing import Any

from megatron.training import training
from msprobe.pytorch import PrecisionDebugger

LAUNCH = Path(__file__).parents[3] / "launch"
debugger = PrecisionDebugger(config_path=os.environ["MSPROBE_CONFIG"])
plain = training.train_step


def train_step(forward_step: Any, data: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
    debugger.start(model=model)
    done = plain(forward_step, data, model, *args, **kwargs)
    debugger.stop()
    debugger.step()
    return done


training.train_step = train_step
sys.path.insert(0, str(LAUNCH))
runpy.run_path(str(LAUNCH / "pretrain_gpt.py"), run_name="__main__")
