"""``pretrain_gpt.py`` with one sharding fault, named by the variable PLANTED, put into Megatron before it trains."""

from __future__ import annotations

import copy
import os
import runpy
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel
from megatron.core.pipeline_parallel import schedules

finalize_model_grads = import_module("megatron.core.distributed.finalize_model_grads")  # its package has a function of this name


def after_reduction(change: Callable[[str, Any], None]) -> None:
    """Hand every parameter's main gradient to ``change`` when its reduction over data-parallel ranks is over."""
    original = DistributedDataParallel.finish_grad_sync

    def finish_grad_sync(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        for name, parameter in self.module.named_parameters():
            change(name, parameter.main_grad)

    DistributedDataParallel.finish_grad_sync = finish_grad_sync


def dropped_shard() -> None:
    """The second tensor-parallel rank loses its part of one gradient."""

    def drop(name: str, gradient: Any) -> None:
        if parallel_state.get_tensor_model_parallel_rank() == 1 and name.endswith("layers.1.mlp.linear_fc2.weight"):
            gradient.zero_()

    after_reduction(drop)


def summed() -> None:
    """Gradients are summed over data-parallel ranks where Megatron averages."""
    after_reduction(lambda name, gradient: gradient.mul_(parallel_state.get_data_parallel_world_size()))


def not_reduced() -> None:
    """Under sequence parallelism the second rank keeps its own gradients of the norms instead of the sum."""
    original = finalize_model_grads._allreduce_non_tensor_model_parallel_grads

    def allreduce(model: list[Any], *args: Any, **kwargs: Any) -> None:
        norms = [one for chunk in model for name, one in chunk.named_parameters() if "layernorm" in name]
        own = [one.main_grad.clone() for one in norms]
        original(model, *args, **kwargs)
        if parallel_state.get_tensor_model_parallel_rank() == 1:
            for one, gradient in zip(norms, own, strict=True):
                one.main_grad.copy_(gradient)

    finalize_model_grads._allreduce_non_tensor_model_parallel_grads = allreduce


def by_micro_batch() -> None:
    """Tokens weigh by their micro-batch although the loss is said to be per token."""
    original = schedules.forward_step_calc_loss

    def calc_loss(model: Any, output: Any, loss_function: Any, config: Any, *args: Any, **kwargs: Any) -> Any:
        other = copy.copy(config)
        other.calculate_per_token_loss = False
        return original(model, output, loss_function, other, *args, **kwargs)

    schedules.forward_step_calc_loss = calc_loss


if __name__ == "__main__":
    {plant.__name__: plant for plant in (dropped_shard, summed, not_reduced, by_micro_batch)}[os.environ["PLANTED"]]()
    runpy.run_path(str(Path(__file__).parents[3] / "launch" / "pretrain_gpt.py"), run_name="__main__")
