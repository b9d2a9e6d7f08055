"""The terms of the loss beside the language model's: the balancing of experts, and multi-token prediction.

Patch points: the ``forward`` of Megatron's ``MoEAuxLossAutoScaler`` and ``MTPLossAutoScaler``, by which each term joins the backward
pass, coefficient included, and a router's ``apply_z_loss``, which calls the first for its own. Megatron's log has no coefficient, is
cleared by printing, and is kept in another place in each version.
"""

from align_hooks.hooking.hook import Args, Function, Instance, Kwargs, Result
from align_hooks.record.format.terms import AUXILIARY, PREDICTION, Z_LOSS
from align_hooks.torch_side.routing import are_captured
from align_hooks.torch_side.session import TorchSession

ADDED = 1
"""Position of the term among the inputs of both: the first passes through."""


def auxiliary(session: TorchSession, wrapped: Function, instance: Instance, args: Args, kwargs: Kwargs) -> Result:
    """Call ``MoEAuxLossAutoScaler.forward`` and add up its terms, the z-loss apart."""
    name = Z_LOSS if session.current.in_z_loss else AUXILIARY
    # a CUDA graph would capture our operators, which then make garbage until it is replayed
    return wrapped(*args, **kwargs) if are_captured() else joined(session, name, wrapped, args, kwargs)


def z_loss(session: TorchSession, wrapped: Function, instance: Instance, args: Args, kwargs: Kwargs) -> Result:
    """Call ``TopKRouter.apply_z_loss``, in which a term is no balance of the load."""
    current = session.current
    current.in_z_loss = True
    try:
        return wrapped(*args, **kwargs)
    finally:
        current.in_z_loss = False


def prediction(session: TorchSession, wrapped: Function, instance: Instance, args: Args, kwargs: Kwargs) -> Result:
    """Call ``MTPLossAutoScaler.forward`` and add up its terms."""
    return joined(session, PREDICTION, wrapped, args, kwargs)


def joined(session: TorchSession, name: str, wrapped: Function, args: Args, kwargs: Kwargs) -> Result:
    """Call an autoscaler, and add its term to the term ``name`` of the step."""
    result = wrapped(*args, **kwargs)
    if session.step is not None and session.recording.is_on:
        with session.recording.isolate_failures("the terms of the loss"):
            context, *inputs = args
            if context.needs_input_grad[ADDED]:  # a pass without gradients is an evaluation, or to be recomputed
                session.current.attempt.terms[name] = session.current.attempt.terms.get(name, 0) + inputs[ADDED].detach().double().sum()
    return result
