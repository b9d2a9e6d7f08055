"""Gradients at the moment Megatron has finished producing them: reduced, unscaled, not yet clipped.

Seam: ``prepare_grads`` of the two leaf optimizers. ``ChainedOptimizer.prepare_grads`` only loops over them: wrapping it
too would record everything twice. ``get_parameters``, the guide's seam, is called by clipping, by zero counting and by
checkpointing, in some of them before a gradient exists. Module or parameter hooks would reorder gradient accumulation
and change the run in its last bits; here everything is over and only read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from align_hooks.replay.gradients import Injection
from align_hooks.torch_side.arrays import squared_sum
from align_hooks.torch_side.model import pieces
from align_hooks.torch_side.session import TorchSession


def wrap(session: TorchSession) -> Callable[..., Any]:
    """A wrapper of ``prepare_grads`` that reads the gradients after it, and then puts injected ones in their place."""

    def around(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        found_inf = wrapped(*args, **kwargs)
        with session.surviving("gradients"):
            read(session)
        if session.injection is not None and session.step in session.injection.steps:
            finite = inject(session, session.injection, session.step)
            return getattr(instance, "grad_scaler", None) is not None and not finite
        return found_inf

    return around


def read(session: TorchSession) -> None:
    """Take the norms, left on the device until the step ends, and write the gradients."""
    norms, gradients = session.wants("local_norms"), session.wants("gradients")
    if session.parameters is None or session.step is None or not (norms or gradients):
        return
    found = session.parameters.gradients()
    if norms:
        session.norms |= {name: squared_sum(piece) for fused, gradient in found for name, piece in fused.split(gradient)}
    if gradients and session.record is not None:
        session.record.gradients(session.step, pieces(found) if session.parameters.counted else {})
        session.recorded("gradients")


def inject(session: TorchSession, injection: Injection, step: int) -> bool:
    """Overwrite every gradient, in the tensor that the optimizer reads, with the source's of ``step``.

    Returns whether all of them are finite: with loss scaling that, and not the run's own overflow, decides over the update.
    Not survived when it fails: an update with half of the gradients is neither run's.
    """
    assert session.parameters is not None
    finite = True
    for fused, gradient in session.parameters.gradients():
        array = injection.read(step, fused)
        finite = finite and bool(np.isfinite(array).all())
        gradient.copy_(torch.from_numpy(array))
    injection.made.add(step)
    return finite
