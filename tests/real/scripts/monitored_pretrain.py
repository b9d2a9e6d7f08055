"""``launch/pretrain_gpt.py`` under msprobe's monitor, as its guides have it pasted into a script.

MONITOR is ``1`` or ``2``, its version, and OUT the directory of what it writes.
"""

import json
import os
import runpy
from pathlib import Path
from typing import Any

from megatron.training import training

where = Path(os.environ["OUT"])
setting_up = training.setup_model_and_optimizer
SECOND: dict[str, Any] = {"framework": "pytorch", "output_dir": str(where), "monitors": {"weight_grad": {"enabled": True, "ops": ["norm"]}}}
FIRST: dict[str, Any] = {"targets": {}, "wg_distribution": True, "format": "csv", "ops": ["norm"], "module_ranks": []}


def configured(content: dict[str, Any]) -> str:
    """The path of a configuration."""
    where.mkdir(parents=True, exist_ok=True)
    path = where / "config.json"
    path.write_text(json.dumps(content))
    return str(path)


def watched(model: Any, optimizer: Any) -> None:
    """The gradients of a model, by the monitor that was asked for; both take their steps from the optimizer's."""
    if os.environ["MONITOR"] == "2":
        from msprobe.core.monitor_v2.trainer import TrainerMonitorV2

        TrainerMonitorV2(configured(SECOND), fr="pytorch").start(model=model, optimizer=optimizer, micro_batch_number=2)
    else:
        from msprobe.pytorch import TrainerMon

        os.environ["MONITOR_OUTPUT_DIR"] = str(where)
        TrainerMon(configured(FIRST), params_have_main_grad=True).set_monitor(model, optimizer, grad_acc_steps=2)


def set_up(*args: Any, **kwargs: Any) -> Any:
    built = setting_up(*args, **kwargs)
    watched(built[0], built[1])
    return built


if __name__ == "__main__":
    training.setup_model_and_optimizer = set_up
    runpy.run_path(str(Path(__file__).parents[3] / "launch" / "pretrain_gpt.py"), run_name="__main__")
