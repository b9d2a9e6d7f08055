"""Gradients, complete and not yet clipped, and what the optimizer is given.

Patch point: ``Trainer._optimizer_update``, which takes the global norm, clips in place, updates the weights and drops the gradients. Before
it only micro-batches' gradients are known, behind it none.
"""

from collections.abc import Sequence

import mindspore
from mindspore.graph.api import _no_grad

from align_hooks.errors import RefusedRun
from align_hooks.hooking.hook import Args, Function, Instance, Kwargs, Result
from align_hooks.ms_side.arrays import local, overwrite
from align_hooks.ms_side.model import CellParameter, pieces, sketches
from align_hooks.ms_side.objects import Tensor, Weight
from align_hooks.ms_side.optimizer import rates
from align_hooks.ms_side.session import MsSession
from align_hooks.ms_side.sums import GradientSums
from align_hooks.quantities.gradients import GRADIENTS
from align_hooks.quantities.local_norms import LOCAL_NORMS
from align_hooks.quantities.sketches import GRADIENT_SKETCHES
from align_hooks.session.step import record_gradients


def wrap(session: MsSession, wrapped: Function, instance: Instance, args: Args, kwargs: Kwargs) -> Result:
    """Record the gradients, or put recorded ones in their place, and call ``Trainer._optimizer_update``."""
    current, step = session.current, session.step
    if current is None or step is None:
        return wrapped(*args, **kwargs)
    if session.injection is not None and step in session.injection.steps:
        with session.recording.must_succeed():
            inject(session, step)
    if session.recording.is_on or session.settings.steps(LOCAL_NORMS):
        current.rate = rates(instance.optimizer, session.groups)
        read(session)
    current.norm = wrapped(*args, **kwargs)
    return current.norm


def gradient_of(weight: Weight) -> Tensor:
    """Return the gradient with which the optimizer is called (``get_grad`` of the trainer's utils); None where there is none."""
    main = getattr(weight, "main_grad", None)
    return weight.grad if main is None else main


def inject(session: MsSession, step: int) -> None:
    """Overwrite every gradient by the recorded one."""
    injection, parameters = session.injection, session.parameters
    assert injection is not None and parameters is not None
    for parameter in parameters:
        gradient, recorded = gradient_of(parameter.model), injection.read(step, parameter.fused)
        here = local(parameter.model if gradient is None else gradient)
        given = mindspore.Tensor(recorded.reshape(here.shape), dtype=mindspore.float32 if gradient is None else gradient.dtype)
        if gradient is not None and here is not gradient:
            overwrite(here, given)
        elif gradient is not None:
            gradient.assign_value(given)
        elif parameters.single_rank:
            parameter.model.grad = given
        elif recorded.any():
            raise RefusedRun(
                f"{parameter.fused.native} has no gradient in a job of several ranks, so none is injected; use it, or freeze it"
            )
    injection.made.add(step)


def read(session: MsSession) -> None:
    """Keep what is asked for of the gradients: all of them, or sums of all, in one transfer."""
    current, parameters, recording = session.current, session.parameters, session.recording
    assert current is not None and parameters is not None
    pairs = [(parameter, gradient_of(parameter.model)) for parameter in parameters]
    present = [(parameter, gradient) for parameter, gradient in pairs if gradient is not None]
    say_missing(session, [parameter for parameter, gradient in pairs if gradient is None])
    if not present:
        return
    counted = [(parameter, gradient) for parameter, gradient in present if parameter.counted]
    sketched = recording.wants(GRADIENT_SKETCHES)
    by_plan = sketched and parameters.single_rank  # of a part, signs follow a row's number in the whole tensor
    if recording.wants(LOCAL_NORMS) or by_plan:
        sums = session.gradient_sums
        if sums is None or sums.names != tuple(parameter.fused.native for parameter, _ in present):
            sums = session.gradient_sums = GradientSums.of([parameter for parameter, _ in present])
        with _no_grad():
            current.squared, current.sketches = sums.read([local(gradient) for _, gradient in present], sketched=by_plan)
    if sketched and not by_plan:
        current.sketches = sketches(counted)
    if recording.wants(GRADIENTS):
        record_gradients(session, lambda: pieces(counted))


def say_missing(session: MsSession, missing: Sequence[CellParameter]) -> None:
    """Print, once, which parameters have no gradient: AdamW gives each later parameter the gradient of its neighbour.

    ``mindformers.pynative.optimizer.adamw`` pairs gradients with parameters by position, and those without a gradient are left out."""
    if missing and session.made == 0:
        names = ", ".join(parameter.fused.native for parameter in missing[:3])
        session.say(
            f"{len(missing)} parameters have no gradient, first {names}: MindFormers' optimizer gives every later parameter the "
            f"gradient of another; freeze them (requires_grad: False), or use them"
        )
