"""``pretrain_gpt.py`` with one sharding fault, named by the variable PLANTED, put into Megatron before it trains."""

import copy
import os
import runpy
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "zoo"))

from megatron.core import parallel_state
from megatron.core.pipeline_parallel import schedules
from planted_megatron import PLANTS, around, gradients, plant

finalize_model_grads = import_module("megatron.core.distributed.finalize_model_grads")  # its package has a function of this name


@plant(gradients)
def dropped_shard(name: str, gradient: Any) -> None:
    """The second tensor-parallel rank loses its part of one gradient."""
    if parallel_state.get_tensor_model_parallel_rank() == 1 and name.endswith("layers.1.mlp.linear_fc2.weight"):
        gradient.zero_()


@plant(gradients)
def summed(name: str, gradient: Any) -> None:
    """Gradients are summed over data-parallel ranks where Megatron averages."""
    gradient.mul_(parallel_state.get_data_parallel_world_size())


@plant(around, finalize_model_grads, "_allreduce_non_tensor_model_parallel_grads")
def not_reduced(original: Any, model: list[Any], *args: Any, **kwargs: Any) -> None:
    """Under sequence parallelism the second rank keeps its own gradients of the norms instead of the sum."""
    norms = [parameter for chunk in model for name, parameter in chunk.named_parameters() if "layernorm" in name]
    own = [norm.main_grad.clone() for norm in norms]
    original(model, *args, **kwargs)
    if parallel_state.get_tensor_model_parallel_rank() == 1:
        for norm, gradient in zip(norms, own, strict=True):
            norm.main_grad.copy_(gradient)


@plant(around, schedules, "forward_step_calc_loss")
def by_micro_batch(original: Any, model: Any, output: Any, loss_function: Any, config: Any, *args: Any, **kwargs: Any) -> Any:
    """Tokens weigh by their micro-batch although the loss is said to be per token."""
    per_micro_batch = copy.copy(config)
    per_micro_batch.calculate_per_token_loss = False
    return original(model, output, loss_function, per_micro_batch, *args, **kwargs)


if __name__ == "__main__":
    PLANTS[os.environ["PLANTED"]]()
    runpy.run_path(str(Path(__file__).parents[3] / "launch" / "pretrain_gpt.py"), run_name="__main__")
