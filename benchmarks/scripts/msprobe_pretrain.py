"""``pretrain_gpt.py`` with msprobe around every second training step, as its guides have it pasted into a script.

MSPROBE is ``L0``, ``L1`` or ``mix``, statistics of its PrecisionDebugger, or ``monitor``, the norms of its monitor v2. OUT is the directory
of what it writes. BENCHMARK_STEPS is the number of steps: those of odd number are selected.
"""

from __future__ import annotations

import json
import os
import runpy
from pathlib import Path
from typing import Any

from held import past
from megatron.training import training

where, asked = Path(os.environ["OUT"]), os.environ["MSPROBE"]
steps = int(os.environ["BENCHMARK_STEPS"])
where.mkdir(parents=True, exist_ok=True)
stepping, setting_up = training.train_step, training.setup_model_and_optimizer


def configured(content: dict[str, Any]) -> str:
    """The path of a configuration."""
    path = where / "config.json"
    path.write_text(json.dumps(content))
    return str(path)


if asked == "monitor":
    from msprobe.core.monitor_v2.trainer import TrainerMonitorV2
    from msprobe.core.monitor_v2.weight_grad import PyTorchWeightGradMonitorV2

    past(PyTorchWeightGradMonitorV2, "_fetch_param_grad", "_on_param_grad", "_capture_grads")
    past(TrainerMonitorV2, "step")
    settings: dict[str, Any] = {"framework": "pytorch", "output_dir": str(where), "start_step": 1, "step_interval": 2}
    settings["monitors"] = {"weight_grad": {"enabled": True, "ops": ["norm"]}}

    def set_up(*args: Any, **kwargs: Any) -> Any:
        """The model and the optimizer, watched by the monitor, which takes its steps from the optimizer's."""
        built = setting_up(*args, **kwargs)
        TrainerMonitorV2(configured(settings), fr="pytorch").start(model=built[0], optimizer=built[1], micro_batch_number=1)
        return built

    training.setup_model_and_optimizer = set_up
else:
    from msprobe.core.dump.data_dump.data_collector import DataCollector
    from msprobe.pytorch import PrecisionDebugger

    past(DataCollector, *(name for name in vars(DataCollector) if name.endswith(("data_collect", "only_tensor"))))
    settings = {"task": "statistics", "dump_path": str(where), "rank": [], "step": list(range(1, steps, 2)), "level": asked}
    settings["statistics"] = {"scope": [], "list": [], "data_mode": ["all"], "summary_mode": "statistics"}
    debugger = PrecisionDebugger(config_path=configured(settings))

    def step(forward_step: Any, iterator: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
        """A training step between start and stop."""
        debugger.start(model=model[0])
        made = stepping(forward_step, iterator, model, *args, **kwargs)
        debugger.stop()
        debugger.step()
        return made

    training.train_step = step

runpy.run_path(str(Path(__file__).parents[2] / "launch" / "pretrain_gpt.py"), run_name="__main__")
