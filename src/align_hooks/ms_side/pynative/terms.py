"""The terms of the loss beside the language model's: the balancing of experts, and multi-token prediction.

Patch points: ``construct`` of ``MoEAuxLossAutoScaler`` and ``MTPLossAutoScaler``, by which each term joins the backward pass, coefficient
included. The loss that the trainer prints has neither, and the logged terms no coefficient.
"""

from mindformers.pynative.transformers.moe import moe_utils

from align_hooks.hooking.hook import Args, Function, Instance, Kwargs, Result
from align_hooks.ms_side.session import MsSession
from align_hooks.record.format.terms import AUXILIARY, PREDICTION


def auxiliary(session: MsSession, wrapped: Function, instance: Instance, args: Args, kwargs: Kwargs) -> Result:
    """Call ``MoEAuxLossAutoScaler.construct``, and add its term to the step's."""
    return joined(session, AUXILIARY, wrapped, args, kwargs)


def prediction(session: MsSession, wrapped: Function, instance: Instance, args: Args, kwargs: Kwargs) -> Result:
    """Call ``MTPLossAutoScaler.construct``, and add its term to the step's."""
    return joined(session, PREDICTION, wrapped, args, kwargs)


def joined(session: MsSession, name: str, wrapped: Function, args: Args, kwargs: Kwargs) -> Result:
    """Call an autoscaler, whose second argument is the term, a number or the terms of tokens."""
    result = wrapped(*args, **kwargs)
    current = session.current
    if current is not None and session.recording.is_on and not in_recompute():
        term = (args[1] if len(args) > 1 else kwargs["aux_loss" if name == AUXILIARY else "mtp_loss"]).detach().sum()
        current.terms[name] = current.terms[name] + term if name in current.terms else term
    return result


def in_recompute() -> bool:
    """Return whether a layer is passed once more inside the backward pass; 2.0 does not say."""
    return bool(getattr(moe_utils, "is_in_recompute", lambda: False)())
