"""The built optimizer: its hyper-parameters, and its moments under canonical names.

Megatron wraps one or several torch-like optimizers, each of which keeps its state by the tensor that it updates, the fp32 main parameter
where there is one. ``torch.optim`` counts updates per parameter, Apex and Transformer Engine per group.
"""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from align_hooks.errors import RefusedRun
from align_hooks.names.blocks import Array
from align_hooks.names.fused import Fused
from align_hooks.quantities.optimizer_state import MOMENTS, MOMENTUM
from align_hooks.record.reader import OptimizerState
from align_hooks.settings import PREFIX
from align_hooks.torch_side import muon
from align_hooks.torch_side.arrays import dtype_of
from align_hooks.torch_side.fully_sharded import shard, sharded_as
from align_hooks.torch_side.model import Parameter, Parameters, pieces
from align_hooks.torch_side.objects import Optimizer

LAYER_WISE = "LayerWiseDistributedOptimizer"
"""The class of Megatron's optimizer that gives each tensor to a single data-parallel rank."""


def chain(optimizer: Optimizer) -> list[Optimizer]:
    """Return the optimizers to which ChainedOptimizer forwards, in its order; the layer-wise optimizer is one itself."""
    if not hasattr(optimizer, "chained_optimizers"):
        return [optimizer]
    return [leaf for each in optimizer.chained_optimizers for leaf in chain(each)]


def updated_layer_wise(optimizer: Optimizer) -> frozenset[int] | None:
    """Return the ids of the tensors that this rank's layer-wise optimizer updates, each whole; None without such an optimizer."""
    found = [each for each in (optimizer, *getattr(optimizer, "chained_optimizers", ())) if type(each).__name__ == LAYER_WISE]
    groups = [group for each in found for leaf in leaf_optimizers(each) for group in leaf.optimizer.param_groups]
    return frozenset(id(main) for group in groups for main in group["params"]) if found else None


def leaf_optimizers(optimizer: Optimizer) -> list[Optimizer]:
    """Return the optimizers that hold parameters on this rank."""
    return [leaf for leaf in chain(optimizer) if getattr(leaf, "optimizer", None) is not None]


def optimizer_facts(optimizer: Optimizer, parameters: Parameters) -> dict[str, object]:
    """Return the optimizer's present hyper-parameters by parameter group, with canonical names."""
    held = {id(parameter.in_optimizer): parameter for parameter in parameters if parameter.in_optimizer is not None}
    leaves = leaf_optimizers(optimizer)
    return {
        "type": " and ".join(dict.fromkeys(type(leaf.optimizer).__name__ for leaf in leaves)) or "none on this rank",
        "decoupled_weight_decay": next((stated for leaf in leaves if (stated := decouples(leaf.optimizer)) is not None), None),
        "clip_grad": float(optimizer.config.clip_grad) or None,
        "groups": [
            {
                "learning_rate": float(group["lr"]),
                "betas": [float(beta) for beta in group["betas"]] if "betas" in group else None,
                "eps": float(group["eps"]) if "eps" in group else None,
                "bias_correction": corrects(leaf.optimizer, group),
                "weight_decay": float(group["weight_decay"]),
                "optimizer": type(leaf.optimizer).__name__,
                "moments": moments_of(leaf.optimizer),
                "parameters": [name for main in group["params"] if id(main) in held for name in held[id(main)].fused.pieces],
                **muon.hyper_parameters(leaf.optimizer, group, held),
            }
            for leaf in leaves
            for group in leaf.optimizer.param_groups
        ],
    }


def moments_of(inner: Optimizer) -> tuple[str, ...]:
    """Return the moments that an optimizer of torch keeps of each parameter; none where its class is unknown."""
    return (MOMENTUM,) if muon.is_muon(inner) else MOMENTS if "Adam" in type(inner).__name__ else ()


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
    """Map moment and canonical name to fp32 moments, without other ranks' copies; zeros before the first update."""
    leaves = leaf_optimizers(optimizer)
    states = {id(main): state for leaf in leaves for main, state in leaf.optimizer.state.items()}
    kept = {id(main): moments_of(leaf.optimizer) for leaf in leaves for group in leaf.optimizer.param_groups for main in group["params"]}
    counted = [(parameter, main) for parameter, main in parameters.updated if parameter.model.requires_grad and parameter.counted]

    def moment_of(parameter: Parameter, main: torch.Tensor, moment: str) -> torch.Tensor:
        state = states.get(id(parameter.in_optimizer), {})
        return shard(state[moment]) if moment in state else torch.zeros_like(main, dtype=torch.float32)

    return {
        moment: pieces(
            (parameter.fused, moment_of(parameter, main, moment))
            for parameter, main in counted
            if moment in kept.get(id(parameter.in_optimizer), ())
        )
        for moment in dict.fromkeys(moment for leaf in leaves for moment in moments_of(leaf.optimizer))
    }


def moment_dtypes(optimizer: Optimizer) -> dict[str, str]:
    """Return the type in which the optimizer keeps each moment; the configured type before the first update."""
    types: dict[str, str] = {}
    for leaf in leaf_optimizers(optimizer):
        state: dict[str, torch.Tensor] = next(iter(leaf.optimizer.state.values()), {})
        for moment in moments_of(leaf.optimizer):
            setting = getattr(leaf.config, f"{moment}_dtype", torch.float32)
            types[moment] = dtype_of(state[moment].dtype if moment in state else setting)
    return types


def load_moments(optimizer: Optimizer, parameters: Parameters, state: OptimizerState) -> None:
    """Set the moments and Adam's count of updates; raises RefusedRun where the record has another optimizer's moments."""
    fused = {id(parameter.in_optimizer): parameter.fused for parameter in parameters}
    for leaf in leaf_optimizers(optimizer):
        names = moments_of(leaf.optimizer)
        per_parameter = type(leaf.optimizer).__module__.startswith("torch.")  # FusedAdam counts updates per group
        for group in leaf.optimizer.param_groups:
            if names == MOMENTS and not per_parameter:
                group["step"] = state.updates
            for main in group["params"] if names else ():
                _refuse_lacking(type(leaf.optimizer).__name__, names, fused[id(main)], state)
                arrays = {name: np.ascontiguousarray(fused[id(main)].join(state.moments[name])) for name in names}
                loaded = {name: sharded_as(main, torch.from_numpy(array).to(main.device)) for name, array in arrays.items()}
                if per_parameter:
                    on_device = group.get("capturable") or group.get("fused")
                    loaded["step"] = torch.tensor(float(state.updates), device=main.device if on_device else "cpu")
                leaf.optimizer.state[main] = loaded


def _refuse_lacking(optimizer: str, moments: Sequence[str], fused: Fused, state: OptimizerState) -> None:
    """Refuse to load where a moment of a parameter is not on record."""
    lacking = [(moment, name) for moment in moments for name in fused.pieces if name not in state.moments.get(moment, ())]
    if lacking:
        moment, name = lacking[0]
        raise RefusedRun(
            f"{PREFIX}LOAD_WEIGHTS: the record has no {moment} of {name}, which {optimizer} updates here; give both runs the same "
            "optimizer, or load a step without its state"
        )


def updates_made(leaves: Sequence[Optimizer]) -> torch.Tensor | int:
    """Return Adam's count of updates, on the device where a fused or capturable Adam counts there; 0 before the first."""
    states = (entry for leaf in leaves for entry in itertools.chain(leaf.optimizer.state.values(), leaf.optimizer.param_groups))
    made = next((state["step"] for state in states if "step" in state), 0)
    return made.detach().clone() if isinstance(made, torch.Tensor) else int(made)
