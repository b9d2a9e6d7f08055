"""The training cell, built and not yet compiled.

Seam: the return of ``__init__`` of ``MFTrainOneStepCell`` and ``MFPipelineWithLossScaleCell``. It is a Python-level door:
its ``construct`` is compiled from source text later and finds the attributes that stand here by then, among them the Cell
that :mod:`align_hooks.ms_side.reducer` takes the place of.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import mindspore

from align_hooks.errors import RefusedRun
from align_hooks.ms_side.catalogue import training
from align_hooks.ms_side.model import Parameters, huggingface_config, llama_config, parameters_of
from align_hooks.ms_side.place import refuse_shards
from align_hooks.ms_side.reducer import CaptureGradients, CaptureThenClip, Unreduced, capture_bytes
from align_hooks.ms_side.session import MsSession
from align_hooks.replay.weights import vocabulary_of
from align_hooks.settings import PREFIX


def wrap(session: MsSession) -> Callable[..., Any]:
    """A wrapper of the training cell's ``__init__`` that prepares it for what was asked."""

    def around(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        wrapped(*args, **kwargs)
        prepare(session, instance)

    return around


def prepare(session: MsSession, cell: Any) -> None:
    """Everything that has to happen before the cell is compiled."""
    settings = session.settings
    if settings.device == "cpu":
        # On an unknown device MindFormers takes the overflow operator of Ascend 910A; this path has CPU kernels.
        cell.ascend_910b_target, cell.enable_allfinite = True, False
    if settings.run is not None or session.replay is not None:
        refuse_shards(session.launch)
    session.train_cell = cell
    if not training(settings):
        return
    config = llama_config(cell)
    launch = session.launch
    session.parameters = parameters_of(cell.weights, config, vocabulary(session), counted=launch.rank == 0, alone=launch.world_size == 1)
    session.model_config = huggingface_config(config, session.parameters.dims)
    unclipped = settings.run is not None and not cell.use_clip_grad  # then MindFormers takes no global norm, and ours is recorded
    seen = {
        "norms": bool(settings.local_norms) or unclipped,
        "gradients": bool(settings.gradients),
        "inject": session.injection is not None,
    }
    if any(seen.values()):
        announce(session, session.parameters, seen)
        install(session, cell, session.parameters, seen)


def install(session: MsSession, cell: Any, parameters: Parameters, seen: Mapping[str, bool]) -> None:
    """Put the capturing Cell where the training cell's gradients are reduced and unscaled and not yet clipped."""
    point = session.settings.local_norms_point
    if "Pipeline" not in type(cell).__name__:
        session.reducer = cell.grad_reducer = CaptureGradients(cell.grad_reducer, parameters, point=point, **seen)
        return
    if point == "local":
        raise RefusedRun(f"{PREFIX}LOCAL_NORMS_POINT=local: {type(cell).__name__} reduces while it accumulates; unset it")
    if not cell.use_clip_grad:
        raise RefusedRun(
            f"{type(cell).__name__} shows its unscaled gradients only to its clipping; set runner_wrapper.use_clip_grad: True, "
            f"with a max_grad_norm that no step reaches where nothing shall be clipped"
        )
    session.reducer = CaptureGradients(Unreduced(), parameters, point=point, **seen)
    cell.clip_grad_norm = CaptureThenClip(session.reducer, cell.clip_grad_norm)


def vocabulary(session: MsSession) -> int | None:
    """Rows of the vocabulary without padding: MindFormers has no notion of it, the run that feeds this one has."""
    if session.settings.load_weights is not None:
        return vocabulary_of(session.settings.load_weights)
    if session.replay is not None:
        size = session.replay.run.manifest.get("model", {}).get("vocab_size")
        return None if size is None else int(size)
    return None


def announce(session: MsSession, parameters: Parameters, seen: Mapping[str, bool]) -> None:
    """Say what capturing and injecting take on the device; refuse what does not fit."""
    needed, free = capture_bytes(parameters, **seen), free_memory()
    what = "capturing and injecting" if seen["inject"] else "capturing"
    session.say(f"{what} gradients takes {needed / 1e6:.1f} MB of device memory in every step")
    if free is not None and needed > free:
        raise RefusedRun(
            f"{what} gradients needs {needed / 1e9:.1f} GB and the device has {free / 1e9:.1f} GB free; "
            f"unset {PREFIX}GRADIENTS and keep {PREFIX}LOCAL_NORMS, which needs 1/8192 of it"
        )


def free_memory() -> int | None:
    """Free bytes where parameters live; None where the device does not tell."""
    if mindspore.get_context("device_target") == "CPU":
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    properties = mindspore.hal.get_device_properties(mindspore.get_context("device_id"))
    return getattr(properties, "free_memory", None) or getattr(properties, "total_memory", None)
