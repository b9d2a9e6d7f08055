"""``pretrain_gpt.py`` with what the guide has pasted into ``MegatronOptimizer.get_parameters``, in every second step.

GUIDE is ``norms``: the squared norms of all gradients are printed; or ``gradients``: each is saved as an ``.npy`` file below OUT. The
guide's own code saves the weights in the place of gradients; here it saves the gradients, as it says. It does so at every call of a step,
as pasted.
"""

from __future__ import annotations

import os
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from held import past
from megatron.core.optimizer.optimizer import MegatronOptimizer
from megatron.training import get_args

asked, where = os.environ["GUIDE"], Path(os.environ["OUT"])
calls = 0


def get_parameters(self: Any) -> list[torch.Tensor]:
    """The parameters, and beside them what the guide wants to see of each."""
    global calls
    selected, calls = getattr(get_args(), "curr_iteration", 0) % 2 == 1, calls + 1
    found, squared = [], []
    for group in self.optimizer.param_groups:
        for parameter in group["params"]:
            found.append(parameter)
            if selected and asked == "norms":
                squared.append(torch.norm(parameter.grad, 2) ** 2)
            elif selected:
                np.save(where / f"gradient_{calls}_{len(found)}.npy", parameter.grad.cpu().numpy())
    if squared:
        print("local norms:", squared, flush=True)
    return found


MegatronOptimizer.get_parameters = get_parameters
past(MegatronOptimizer, "get_parameters")
runpy.run_path(str(Path(__file__).parents[2] / "launch" / "pretrain_gpt.py"), run_name="__main__")
