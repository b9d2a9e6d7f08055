"""The batch, as the model consumes it, and what else it is given.

Seam: ``GPTModel.forward``. ``get_batch`` lives in the script, returns five values in 0.12 and ten in alphabetical order
in 0.19, and a data iterator shows what was offered, not what was used. The model's arguments keep their names in every
version. A loss mask that is not among them is found by :mod:`.train_step` in the loss function. Whatever else a script hands to
the model (``decoder_input``, packed sequences) is no part of a record, so its name is kept and said.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
from numpy.typing import NDArray

from align_hooks.quantities.batches import BATCHES
from align_hooks.record.pieces import is_causal
from align_hooks.torch_side.arrays import to_numpy
from align_hooks.torch_side.session import TorchSession

ARGUMENTS = {
    "input_ids": "tokens",
    "labels": "labels",
    "loss_mask": "loss_mask",
    "attention_mask": "attention_mask",
    "position_ids": "position_ids",
}


def wrap(session: TorchSession) -> Callable[..., Any]:
    """A wrapper of ``GPTModel.forward`` that copies its inputs to the host on steps whose batch is wanted, and at the first step looks for
    inputs that no record has."""

    def around(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        if session.step is not None and session.made == 0:
            nothing: set[str] = set()
            look = functools.partial(unrecorded, inspect.signature(wrapped), args, kwargs)
            session.see_unrecorded(session.recording.attempt("the names of the model's inputs", look, nothing))
        if session.recording.wants(BATCHES):
            with session.recording.surviving("the batch"):
                call = inspect.signature(wrapped).bind(*args, **kwargs)
                given = {**call.arguments, **call.kwargs}  # the second opens up a **kwargs of a model of somebody else's
                if "input_ids" not in given:
                    raise TypeError("the model's forward does not name what it is given; decorate it with functools.wraps")
                found = {ours: given.get(theirs) for theirs, ours in ARGUMENTS.items()}
                chunk = session.micro_batches.setdefault([one is instance for one in session.chunks].index(True), [])
                chunk.append({name: seen(name, value) for name, value in found.items() if isinstance(value, torch.Tensor)})
        return wrapped(*args, **kwargs)

    return around


def unrecorded(signature: inspect.Signature, args: Any, kwargs: Any) -> set[str]:
    """Names of the arguments of a call that are neither kept in a batch nor what the model takes them for where nothing is given."""
    call = signature.bind(*args, **kwargs)
    extra = next((name for name, one in signature.parameters.items() if one.kind is inspect.Parameter.VAR_KEYWORD), "")
    nameless = [name for name, one in signature.parameters.items() if one.kind is inspect.Parameter.VAR_POSITIONAL]
    given = {**call.arguments, **call.arguments.get(extra, {})}
    defaults = {name: one.default for name, one in signature.parameters.items()}
    return {
        name
        for name, value in given.items()
        if name not in (*ARGUMENTS, extra, *nameless) and value is not None and value is not False and value is not defaults.get(name)
    }


def seen(name: str, value: torch.Tensor) -> NDArray[Any]:
    """A host copy, so that nothing of a micro-batch outlives it on the device; of a causal mask one row says all."""
    array = to_numpy(value)
    return array[:1] if name == "attention_mask" and is_causal(array) else array
