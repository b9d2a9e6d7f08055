"""The batch as the model consumes it, and the names of the model's other inputs.

Seam: ``GPTModel.forward``. ``get_batch`` lives in the script, and returns five values in 0.12 and ten in alphabetical order
in 0.19. A data iterator shows what was offered, not what was used. The model's arguments keep their names in every
version. Other inputs of the model (``decoder_input``, packed sequences) are no part of a record, so their names are kept and printed.

The loss mask that the model is given is not believed: the model multiplies with none but for further predicted tokens. What training
weighed tokens by is the gradient of what the model makes of them (:mod:`align_hooks.torch_side.loss_mask`).
"""

from __future__ import annotations

import functools
import inspect

import torch

from align_hooks.hooking.hook import Args, Function, Instance, Kwargs, Result
from align_hooks.names.blocks import Array
from align_hooks.quantities.batches import BATCHES
from align_hooks.record.format.token_digest import CALLED
from align_hooks.record.write.step_files import is_causal
from align_hooks.torch_side.arrays import to_numpy
from align_hooks.torch_side.micro_batch import MASK, MicroBatch
from align_hooks.torch_side.rehearsal import past
from align_hooks.torch_side.session import TorchSession
from align_hooks.torch_side.token_digest import TokenDigest

ARGUMENTS = {
    "input_ids": "tokens",
    "labels": "labels",
    "loss_mask": "loss_mask",
    "attention_mask": "attention_mask",
    "position_ids": "position_ids",
}


def wrap(session: TorchSession, wrapped: Function, instance: Instance, args: Args, kwargs: Kwargs) -> Result:
    """Call ``GPTModel.forward`` after its inputs were copied to the host on steps whose batch is wanted; of every step the tokens are
    digested. At the first step it is looked for inputs that no record has. A pass outside a forward step is one that is computed again."""
    if session.step is not None and session.made == 0:
        nothing: set[str] = set()
        look = functools.partial(unrecorded, inspect.signature(wrapped), args, kwargs)
        session.see_unrecorded(session.recording.best_effort("the names of the model's inputs", look, nothing))
    if session.under_way is not None and session.recording.is_on and torch.is_grad_enabled():
        digest(session, instance, kwargs.get("input_ids", args[0] if args else None))
    seen: MicroBatch | None = None
    if session.under_way is not None and session.recording.wants(BATCHES):
        with session.recording.isolate_failures("the batch"):
            call = inspect.signature(wrapped).bind(*args, **kwargs)
            inputs = {**call.arguments, **call.kwargs}  # the second opens up a **kwargs of a model of somebody else's
            if "input_ids" not in inputs:
                raise TypeError("the model's forward does not name what it is given; decorate it with functools.wraps")
            batch = {ours: inputs.get(theirs) for theirs, ours in ARGUMENTS.items()}
            chunk = [module is instance for module in session.chunks].index(True)
            arrays = {name: host_copy(name, value) for name, value in batch.items() if isinstance(value, torch.Tensor)}
            handed = [arrays.pop(MASK)] if MASK in arrays else []
            seen = MicroBatch(arrays, differentiable=torch.is_grad_enabled(), handed=handed)
            session.under_way.append((chunk, seen))
    output = wrapped(*args, **kwargs)
    if seen is not None:
        with session.recording.isolate_failures("token losses"):
            if seen.made(output):
                output.register_hook(functools.partial(weigh, session, seen))
    return output


def weigh(session: TorchSession, batch: MicroBatch, gradient: torch.Tensor) -> None:
    """Keep the gradient of a micro-batch's token losses."""
    with session.recording.isolate_failures("token losses"):
        batch.weigh(gradient)


def digest(session: TorchSession, chunk: Instance, tokens: object) -> None:
    """Add a micro-batch to the digest of the step's tokens. Later chunks of a virtual pipeline are given them again by some scripts."""
    if not any(chunk is later for later in session.chunks[1:]):
        session.current.attempt.tokens = session.current.attempt.tokens or TokenDigest()
        with past(session):
            session.recording.best_effort(CALLED, functools.partial(session.current.attempt.tokens.add, tokens), None)


def unrecorded(signature: inspect.Signature, args: Args, kwargs: Kwargs) -> set[str]:
    """Names of the arguments of a call that are neither kept in a batch nor equal to what the model takes by default."""
    call, parameters = signature.bind(*args, **kwargs), signature.parameters
    extra = next((name for name, parameter in parameters.items() if parameter.kind is inspect.Parameter.VAR_KEYWORD), "")
    nameless = [name for name, parameter in parameters.items() if parameter.kind is inspect.Parameter.VAR_POSITIONAL]
    inputs = {**call.arguments, **call.arguments.get(extra, {})}
    defaults = {name: parameter.default for name, parameter in parameters.items()}
    unknown = inputs.keys() - {*ARGUMENTS, extra, *nameless}
    return {name for name in unknown if not any(inputs[name] is absent for absent in (None, False, defaults.get(name)))}


def host_copy(name: str, value: torch.Tensor) -> Array:
    """A host copy, so that nothing of a micro-batch outlives it on the device; of a causal mask one row is enough."""
    array = to_numpy(value)
    return array[:1] if name == "attention_mask" and is_causal(array) else array
