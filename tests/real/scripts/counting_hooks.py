"""``pretrain_gpt.py``, which counts the forward hooks of modules and the hooks of tensors that are registered while each step is made."""

import runpy
from pathlib import Path
from typing import Any

import torch
from megatron.training import training

counted = {"hooks": 0}
for name in ("register_forward_hook", "register_forward_pre_hook"):
    registering = getattr(torch.nn.Module, name)

    def register(self: Any, *args: Any, registering: Any = registering, **kwargs: Any) -> Any:
        """Count a hook, and register it."""
        counted["hooks"] += 1
        return registering(self, *args, **kwargs)

    setattr(torch.nn.Module, name, register)

handing = torch.Tensor.register_hook


def hand(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Count a hook of a tensor, and register it."""
    counted["hooks"] += 1
    return handing(self, *args, **kwargs)


torch.Tensor.register_hook = hand  # type: ignore[method-assign]
stepping = training.train_step


def step(*args: Any, **kwargs: Any) -> Any:
    """Make a step, and say how many hooks were registered since the last."""
    before = counted["hooks"]
    made = stepping(*args, **kwargs)
    print(f"hooks during the step: {counted['hooks'] - before}", flush=True)
    return made


training.train_step = step
runpy.run_path(str(Path(__file__).parents[3] / "launch" / "pretrain_gpt.py"), run_name="__main__")
