"""Patches when it is imported, at the head of a script; ``repatch`` takes all of it back and applies it anew. What is put into the
framework is a decorator, two replacements, and a class. One calls what it took from the framework by an alias, which the patches leave
alone, as they go by name."""

import functools
from collections.abc import Callable
from typing import Any

from mindspeed.patch_utils import MindSpeedPatchesManager
from stand_in.seams import FusedAdam as Original
from stand_in.seams import train as megatrons_train


def train_wrapper(train: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(train)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return ["decorated", *train(*args, **kwargs)]

    return wrapper


def replaced_evaluate(step: int) -> list[object]:
    return ["replaced", *megatrons_train(step)]


def replaced_step(self: Any, count: int) -> list[object]:
    return ["replaced step", count]


class FusedAdam(Original):
    """Overrides a method and calls the one that it overrides, which is hooked too."""

    def step(self, count: int) -> list[object]:
        return ["its own", *super().step(count)]


def patch() -> None:
    register = MindSpeedPatchesManager.register_patch
    register("stand_in.seams.train", train_wrapper)
    register("stand_in.seams.evaluate", replaced_evaluate)
    register("stand_in.seams.Optimizer.step", replaced_step)
    register("stand_in.seams.FusedAdam", FusedAdam)
    MindSpeedPatchesManager.apply_patches()


def repatch() -> None:
    MindSpeedPatchesManager.remove_patches()
    patch()


patch()
