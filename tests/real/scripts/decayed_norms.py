"""run_mindformer.py with a fault planted in the optimizer's groups: norm weights are decayed too."""

from __future__ import annotations

import runpy
from pathlib import Path

from mindformers.trainer import base_trainer

original = base_trainer.get_optimizer_grouped_parameters


def grouped(*args, **kwargs):
    groups = original(*args, **kwargs)
    highest = max(group["weight_decay"] for group in groups if "weight_decay" in group)
    return [group | {"weight_decay": highest} if "weight_decay" in group else group for group in groups]


base_trainer.get_optimizer_grouped_parameters = grouped

runpy.run_path(str(Path(__file__).parents[3] / "launch" / "run_mindformer.py"), run_name="__main__")
