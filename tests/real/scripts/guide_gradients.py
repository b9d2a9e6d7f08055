"""``launch/pretrain_gpt.py`` with the guide's edit of ``get_parameters``, mended to save ``param.grad``. GRADIENTS names a folder."""

import os
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
from megatron.core.optimizer import optimizer

LAUNCH = Path(__file__).parents[3] / "launch"
FOLDER = Path(os.environ["GRADIENTS"])
plain = optimizer.MegatronOptimizer.get_parameters


def get_parameters(self: Any) -> Any:
    parameters = plain(self)
    if all(parameter.grad is not None for parameter in parameters) and not FOLDER.exists():
        FOLDER.mkdir()
        for number, parameter in enumerate(parameters, 1):
            np.save(FOLDER / f"grad_{number}.npy", parameter.grad.numpy())
    return parameters


optimizer.MegatronOptimizer.get_parameters = get_parameters
sys.path.insert(0, str(LAUNCH))
runpy.run_path(str(LAUNCH / "pretrain_gpt.py"), run_name="__main__")
