"""pretrain_gpt.py, with Megatron patched at its head in the ways of MindSpeed: functions decorated, a method and a class replaced.

The mathematics is Megatron's. The stand-in of ``tests/hooking`` is on PYTHONPATH for MindSpeed.
"""

import functools
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mindspeed.patch_utils import MindSpeedPatchesManager


def plain_wrapper(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


def replaced_step(self: Any) -> tuple[bool, Any, Any]:
    from megatron.core.optimizer.clip_grads import clip_grad_by_total_norm_fp32

    self.grad_norms_by_group = {}
    if self.prepare_grads():
        return False, None, None
    norm = self.get_grad_norm()
    for optimizer in self.chained_optimizers:
        clip_grad_by_total_norm_fp32(optimizer.get_parameters(), max_norm=optimizer.config.clip_grad, total_norm=norm)
    return self.step_with_ready_grads(), norm, None


def register() -> None:
    from megatron.core.models.gpt.gpt_model import GPTModel as Original

    class GPTModel(Original):
        def forward(self, input_ids: Any, position_ids: Any, attention_mask: Any, labels: Any = None, **kwargs: Any) -> Any:
            return super().forward(input_ids, position_ids, attention_mask, labels=labels, **kwargs)

    register_patch = MindSpeedPatchesManager.register_patch
    register_patch("megatron.training.arguments.parse_args", plain_wrapper)
    register_patch("megatron.training.training.train_step", plain_wrapper)
    register_patch("megatron.core.pipeline_parallel.schedules.forward_step", plain_wrapper)
    register_patch("megatron.core.optimizer.optimizer.ChainedOptimizer.step", replaced_step)
    register_patch("megatron.core.models.gpt.gpt_model.GPTModel", GPTModel)


register()
MindSpeedPatchesManager.apply_patches()
runpy.run_path(str(Path(__file__).parents[3] / "launch" / "pretrain_gpt.py"), run_name="__main__")
