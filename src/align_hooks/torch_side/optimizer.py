"""The built optimizer: its hyper-parameters, and Adam's moments under canonical names.

Megatron wraps one or several torch-like optimizers, each of which keeps its state by the tensor that it updates, the fp32 main parameter
where there is one. ``torch.optim`` counts updates per parameter, Apex and Transformer Engine per group.
"""

from collections.abc import Mapping

import numpy as np
import torch

from align_hooks.names.blocks import Array
from align_hooks.record.format.layout import MOMENTS
from align_hooks.record.reader import OptimizerState
from align_hooks.torch_side.arrays import dtype_of
from align_hooks.torch_side.fully_sharded import shard, sharded_as
from align_hooks.torch_side.model import Parameter, Parameters, pieces
from align_hooks.torch_side.objects import Optimizer


def chain(optimizer: Optimizer) -> list[Optimizer]:
    """Return the optimizers to which ChainedOptimizer forwards, in its order."""
    return list(getattr(optimizer, "chained_optimizers", [optimizer]))


def leaf_optimizers(optimizer: Optimizer) -> list[Optimizer]:
    """Return the optimizers that hold parameters on this rank."""
    return [leaf for leaf in chain(optimizer) if getattr(leaf, "optimizer", None) is not None]


def optimizer_facts(optimizer: Optimizer, parameters: Parameters) -> dict[str, object]:
    """Return the optimizer's present hyper-parameters by parameter group, with canonical names."""
    names = {id(parameter.in_optimizer): parameter.fused.pieces for parameter in parameters}
    leaves = leaf_optimizers(optimizer)
    return {
        "type": type(leaves[0].optimizer).__name__ if leaves else "none on this rank",
        "decoupled_weight_decay": decouples(leaves[0].optimizer) if leaves else None,
        "clip_grad": float(optimizer.config.clip_grad) or None,
        "groups": [
            {
                "learning_rate": float(group["lr"]),
                "betas": [float(beta) for beta in group.get("betas", ())],
                "eps": float(group["eps"]) if "eps" in group else None,
                "bias_correction": corrects(leaf.optimizer, group),
                "weight_decay": float(group["weight_decay"]),
                "parameters": [name for main in group["params"] for name in names.get(id(main), ())],
            }
            for leaf in leaves
            for group in leaf.optimizer.param_groups
        ],
    }


def decouples(inner: Optimizer) -> bool | None:
    """Return whether weight decay acts on the weights rather than on the gradient; None where the optimizer does not say."""
    # adam_w_mode is of Apex's and Transformer Engine's FusedAdam; groups of torch's Adam say it themselves
    named = (group["decoupled_weight_decay"] for group in inner.param_groups if "decoupled_weight_decay" in group)
    stated = next(named, getattr(inner, "adam_w_mode", None))
    if stated is not None:
        return bool(stated)
    return True if "AdamW" in type(inner).__name__ else False if type(inner) in (torch.optim.Adam, torch.optim.SGD) else None


def corrects(inner: Optimizer, group: Mapping[str, object]) -> bool | None:
    """Return whether the bias of Adam's moments is corrected; None where unknown."""
    if "bias_correction" in group:
        return bool(group["bias_correction"])
    return True if "Adam" in type(inner).__name__ else None  # torch always corrects, and its groups do not say so


def moments(optimizer: Optimizer, parameters: Parameters) -> dict[str, dict[str, Array]]:
    """Map moment and canonical name to Adam's moments, fp32, without other ranks' copies; zeros before the first update."""
    states = {id(main): state for leaf in leaf_optimizers(optimizer) for main, state in leaf.optimizer.state.items()}
    counted = [(parameter, main) for parameter, main in parameters.updated if parameter.model.requires_grad and parameter.counted]

    def moment_of(parameter: Parameter, main: torch.Tensor, moment: str) -> torch.Tensor:
        state = states.get(id(parameter.in_optimizer), {})
        return shard(state[moment]) if moment in state else torch.zeros_like(main, dtype=torch.float32)

    return {moment: pieces((parameter.fused, moment_of(parameter, main, moment)) for parameter, main in counted) for moment in MOMENTS}


def moment_dtypes(optimizer: Optimizer) -> dict[str, str]:
    """Return the type in which the optimizer keeps each of Adam's moments; the configured type before the first update."""
    leaf = next(iter(leaf_optimizers(optimizer)), None)
    if leaf is None:
        return {}
    settings = {moment: getattr(leaf.config, f"{moment}_dtype", torch.float32) for moment in MOMENTS}
    state: dict[str, torch.Tensor] = next(iter(leaf.optimizer.state.values()), {})
    return {moment: dtype_of(state[moment].dtype if moment in state else settings[moment]) for moment in MOMENTS}


def load_moments(optimizer: Optimizer, parameters: Parameters, state: OptimizerState) -> None:
    """Set Adam's moments and its count of updates."""
    fused = {id(parameter.in_optimizer): parameter.fused for parameter in parameters}
    for leaf in leaf_optimizers(optimizer):
        per_parameter = type(leaf.optimizer).__module__.startswith("torch.")  # FusedAdam counts updates per group
        for group in leaf.optimizer.param_groups:
            if not per_parameter:
                group["step"] = state.updates
            for main in group["params"]:
                arrays = {name: np.ascontiguousarray(fused[id(main)].join(tensors)) for name, tensors in state.moments.items()}
                loaded = {name: sharded_as(main, torch.from_numpy(array).to(main.device)) for name, array in arrays.items()}
                if per_parameter:
                    on_device = group.get("capturable") or group.get("fused")
                    loaded["step"] = torch.tensor(float(state.updates), device=main.device if on_device else "cpu")
                leaf.optimizer.state[main] = loaded


def updates_made(optimizer: Optimizer) -> torch.Tensor | int:
    """Return Adam's count of updates, on the device where a fused or capturable Adam counts there; 0 before the first."""
    states = (entry for leaf in leaf_optimizers(optimizer) for entry in (*leaf.optimizer.state.values(), *leaf.optimizer.param_groups))
    made = next((state["step"] for state in states if "step" in state), 0)
    return made.detach().clone() if isinstance(made, torch.Tensor) else int(made)
