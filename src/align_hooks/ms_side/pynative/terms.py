"""The terms of the loss beside the language model's: the balancing of experts, multi-token prediction, and sparse attention's indexers.

Patch points: ``construct`` of ``MoEAuxLossAutoScaler`` and ``MTPLossAutoScaler``, by which each term joins the backward pass, coefficient
included, and ``save_to_indexer_losses_tracker``, which is given an indexer's. The loss that the trainer prints has none of them, and the
logged terms of the first two no coefficient.
"""

from mindformers.pynative.transformers.moe import moe_utils

from align_hooks.hooking.hook import Args, Function, Instance, Kwargs, Result
from align_hooks.ms_side.objects import Tensor
from align_hooks.ms_side.session import MsSession
from align_hooks.record.format.terms import AUXILIARY, INDEXER, PREDICTION


def auxiliary(session: MsSession, wrapped: Function, instance: Instance, args: Args, kwargs: Kwargs) -> Result:
    """Call ``MoEAuxLossAutoScaler.construct``, and add its term to the step's."""
    return joined(session, AUXILIARY, wrapped, args, kwargs)


def prediction(session: MsSession, wrapped: Function, instance: Instance, args: Args, kwargs: Kwargs) -> Result:
    """Call ``MTPLossAutoScaler.construct``, and add its term to the step's."""
    return joined(session, PREDICTION, wrapped, args, kwargs)


def indexer(session: MsSession, wrapped: Function, instance: Instance, args: Args, kwargs: Kwargs) -> Result:
    """Call ``save_to_indexer_losses_tracker``, whose first argument is the term of a layer, and add that to the step's."""
    add(session, INDEXER, args[0] if args else kwargs["loss"])
    return wrapped(*args, **kwargs)


def joined(session: MsSession, name: str, wrapped: Function, args: Args, kwargs: Kwargs) -> Result:
    """Call an autoscaler, whose second argument is the term, a number or the terms of tokens."""
    result = wrapped(*args, **kwargs)
    add(session, name, args[1] if len(args) > 1 else kwargs["aux_loss" if name == AUXILIARY else "mtp_loss"])
    return result


def add(session: MsSession, name: str, term: Tensor) -> None:
    """Add a term to the step's, unless a layer is passed once more."""
    current = session.current
    if current is not None and session.recording.is_on and not in_recompute():
        whole = term.detach().sum()
        current.terms[name] = current.terms[name] + whole if name in current.terms else whole


def in_recompute() -> bool:
    """Return whether a layer is passed once more inside the backward pass; 2.0 does not say."""
    return bool(getattr(moe_utils, "is_in_recompute", lambda: False)())
