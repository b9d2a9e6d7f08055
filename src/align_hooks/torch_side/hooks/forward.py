"""The batch as the model consumes it, and the names of the model's other inputs.

Patch point: ``GPTModel.forward``, whose arguments keep their names in every version. ``get_batch`` is in the script, and returns five
values in 0.12 and ten in alphabetical order in 0.19. A data iterator shows the offered data, not the used data. Other inputs of the model
(``decoder_input``) are not recorded, so their names are kept and printed.

The model's loss mask is only a candidate, for the model multiplies by a mask in multi-token prediction only. The weights of tokens come
from the gradient of the model's output (:mod:`align_hooks.torch_side.micro_batch`).
"""

import functools
import inspect

import torch

from align_hooks.hooking.attach import attach_to
from align_hooks.hooking.hook import Args, Function, Instance, Kwargs, Result, bound
from align_hooks.names.blocks import Array
from align_hooks.quantities.batches import BATCHES
from align_hooks.record.format.batch_arrays import is_causal
from align_hooks.record.format.token_digest import CALLED
from align_hooks.torch_side.arrays import bypass_device_rewriting, to_numpy
from align_hooks.torch_side.micro_batch import MASK, MicroBatch
from align_hooks.torch_side.objects import Tensor
from align_hooks.torch_side.packing import ARGUMENT, documents, is_packed, packed_by_mindspeed, unfolded
from align_hooks.torch_side.session import TorchSession
from align_hooks.torch_side.token_digest import TokenDigest

ARGUMENTS = {"input_ids": "tokens"}
ARGUMENTS |= {name: name for name in ("labels", "loss_mask", "attention_mask", "position_ids")}
FEWEST = 6
"""Arguments by position before ``packed_seq_params`` can be one, in any version."""


def wrap(session: TorchSession, wrapped: Function, instance: Instance, args: Args, kwargs: Kwargs) -> Result:
    """Call ``GPTModel.forward`` after digesting its tokens and, on steps whose batch is wanted, copying its inputs to the host."""
    if session.own_loop is not None and not any(module is instance for module in session.chunks):
        return wrapped(*args, **kwargs)  # a reference model inside a forward step
    if session.step is not None and session.made == 0:
        names = functools.partial(unrecorded, inspect.signature(wrapped), args, kwargs)
        session.see_unrecorded(session.recording.best_effort("the names of the model's inputs", names, set()))
    session.see_packed(is_packed(packed_params(wrapped, args, kwargs)))
    # a pass outside a forward step is a recomputation
    if session.under_way is not None and session.recording.is_on and torch.is_grad_enabled():
        tokens = kwargs.get("input_ids", args[0] if args else None)
        digest(session, instance, in_rows(session, tokens))
    seen: MicroBatch | None = None
    if session.under_way is not None and session.recording.wants(BATCHES):
        with session.recording.isolate_failures("the batch"):
            call = bound(wrapped, args, kwargs)
            inputs = {**call.arguments, **call.kwargs}  # the second opens up a **kwargs of a model of somebody else's
            if "input_ids" not in inputs:
                raise TypeError("the model's forward does not name what it is given; decorate it with functools.wraps")
            batch = {ours: inputs.get(theirs) for theirs, ours in ARGUMENTS.items()}
            chunk = [module is instance for module in session.chunks].index(True)
            given = {name: in_rows(session, value) for name, value in batch.items() if isinstance(value, torch.Tensor)}
            arrays = {name: host_copy(name, value) for name, value in given.items()}
            candidates = [arrays.pop(MASK)] if MASK in arrays else []
            seen = MicroBatch(arrays, differentiable=torch.is_grad_enabled(), candidates=candidates)
            params = packed_by_mindspeed() if inputs.get(ARGUMENT) is None else inputs[ARGUMENT]
            if params is not None:
                seen.keep_documents(documents(session.place, params))
            session.under_way.append((chunk, seen))
    output = wrapped(*args, **kwargs)
    if seen is not None:
        with session.recording.isolate_failures("token losses"):
            if seen.keep_losses(in_rows(session, output)):
                output.register_hook(functools.partial(weigh, session, seen))
    return output


def see_overrides(session: TorchSession) -> None:
    """Attach to the ``forward`` of classes that override that of a hooked model and do not call it."""
    hooks = session.patch_log.attached.values()
    hook = next((hook for hook in hooks if hook.handler == f"{__name__}:wrap"), None)
    for kind in {type(chunk) for chunk in session.chunks} if hook is not None else ():
        owner = next(base for base in kind.__mro__ if "forward" in vars(base))
        names = getattr(getattr(vars(owner)["forward"], "__code__", None), "co_names", ())
        if "super" not in names and hook is not None:
            attach_to(hook, session, owner, "forward")


def in_rows(session: TorchSession, value: Tensor) -> Tensor:
    """Return a tensor of packed samples in the rows of the data set, and anything else unchanged."""
    return unfolded(session.place, value) if session.packed else value


def packed_params(wrapped: Function, args: Args, kwargs: Kwargs) -> object:
    """Return the ``PackedSeqParams`` of a call of the model; None without."""
    if ARGUMENT in kwargs or len(args) < FEWEST:
        return kwargs.get(ARGUMENT)
    return inspect.signature(wrapped).bind_partial(*args).arguments.get(ARGUMENT)


def weigh(session: TorchSession, batch: MicroBatch, gradient: torch.Tensor) -> None:
    """Keep the gradient of a micro-batch's token losses."""
    with session.recording.isolate_failures("token losses"):
        batch.weigh(gradient)


def digest(session: TorchSession, chunk: Instance, tokens: object) -> None:
    """Add a micro-batch to the digest of the step's tokens."""
    # some scripts give the tokens to later chunks of a virtual pipeline again
    if not any(chunk is later for later in session.chunks[1:]):
        session.current.attempt.tokens = session.current.attempt.tokens or TokenDigest()
        with bypass_device_rewriting(session):
            session.recording.best_effort(CALLED, functools.partial(session.current.attempt.tokens.add, tokens), None)


def unrecorded(signature: inspect.Signature, args: Args, kwargs: Kwargs) -> set[str]:
    """Return the names of a call's arguments that no batch keeps and that differ from the model's defaults."""
    call, parameters = signature.bind(*args, **kwargs), signature.parameters
    extra = next((name for name, parameter in parameters.items() if parameter.kind is inspect.Parameter.VAR_KEYWORD), "")
    nameless = [name for name, parameter in parameters.items() if parameter.kind is inspect.Parameter.VAR_POSITIONAL]
    inputs = {**call.arguments, **call.arguments.get(extra, {})}
    defaults = {name: parameter.default for name, parameter in parameters.items()}
    unknown = inputs.keys() - {*ARGUMENTS, ARGUMENT, extra, *nameless}
    return {name for name in unknown if not any(inputs[name] is absent for absent in (None, False, defaults.get(name)))}


def host_copy(name: str, value: torch.Tensor) -> Array:
    """Return a host copy, so that the device keeps nothing of a micro-batch; one row of a causal mask."""
    array = to_numpy(value)
    return array[:1] if name == "attention_mask" and is_causal(array) else array
