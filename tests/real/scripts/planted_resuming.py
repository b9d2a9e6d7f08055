"""``pretrain_gpt.py`` whose checkpoint is restored with one mistake, named by the variable PLANTED."""

import os
import runpy
import sys
from itertools import chain
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "zoo"))

from megatron.core.num_microbatches_calculator import get_num_microbatches
from megatron.core.rerun_state_machine import RerunDataIterator
from megatron.training import get_args, training
from planted_megatron import PLANTS, around, plant


@plant(around, training, "load_checkpoint")
def scheduler_twice(original: Any, model: Any, optimizer: Any, scheduler: Any, *args: Any, **kwargs: Any) -> Any:
    """The schedule is moved on by one step more than was trained."""
    loaded = original(model, optimizer, scheduler, *args, **kwargs)
    scheduler.step(increment=get_args().global_batch_size)
    return loaded


@plant(around, training, "load_checkpoint")
def batch_again(original: Any, *args: Any, **kwargs: Any) -> Any:
    """The data sampler begins a batch too early."""
    loaded = original(*args, **kwargs)
    get_args().consumed_train_samples -= get_args().global_batch_size
    return loaded


@plant(around, training, "build_train_valid_test_data_iterators")
def sampler_repeats(original: Any, *args: Any, **kwargs: Any) -> Any:
    """The first batch is given twice, and no count tells."""
    train, *others = original(*args, **kwargs)
    first = [next(train) for _ in range(get_num_microbatches())]
    return RerunDataIterator(chain(first, first, train)), *others


@plant(around, training, "load_checkpoint")
def moments_exchanged(original: Any, model: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
    """Two layers' weights of one shape are given each other's moments."""
    loaded = original(model, optimizer, *args, **kwargs)
    names = {name: parameter for name, parameter in model[0].named_parameters() if name.endswith("mlp.linear_fc2.weight")}
    first, second = (optimizer.optimizer.state[getattr(parameter, "main_param", parameter)] for parameter in names.values())
    for moment in ("exp_avg", "exp_avg_sq"):
        first[moment], second[moment] = second[moment], first[moment]
    return loaded


@plant(around, training, "load_checkpoint")
def bias_not_saved(original: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
    """The biases of experts begin anew."""
    loaded = original(model, *args, **kwargs)
    for name, buffer in model[0].named_buffers():
        if name.endswith("expert_bias"):
            buffer.zero_()
    return loaded


if __name__ == "__main__":
    PLANTS[os.environ["PLANTED"]]()
    runpy.run_path(str(Path(__file__).parents[3] / "launch" / "pretrain_gpt.py"), run_name="__main__")
