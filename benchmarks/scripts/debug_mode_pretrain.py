"""``pretrain_gpt.py`` whose odd steps run under torch's own DebugMode, with a norm of what each operator returns, written to OUT."""

from __future__ import annotations

import os
import runpy
from pathlib import Path
from typing import Any

from megatron.training import get_args, training
from torch.utils._debug_mode import DebugMode

where, stepping = Path(os.environ["OUT"]), training.train_step


def step(*args: Any, **kwargs: Any) -> Any:
    """A step, and on odd ones what its operators returned."""
    number = get_args().curr_iteration
    if number % 2 == 0:
        return stepping(*args, **kwargs)
    with DebugMode() as mode, DebugMode.log_tensor_hashes():
        result = stepping(*args, **kwargs)
    (where / f"step_{number}.txt").write_text(mode.debug_string())
    return result


if __name__ == "__main__":
    training.train_step = step
    runpy.run_path(str(Path(__file__).parents[2] / "launch" / "pretrain_gpt.py"), run_name="__main__")
