"""The built optimizer: its hyper-parameters, and Adam's moments under canonical names.

Megatron wraps one or several torch-like optimizers; each keeps its state by the parameter that it updates, which is the
fp32 main parameter where there is one. ``torch.optim`` counts updates per parameter, Apex and Transformer Engine per group.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from align_hooks.record.layout import MOMENTS
from align_hooks.record.reader import OptimizerState
from align_hooks.torch_side.model import Parameters, pieces


def chain(optimizer: Any) -> list[Any]:
    """The optimizers that ChainedOptimizer forwards to, in its order."""
    return list(getattr(optimizer, "chained_optimizers", [optimizer]))


def leaf_optimizers(optimizer: Any) -> list[Any]:
    """Those that hold parameters on this rank."""
    return [leaf for leaf in chain(optimizer) if getattr(leaf, "optimizer", None) is not None]


def optimizer_facts(optimizer: Any, parameters: Parameters) -> dict[str, Any]:
    """Hyper-parameters a parameter group, as the optimizer holds them at the start, with canonical names."""
    names = {id(main): parameter.fused.pieces for parameter, main in parameters.held}
    groups = []
    for leaf in leaf_optimizers(optimizer):
        for group in leaf.optimizer.param_groups:
            held = [name for one in group["params"] for name in names.get(id(one), ())]
            groups.append(
                {
                    "learning_rate": float(group["lr"]),
                    "betas": [float(beta) for beta in group.get("betas", ())],
                    "eps": float(group["eps"]) if "eps" in group else None,
                    "bias_correction": bool(group.get("bias_correction", True)),
                    "weight_decay": float(group["weight_decay"]),
                    "parameters": held,
                }
            )
    leaves = leaf_optimizers(optimizer)
    return {
        "type": type(leaves[0].optimizer).__name__ if leaves else "none on this rank",
        "decoupled_weight_decay": bool(getattr(optimizer.config, "decoupled_weight_decay", True)),
        "clip_grad": float(optimizer.config.clip_grad) or None,
        "groups": groups,
    }


def moments(optimizer: Any, parameters: Parameters) -> dict[str, dict[str, NDArray[Any]]]:
    """Adam's moments: moment name to canonical name to fp32 array; zeros where no update was made yet, nothing of copies."""
    state = {id(key): held for leaf in leaf_optimizers(optimizer) for key, held in leaf.optimizer.state.items()}
    counted = [(one, main) for one, main in parameters.held if one.model.requires_grad and one.counted]
    return {
        moment: pieces(
            (one.fused, state.get(id(main), {}).get(moment, torch.zeros_like(main, dtype=torch.float32))) for one, main in counted
        )
        for moment in MOMENTS
    }


def moment_dtypes(optimizer: Any) -> dict[str, str]:
    """The type in which the optimizer keeps each of Adam's moments, which a record makes fp32; its settings' before the first update."""
    leaves = leaf_optimizers(optimizer)
    if not leaves:
        return {}
    leaf = leaves[0]
    held: dict[str, Any] = next(iter(leaf.optimizer.state.values()), {})
    dtypes = {
        moment: held[moment].dtype if moment in held else getattr(leaf.config, f"{moment}_dtype", torch.float32) for moment in MOMENTS
    }
    return {moment: str(dtype).removeprefix("torch.") for moment, dtype in dtypes.items()}


def load_moments(optimizer: Any, parameters: Parameters, state: OptimizerState) -> None:
    """Set Adam's moments and its count of updates, which torch keeps per parameter and FusedAdam per group."""
    fused = {id(main): parameter.fused for parameter, main in parameters.held}
    for leaf in leaf_optimizers(optimizer):
        for group in leaf.optimizer.param_groups:
            per_parameter = type(leaf.optimizer).__module__.startswith("torch.")
            if not per_parameter:
                group["step"] = state.updates
            for main in group["params"]:
                arrays = {name: np.ascontiguousarray(fused[id(main)].join(tensors)) for name, tensors in state.moments.items()}
                held = {name: torch.from_numpy(array).to(main.device) for name, array in arrays.items()}
                if per_parameter:
                    on_device = group.get("capturable") or group.get("fused")
                    held["step"] = torch.tensor(float(state.updates), device=main.device if on_device else "cpu")
                leaf.optimizer.state[main] = held


def updates_made(optimizer: Any) -> int:
    """How many updates Adam has counted; 0 before the first."""
    for leaf in leaf_optimizers(optimizer):
        counts = [held["step"] for held in leaf.optimizer.state.values() if "step" in held]
        counts += [group["step"] for group in leaf.optimizer.param_groups if "step" in group]
        if counts:
            return int(counts[0])
    return 0
