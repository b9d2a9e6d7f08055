"""Gradients at the moment Megatron has finished producing them: reduced, unscaled, not yet clipped.

Patch point: ``prepare_grads`` of the two leaf optimizers. ``ChainedOptimizer.prepare_grads`` only loops over them: wrapping it too would
record everything twice. ``get_parameters``, the guide's patch point, is called by clipping, zero counting and checkpointing, sometimes
before a gradient exists. Module or parameter hooks would reorder gradient accumulation and change the run in its last bits.
"""

import numpy as np
import torch

from align_hooks.hooking.hook import Args, Function, Instance, Kwargs, Result
from align_hooks.quantities.gradients import GRADIENTS
from align_hooks.quantities.local_norms import LOCAL_NORMS
from align_hooks.quantities.sketches import GRADIENT_SKETCHES
from align_hooks.replay.gradients import Injection
from align_hooks.session.step import record_gradients
from align_hooks.torch_side.arrays import bypass_device_rewriting
from align_hooks.torch_side.model import pieces
from align_hooks.torch_side.optimizer import chain
from align_hooks.torch_side.session import TorchSession


def wrap(session: TorchSession, wrapped: Function, instance: Instance, args: Args, kwargs: Kwargs) -> Result:
    """Call ``prepare_grads``, read the gradients, and put injected gradients in their place."""
    found_inf = wrapped(*args, **kwargs)
    if session.step is None or session.optimizer is None:
        return found_inf
    recording, asked = session.recording, session.injection
    injection = asked if asked is not None and session.step in asked.steps else None
    with recording.must_succeed() if injection is not None else recording.isolate_failures("gradients"):
        if instance is chain(session.optimizer)[-1]:  # a chain prepares the gradients of all its optimizers before it uses any
            with recording.isolate_failures("gradients"), bypass_device_rewriting(session):
                read(session)
            if injection is not None:
                inject(session, injection, session.step)
        if injection is not None:
            return getattr(instance, "grad_scaler", None) is not None and not injection.is_finite(session.step)
    return found_inf


def read(session: TorchSession) -> None:
    """Compute norms and sketches, on the device until the step ends, and write the gradients."""
    norms, sketched, gradients = (session.recording.wants(kind) for kind in (LOCAL_NORMS, GRADIENT_SKETCHES, GRADIENTS))
    if session.parameters is None or session.step is None or not (norms or sketched or gradients):
        return
    pairs = session.parameters.gradients()
    if norms or sketched:
        session.current.norms = session.parameters.gradient_plan.norms((each.fused, gradient) for each, gradient in pairs)
        session.current.gradients = pairs
    if norms and session.place["dp_size"] * session.place["cp_size"] > 1:  # other ranks compute with copies of this rank's weights
        # not before: updated weights may be gathered as late as in the forward pass
        session.current.computed = session.parameters.computed_norms()
    counted = [(each.fused, gradient) for each, gradient in pairs if each.counted]
    if sketched:
        session.current.sketches = session.parameters.gradient_sketch_plan.sketches(counted)
    record_gradients(session, lambda: pieces(counted))


def inject(session: TorchSession, injection: Injection, step: int) -> None:
    """Overwrite every gradient, in the tensor that the optimizer reads, with the source's gradient of ``step``."""
    # a failure ends the run: an update with half of the gradients is neither run's
    assert session.parameters is not None
    for parameter, gradient in session.parameters.gradients():
        gradient.copy_(torch.from_numpy(np.ascontiguousarray(injection.read(step, parameter.fused))))
    injection.made.add(step)
