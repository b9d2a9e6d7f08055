"""This process's place in Megatron's parallel grid, and its part of a parameter."""

import math
from collections.abc import Mapping

import torch
from megatron.core import parallel_state

from align_hooks.errors import RefusedRun
from align_hooks.names.blocks import WHOLE, Cut
from align_hooks.record.format.sequence import Slices, part_of, zigzag
from align_hooks.torch_side.objects import Arguments
from align_hooks.torch_side.refusals import ULYSSES, unread
from align_hooks.torch_side.run_arguments import get_args, samples_of_step

AXES = {
    "dp": "data_parallel",
    "tp": "tensor_model_parallel",
    "pp": "pipeline_model_parallel",
    "cp": "context_parallel",
    "ep": "expert_model_parallel",
    "etp": "expert_tensor_parallel",
    "edp": "expert_data_parallel",
}
"""The axes of a place. Experts have tensor- and data-parallel ranks of their own, across the others' data-parallel ranks."""
SINGLE_RANK = dict.fromkeys(AXES, 0) | {f"{axis}_size": 1 for axis in AXES}
"""The place of a job's only process."""


def place() -> dict[str, int]:
    """Map each axis to this rank's index, and ``<axis>_size`` to the number of ranks along the axis."""
    # not by get_NAME_world_size, of which training calls only some: in June 2025 that of expert_data_parallel failed
    groups = {axis: getattr(parallel_state, f"get_{name}_group")() for axis, name in AXES.items()}
    return {axis: group.rank() for axis, group in groups.items()} | {f"{axis}_size": group.size() for axis, group in groups.items()}


def refuse_layouts(place: Mapping[str, int], world_size: int, args: Arguments) -> None:
    """Refuse the layouts whose shards cannot be distinguished."""
    if why := list(unread(lambda name: getattr(args, name, None))):
        raise RefusedRun("\n".join(why))
    fully_sharded = any(getattr(args, name, False) for name in ("use_torch_fsdp2", "use_megatron_fsdp"))
    if fully_sharded and getattr(args, "num_experts", None) and place["ep_size"] == 1 and place["etp_size"] != place["tp_size"]:
        raise RefusedRun("shards of experts are read where --expert-tensor-parallel-size is the tensor-parallel size; leave it out")
    ranks = math.prod(place[f"{axis}_size"] for axis in ("dp", "tp", "pp", "cp"))
    if ranks != world_size:
        raise RefusedRun(f"the launcher started {world_size} ranks and Megatron's groups make {ranks}; start them with one launcher")


def rank_slices(place: Mapping[str, int], length: int) -> Slices:
    """Return the slices [start, stop) of the sequence on this context-parallel rank."""
    if place["cp_size"] > 1 and getattr(get_args(), "context_parallel_algo", None) != ULYSSES:
        return zigzag(place["cp"], place["cp_size"], length)
    return part_of([[0, length]], place["cp"], place["cp_size"])


def first_row(place: Mapping[str, int], micro_batch: int, rows: int) -> int:
    """Return the number of a micro-batch's first row in the global batch: rows are in the order micro-batch, data-parallel rank, row."""
    return (micro_batch * place["dp_size"] + place["dp"]) * rows


def rows_of_step(args: Arguments) -> int | None:
    """Return the rows of a step on all ranks; None where their number changes."""
    return None if getattr(args, "rampup_batch_size", None) else samples_of_step()


def is_expert(name: str) -> bool:
    """Return whether a native name is an expert's."""
    return ".experts." in name  # Megatron marks experts only where expert parallelism is on


UNMARKED = ".softmax_offset"
"""Suffix of a parameter of which each tensor-parallel rank holds its own heads', though Megatron does not mark it."""


def is_split(name: str, parameter: torch.nn.Parameter) -> bool:
    """Return whether tensor-parallel ranks each hold a part of a parameter, and no replica."""
    return bool(getattr(parameter, "tensor_model_parallel", False)) or is_expert(name) or name.endswith(UNMARKED)


def cut(name: str, parameter: torch.nn.Parameter, place: Mapping[str, int]) -> Cut:
    """Return a tensor-parallel rank's part of a parameter, or WHOLE."""
    axis = "etp" if is_expert(name) else "tp"
    # the axis is left to the name table: up to Megatron 0.18 Transformer Engine marks every axis of an expert 0
    return Cut(None, place[axis], place[f"{axis}_size"]) if is_split(name, parameter) else WHOLE


def is_counted(name: str, parameter: torch.nn.Parameter, place: Mapping[str, int], *, flat: bool) -> bool:
    """Return whether this rank is the first of those that hold its part; ``flat`` where a distributed optimizer gave each rank a range."""
    if getattr(parameter, "shared", False):  # Megatron's mark of the last stage's copy of a tied embedding
        return False
    tensor, data = ("etp", ("edp",)) if is_expert(name) else ("tp", ("dp", "cp"))
    first = place[tensor] == 0 or is_split(name, parameter)
    return first and (flat or all(place[axis] == 0 for axis in data))
