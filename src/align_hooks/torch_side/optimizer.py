"""The built optimizer: its hyper-parameters, and Adam's moments under canonical names.

Megatron wraps one or several torch-like optimizers; each keeps its state by the parameter that it updates, which is the
fp32 main parameter where there is one. ``torch.optim`` counts updates per parameter, Apex and Transformer Engine per group.
"""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray

from align_hooks.record.layout import MOMENTS
from align_hooks.record.reader import OptimizerState
from align_hooks.torch_side.model import Parameters, pieces


def leaf_optimizers(optimizer: Any) -> list[Any]:
    """The optimizers that hold parameters; ChainedOptimizer only forwards to them."""
    return list(getattr(optimizer, "chained_optimizers", [optimizer]))


def optimizer_facts(optimizer: Any, parameters: Parameters) -> dict[str, Any]:
    """Hyper-parameters a parameter group, as the optimizer holds them at the start, with canonical names."""
    names = {id(parameter.main): parameter.fused.pieces for parameter in parameters}
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
    first = leaf_optimizers(optimizer)[0]
    return {
        "type": type(first.optimizer).__name__,
        "decoupled_weight_decay": bool(getattr(first.config, "decoupled_weight_decay", True)),
        "clip_grad": float(first.config.clip_grad) or None,
        "groups": groups,
    }


def moments(optimizer: Any, parameters: Parameters) -> dict[str, dict[str, NDArray[Any]]]:
    """Adam's moments: moment name to canonical name to fp32 array; zeros where no update was made yet, nothing of copies."""
    state = {id(key): held for leaf in leaf_optimizers(optimizer) for key, held in leaf.optimizer.state.items()}
    found: dict[str, dict[str, NDArray[Any]]] = {}
    for moment in MOMENTS:
        tensors = (
            (parameter.fused, state.get(id(parameter.main), {}).get(moment, torch.zeros_like(parameter.main, dtype=torch.float32)))
            for parameter in parameters
            if parameter.model.requires_grad and parameters.counted
        )
        found[moment] = pieces(tensors)
    return found


def moment_dtypes(optimizer: Any) -> dict[str, str]:
    """The type in which the optimizer keeps each of Adam's moments, which a record makes fp32; its settings' before the first update."""
    leaf = leaf_optimizers(optimizer)[0]
    held: dict[str, Any] = next(iter(leaf.optimizer.state.values()), {})
    dtypes = {
        moment: held[moment].dtype if moment in held else getattr(leaf.config, f"{moment}_dtype", torch.float32) for moment in MOMENTS
    }
    return {moment: str(dtype).removeprefix("torch.") for moment, dtype in dtypes.items()}


def load_moments(optimizer: Any, parameters: Parameters, state: OptimizerState) -> None:
    """Set Adam's moments and its count of updates, which torch keeps per parameter and FusedAdam per group."""
    fused = {id(parameter.main): parameter.fused for parameter in parameters}
    for leaf in leaf_optimizers(optimizer):
        for group in leaf.optimizer.param_groups:
            per_parameter = type(leaf.optimizer).__module__.startswith("torch.")
            if not per_parameter:
                group["step"] = state.updates
            for main in group["params"]:
                held = {name: torch.from_numpy(fused[id(main)].join(tensors)).to(main.device) for name, tensors in state.moments.items()}
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
