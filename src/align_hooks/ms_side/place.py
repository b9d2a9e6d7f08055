"""This process's place in MindSpore's parallel grid."""

from __future__ import annotations

from mindspore import get_auto_parallel_context
from mindspore.communication import get_group_size, get_rank

from align_hooks.errors import RefusedRun
from align_hooks.launch import Launch

AXES = ("dp", "tp", "pp", "cp", "ep")
DATA_PARALLEL = "data_parallel"


def place(launch: Launch) -> dict[str, int]:
    """Axis to this rank's index on it, and ``<axis>_size`` to the number of ranks along it; there are data-parallel ranks only."""
    single = dict.fromkeys(AXES, 0) | {f"{axis}_size": 1 for axis in AXES}
    return single | {"dp": launch.rank, "dp_size": launch.world_size}


def refuse_shards(launch: Launch) -> None:
    """Refuse every layout but plain data parallelism, where each rank holds a whole copy of everything."""
    if launch.world_size == 1:
        return
    mode = get_auto_parallel_context("parallel_mode")
    if mode != DATA_PARALLEL:
        raise RefusedRun(
            f"this version records and replays data-parallel ranks only; this job of {launch.world_size} ranks has parallel_mode {mode}; "
            f"set use_parallel: True and parallel.parallel_mode: 0 in the YAML"
        )
    if get_auto_parallel_context("enable_parallel_optimizer"):
        raise RefusedRun(
            "this version does not read tensors that are cut over data-parallel ranks; "
            "set parallel.enable_parallel_optimizer: False in the YAML"
        )
    found = get_rank(), get_group_size()
    if found != (launch.rank, launch.world_size):
        raise RefusedRun(
            f"the launcher's variables say rank {launch.rank} of {launch.world_size}, MindSpore says {found[0]} of {found[1]}; "
            f"give msrun --node_rank"
        )


def summed(launch: Launch) -> bool:
    """Whether gradients are summed over data-parallel ranks, as MindSpore does by default, and not averaged."""
    return launch.world_size > 1 and not get_auto_parallel_context("gradients_mean")
