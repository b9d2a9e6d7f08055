"""Patches when it is imported, at the head of a script; ``repatch`` takes all of it back and applies it anew."""

from __future__ import annotations

from mindspeed.patch_utils import MindSpeedPatchesManager


def patch() -> None:
    from mindspeed import functions

    register = MindSpeedPatchesManager.register_patch
    register("stand_in.seams.train", functions.train_wrapper)
    register("stand_in.seams.evaluate", functions.replaced_evaluate)
    register("stand_in.seams.Optimizer.step", functions.replaced_step)
    register("stand_in.seams.FusedAdam", functions.FusedAdam)
    MindSpeedPatchesManager.apply_patches()


def repatch() -> None:
    MindSpeedPatchesManager.remove_patches()
    patch()


patch()
