"""This process's place in MindSpore's parallel grid, and refusals of layouts that this version does not read."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from mindspore import get_auto_parallel_context, set_auto_parallel_context
from mindspore.communication import get_group_size, get_rank

from align_hooks.errors import RefusedRun
from align_hooks.families.family import ModelConfig
from align_hooks.ms_side.feeding import Sizes, sizes_of
from align_hooks.ms_side.objects import Config
from align_hooks.process.ranks import Launch
from align_hooks.quantities.local_norms import POINT
from align_hooks.settings import PREFIX, Settings

DATA_PARALLEL, SEMI_AUTO = "data_parallel", "semi_auto_parallel"


def place(launch: Launch, sizes: Sizes | None = None) -> dict[str, int]:
    """Return this rank's place as :meth:`.feeding.Sizes.place` does; without ``sizes`` all ranks are data-parallel."""
    return (sizes or Sizes(dp=launch.world_size)).place(launch.rank, launch.world_size)


@contextmanager
def calling_alone() -> Iterator[None]:
    """Allow the call of a Cell outside the training graph, as MindFormers' own callback does for schedules."""
    # in a semi-automatic job MindSpore cuts every called Cell, and a cut schedule has no value
    mode, whole = get_auto_parallel_context("parallel_mode"), get_auto_parallel_context("full_batch")
    if mode != SEMI_AUTO:
        yield
        return
    set_auto_parallel_context(parallel_mode=DATA_PARALLEL, full_batch=False)
    try:
        yield
    finally:
        set_auto_parallel_context(parallel_mode=mode, full_batch=whole)


def semi_auto_sizes(launch: Launch, config: Config) -> Sizes | None:
    """Return the sizes of a semi-automatic job of several ranks; None for another job."""
    if launch.world_size == 1 or get_auto_parallel_context("parallel_mode") != SEMI_AUTO:
        return None
    if config is None:
        raise RefusedRun("the model was built without build_context, so nothing tells its parallel sizes; start it with run_mindformer.py")
    return sizes_of(config, whole=bool(get_auto_parallel_context("full_batch")))


def refuse_shards(launch: Launch) -> None:
    """Refuse parallel modes of unknown layouts, and ranks that the launcher and MindSpore number differently."""
    if launch.world_size == 1:
        return
    mode = get_auto_parallel_context("parallel_mode")
    if mode not in (DATA_PARALLEL, SEMI_AUTO):
        raise RefusedRun(
            f"this version reads data_parallel and semi_auto_parallel jobs; these {launch.world_size} ranks have parallel_mode {mode}; "
            f"set use_parallel: True and parallel.parallel_mode: 0 or 1 in the YAML"
        )
    if mode == DATA_PARALLEL and get_auto_parallel_context("enable_parallel_optimizer"):
        raise RefusedRun(
            "this version does not read tensors that are cut over data-parallel ranks; "
            "set parallel.enable_parallel_optimizer: False in the YAML"
        )
    refuse_other_numbers(launch)


def refuse_other_numbers(launch: Launch) -> None:
    """Refuse ranks that the launcher and MindSpore number differently."""
    rank, ranks = get_rank(), get_group_size()
    if (rank, ranks) != (launch.rank, launch.world_size):
        raise RefusedRun(
            f"the launcher's variables say rank {launch.rank} of {launch.world_size}, MindSpore says {rank} of {ranks}; "
            f"give msrun --node_rank"
        )


def refuse_layouts(settings: Settings, sizes: Sizes, model: ModelConfig) -> None:
    """Refuse a semi-automatic job that this version would record or replay wrongly; ``model`` is the model's configuration."""
    if get_auto_parallel_context("gradients_mean"):
        raise RefusedRun(
            "parallel.gradients_mean is on, which under semi_auto_parallel divides each gradient by its own number of ranks, "
            "although the loss is a mean already; set gradients_mean: False in the YAML"
        )
    if sizes.pp > 1 and model.tie_word_embeddings:
        raise RefusedRun(
            "tie_word_embeddings over pipeline stages makes a copy that this version does not read; set it to False in the YAML"
        )
    if sizes.pp > 1 and os.environ.get("PIPELINE_SLICE_SKIP_REDISTRIBUTION") == "1":
        raise RefusedRun("PIPELINE_SLICE_SKIP_REDISTRIBUTION=1 cuts micro-batches out of other rows than are recorded; unset it")
    if sizes.pp > 1 and get_auto_parallel_context("pipeline_scheduler") == "zero_bubble_v":
        raise RefusedRun("the pipeline scheduler zero_bubble_v has the loss on the first stage; set another pipeline_scheduler in the YAML")
    if settings.choice(POINT) == "local":
        raise RefusedRun(f"{PREFIX}LOCAL_NORMS_POINT=local: under semi_auto_parallel gradients are reduced where they are made; unset it")


def summed(launch: Launch) -> bool:
    """Return whether gradients are summed over data-parallel ranks, as MindSpore does by default, and not averaged."""
    # under semi-automatic parallelism the loss is the mean of the job's batch already
    if launch.world_size == 1 or get_auto_parallel_context("parallel_mode") == SEMI_AUTO:
        return False
    return not get_auto_parallel_context("gradients_mean")
