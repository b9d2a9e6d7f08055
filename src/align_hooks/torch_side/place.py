"""This process's place in Megatron's parallel grid, and what part of a parameter that place holds."""

from __future__ import annotations

import math
from typing import Any

from megatron.core import parallel_state
from packaging.version import Version

from align_hooks.errors import RefusedRun
from align_hooks.names.blocks import WHOLE, Cut
from align_hooks.torch_side.refusals import unread

AXES = {
    "dp": "data_parallel",
    "tp": "tensor_model_parallel",
    "pp": "pipeline_model_parallel",
    "cp": "context_parallel",
    "ep": "expert_model_parallel",
    "etp": "expert_tensor_parallel",
    "edp": "expert_data_parallel",
}
"""The axes of a place. Experts have tensor- and data-parallel ranks of their own, and lie across the others' data-parallel ranks."""

ALONE = dict.fromkeys(AXES, 0) | {f"{axis}_size": 1 for axis in AXES}
"""The place of a process that is the whole job."""


def place() -> dict[str, int]:
    """Axis to this rank's index on it, and ``<axis>_size`` to the number of ranks along it."""
    found = {}
    for axis, name in AXES.items():
        found[axis] = getattr(parallel_state, f"get_{name}_rank")()
        found[f"{axis}_size"] = getattr(parallel_state, f"get_{name}_world_size")()
    return found


def refuse_layouts(found: dict[str, int], world_size: int, args: Any, version: str) -> None:
    """Refuse the layouts whose shards cannot be told apart, in megatron-core ``version``."""
    if why := list(unread(lambda name: getattr(args, name, None))):
        raise RefusedRun("\n".join(why))
    if found["cp_size"] > 1 and Version(version) < Version("0.13"):
        raise RefusedRun(f"Megatron {version} reports the losses of all context-parallel ranks on each of them; use 0.13 or newer")
    ranks = math.prod(found[f"{axis}_size"] for axis in ("dp", "tp", "pp", "cp"))
    if ranks != world_size:
        raise RefusedRun(f"the launcher started {world_size} ranks and Megatron's groups make {ranks}; start them with one launcher")


def is_expert(name: str) -> bool:
    """Whether a native name is an expert's, which lies across other ranks; Megatron marks it so only where expert parallelism is on."""
    return ".experts." in name


def cut(name: str, parameter: Any, found: dict[str, int]) -> Cut:
    """The part of a parameter that a tensor-parallel rank holds; the whole where it is replicated.

    The axis is the name table's to say: Transformer Engine marks every axis of an expert 0 up to Megatron 0.18.
    """
    axis = "etp" if is_expert(name) else "tp"
    if not (getattr(parameter, "tensor_model_parallel", False) or is_expert(name)):
        return WHOLE
    return Cut(None, found[axis], found[f"{axis}_size"])


def is_counted(name: str, parameter: Any, found: dict[str, int], *, flat: bool) -> bool:
    """Whether this rank accounts for what it holds of a parameter, and not another rank that holds the same.

    Of data- and context-parallel copies the first rank's counts, unless a distributed optimizer gave each its own range
    (``flat``); of tensor-parallel copies the first rank's; of a tied embedding the first pipeline stage's, not the last's, which
    Megatron marks ``shared``.
    """
    if getattr(parameter, "shared", False):
        return False
    tensor, data = ("etp", ("edp",)) if is_expert(name) else ("tp", ("dp", "cp"))
    replicated = not (getattr(parameter, "tensor_model_parallel", False) or is_expert(name))
    return not (replicated and found[tensor] > 0) and (flat or all(found[axis] == 0 for axis in data))
