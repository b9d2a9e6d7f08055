"""Gradients at the moment Megatron has finished producing them: reduced, unscaled, not yet clipped.

Seam: ``prepare_grads`` of the two leaf optimizers. ``ChainedOptimizer.prepare_grads`` only loops over them: wrapping it
too would record everything twice. ``get_parameters``, the guide's seam, is called by clipping, by zero counting and by
checkpointing, in some of them before a gradient exists. Module or parameter hooks would reorder gradient accumulation
and change the run in its last bits; here everything is over and only read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from align_hooks.torch_side.arrays import squared_sum
from align_hooks.torch_side.model import pieces
from align_hooks.torch_side.session import TorchSession


def wrap(session: TorchSession) -> Callable[..., Any]:
    """A wrapper of ``prepare_grads`` that reads the gradients after it."""

    def around(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        found_inf = wrapped(*args, **kwargs)
        with session.surviving("gradients"):
            read(session)
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
