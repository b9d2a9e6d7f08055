"""This process's place in Megatron's parallel grid."""

from __future__ import annotations

from typing import Any

from megatron.core import parallel_state

from align_hooks.errors import RefusedRun

AXES = {
    "dp": "data_parallel",
    "tp": "tensor_model_parallel",
    "pp": "pipeline_model_parallel",
    "cp": "context_parallel",
    "ep": "expert_model_parallel",
}


def place() -> dict[str, int]:
    """Axis to this rank's index on it, and ``<axis>_size`` to the number of ranks along it."""
    found = {}
    for axis, name in AXES.items():
        found[axis] = getattr(parallel_state, f"get_{name}_rank")()
        found[f"{axis}_size"] = getattr(parallel_state, f"get_{name}_world_size")()
    return found


SHARDED = {
    "use_distributed_optimizer": "--use-distributed-optimizer",
    "use_torch_fsdp2": "--use-torch-fsdp2",
    "use_megatron_fsdp": "--use-megatron-fsdp",
    "use_layer_wise_distributed_optimizer": "the layer-wise distributed optimizer",
}
"""Attribute of Megatron's arguments to the flag of what cuts weights, gradients or optimizer state over data-parallel ranks."""


def refuse_shards(found: dict[str, int], world_size: int, args: Any) -> None:
    """Refuse every layout but plain data parallelism, where each rank holds a whole copy of everything."""
    cut = [
        f"{name.replace('_', ' ')} size {found[f'{axis}_size']}"
        for axis, name in AXES.items()
        if axis != "dp" and found[f"{axis}_size"] > 1
    ]
    if cut:
        raise RefusedRun(f"this version records and replays data-parallel ranks only; this job has {', '.join(cut)}; run with size 1")
    flags = [flag for name, flag in SHARDED.items() if getattr(args, name, False)]
    if flags:
        raise RefusedRun(f"this version does not read tensors that are cut over data-parallel ranks; leave out {', '.join(flags)}")
    if found["dp_size"] != world_size:
        raise RefusedRun(
            f"the launcher started {world_size} ranks and Megatron has {found['dp_size']} data-parallel ones; "
            f"this version records plain data parallelism only"
        )
