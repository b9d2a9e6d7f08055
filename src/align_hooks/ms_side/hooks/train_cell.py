"""The training cell, built and not yet compiled.

Seam: the return of ``MFTrainOneStepCell.__init__``. It is a Python-level door: its ``construct`` is compiled from source
text later and finds the attributes that stand here by then, among them the ``grad_reducer`` that
:mod:`align_hooks.ms_side.reducer` takes the place of.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import mindspore

from align_hooks.errors import RefusedRun
from align_hooks.ms_side.model import Parameters, huggingface_config, llama_config, parameters_of
from align_hooks.ms_side.place import refuse_shards
from align_hooks.ms_side.reducer import CaptureGradients, capture_bytes
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
    if not (settings.run is not None or settings.local_norms or settings.load_weights is not None):
        return
    config = llama_config(cell)
    session.parameters = parameters_of(cell.weights, config, vocabulary(session), counted=session.launch.rank == 0)
    session.model_config = huggingface_config(config, session.parameters.dims)
    unclipped = settings.run is not None and not cell.use_clip_grad  # then MindFormers takes no global norm, and ours is recorded
    norms, gradients = bool(settings.local_norms) or unclipped, bool(settings.gradients)
    if norms or gradients:
        announce(session, session.parameters, norms=norms, gradients=gradients)
        session.reducer = CaptureGradients(
            cell.grad_reducer, session.parameters, point=settings.local_norms_point, norms=norms, gradients=gradients
        )
        cell.grad_reducer = session.reducer


def vocabulary(session: MsSession) -> int | None:
    """Rows of the vocabulary without padding: MindFormers has no notion of it, the run that feeds this one has."""
    if session.settings.load_weights is not None:
        return vocabulary_of(session.settings.load_weights)
    if session.replay is not None:
        size = session.replay.run.manifest.get("model", {}).get("vocab_size")
        return None if size is None else int(size)
    return None


def announce(session: MsSession, parameters: Parameters, *, norms: bool, gradients: bool) -> None:
    """Say what capturing takes on the device; refuse what does not fit."""
    needed, free = capture_bytes(parameters, norms=norms, gradients=gradients), free_memory()
    session.say(f"capturing gradients takes {needed / 1e6:.1f} MB of device memory in every step")
    if free is not None and needed > free:
        raise RefusedRun(
            f"capturing gradients needs {needed / 1e9:.1f} GB and the device has {free / 1e9:.1f} GB free; "
            f"unset {PREFIX}GRADIENTS and keep {PREFIX}LOCAL_NORMS, which needs 1/8192 of it"
        )


def free_memory() -> int | None:
    """Free bytes where parameters live; None where the device does not tell."""
    if mindspore.get_context("device_target") == "CPU":
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    properties = mindspore.hal.get_device_properties(mindspore.get_context("device_id"))
    return getattr(properties, "free_memory", None) or getattr(properties, "total_memory", None)
