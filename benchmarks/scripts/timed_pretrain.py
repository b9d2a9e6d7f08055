"""``pretrain_gpt.py`` that notes how long our hooks hold the training thread: all that they do around the framework's functions."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

from align_hooks.hooking import attach

around = attach._around


def hook(which: Any, session: Any, wrapped: Any, *call: Any) -> Any:
    """Run a hook, without the function that it calls; those outside of steps are not timed."""
    if not which.in_step:
        return around(which, session, wrapped, *call)
    return ours(around)(which, session, theirs(wrapped), *call)


attach._around = hook  # before megatron is imported, which attaches our hooks

from held import ours, theirs  # noqa: E402

from align_hooks.torch_side.hooks import forward, train_step  # noqa: E402
from align_hooks.torch_side.probe_recorder import ProbeRecorder  # noqa: E402

guarded = train_step.guarded


def forward_step(handler: Any, survivor: Any, function: Any, *call: Any) -> Any:
    """Run what is around a script's forward step."""
    return ours(guarded)(handler, survivor, theirs(function), *call)


if __name__ == "__main__":
    train_step.guarded = forward_step
    for owner, name in ((train_step, "returned"), (forward, "weigh"), (ProbeRecorder, "_see"), (ProbeRecorder, "_gradient")):
        setattr(owner, name, ours(getattr(owner, name)))
    runpy.run_path(str(Path(__file__).parents[2] / "launch" / "pretrain_gpt.py"), run_name="__main__")
