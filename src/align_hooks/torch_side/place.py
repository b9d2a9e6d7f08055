"""This process's place in Megatron's parallel grid."""

from __future__ import annotations

from megatron.core import parallel_state

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
