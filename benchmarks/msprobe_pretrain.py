"""``pretrain_gpt.py`` with msprobe's PrecisionDebugger around every training step, as its guide has it pasted into a script.

MSPROBE_LEVEL is ``L0``, ``L1`` or ``mix``; MSPROBE_DUMP is the directory of its dumps.
"""

from __future__ import annotations

import json
import os
import runpy
from pathlib import Path
from typing import Any

from megatron.training import training
from msprobe.pytorch import PrecisionDebugger

where = Path(os.environ["MSPROBE_DUMP"])
where.mkdir(parents=True, exist_ok=True)
settings = {"task": "statistics", "dump_path": str(where), "rank": [], "step": [], "level": os.environ["MSPROBE_LEVEL"]}
settings["statistics"] = {"scope": [], "list": [], "data_mode": ["all"], "summary_mode": "statistics"}
(where / "config.json").write_text(json.dumps(settings))
debugger = PrecisionDebugger(config_path=str(where / "config.json"))
stepping = training.train_step


def step(forward_step: Any, iterator: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
    """A training step between start and stop."""
    debugger.start(model=model[0])
    made = stepping(forward_step, iterator, model, *args, **kwargs)
    debugger.stop()
    debugger.step()
    return made


training.train_step = step
runpy.run_path(str(Path(__file__).parents[1] / "launch" / "pretrain_gpt.py"), run_name="__main__")
