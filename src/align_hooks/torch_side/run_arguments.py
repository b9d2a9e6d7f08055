"""The arguments of the run that trains, by Megatron-LM's names, whichever loop trains it.

Megatron-LM's own loop, and loops that parse its arguments, have them as a namespace. Other loops on megatron.core have configurations of
the model, the optimizer and the data-parallel wrapper, most members of which have the same names: :class:`OwnArguments` reads them there.
"""

import functools
import sys
from types import ModuleType
from typing import Any

from megatron.core.num_microbatches_calculator import get_num_microbatches

from align_hooks.torch_side.objects import Argument, Arguments

ALIASES = {"num_experts": "num_moe_experts", "norm_epsilon": "layernorm_epsilon", "bias_swiglu_fusion": "bias_activation_fusion"}
"""Arguments to members of configurations that have another name there."""
OPPOSITES = {"no_persist_layer_norm": "persist_layer_norm"}
"""Arguments to members that say the opposite."""
UNSTATED = ("exit_interval", "rampup_batch_size", "reset_position_ids", "seed", "train_iters")
"""Arguments that a loop may not state; None stands for unknown."""


class OwnArguments:
    """The arguments of a loop that has no namespace of them: each is read, and set, in the first of some objects that has it."""

    def __init__(self, *parts: object, **stated: Argument) -> None:
        """``parts`` are the loop's configurations; ``stated`` are members that none of them has."""
        nowhere = {name: None for name in UNSTATED if not any(hasattr(part, name) for part in parts)}
        vars(self).update(nowhere | stated, _parts=parts)

    def _held(self, name: str) -> tuple[object, str]:
        """Return the object that has an argument, and the name of its member there."""
        names = (name, ALIASES.get(name, name), OPPOSITES.get(name, name))
        found = next(((part, held) for held in names for part in self._parts if hasattr(part, held)), None)
        if found is None or name.startswith("_"):
            raise AttributeError(name)
        return found

    def __getattr__(self, name: str) -> Any:
        part, held = self._held(name)
        return not getattr(part, held) if held == OPPOSITES.get(name) else getattr(part, held)

    def __setattr__(self, name: str, value: Argument) -> None:
        if name in vars(self):
            vars(self)[name] = value
            return
        part, held = self._held(name)
        setattr(part, held, not value if held == OPPOSITES.get(name) else value)


_own: list[OwnArguments] = []


def get_args() -> Arguments:
    """Return the arguments of the run that trains in this process."""
    return _own[0] if _own else _training().get_args()


@functools.cache
def _training() -> ModuleType:
    from megatron import training  # not at the top: a loop of one's own may come without it

    module: ModuleType = training
    return module


def set_args(arguments: OwnArguments) -> None:
    """Let these be the arguments of the run."""
    _own[:] = [arguments]


def are_parsed() -> bool:
    """Return whether Megatron-LM's arguments were parsed."""
    return getattr(sys.modules.get("megatron.training.global_vars"), "_GLOBAL_ARGS", None) is not None


def are_own() -> bool:
    """Return whether a loop's own arguments are those of the run."""
    return bool(_own)


def num_micro_batches() -> int:
    """Return the micro-batches of a step on each rank: of an own loop without Megatron-LM's calculator those of the last call."""
    args = get_args()
    return int(args.micro_batches if hasattr(args, "micro_batches") else get_num_microbatches())


def samples_of_step() -> int:
    """Return the samples of a step on all ranks."""
    args = get_args()
    return int(args.micro_batch_size * args.data_parallel_size * num_micro_batches())


def texts(args: Arguments) -> dict[str, str] | None:
    """Return the parsed arguments as texts by name; None, for unknown, where a loop has configurations instead."""
    return None if isinstance(args, OwnArguments) else {name: str(value) for name, value in sorted(vars(args).items())}
