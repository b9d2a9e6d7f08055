"""The batch, as the model consumes it.

Seam: ``GPTModel.forward``. ``get_batch`` lives in the script, returns five values in 0.12 and ten in alphabetical order
in 0.19, and a data iterator shows what was offered, not what was used. The model's arguments keep their names in every
version. A loss mask that is not among them is found by :mod:`.train_step` in the loss function.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from numpy.typing import NDArray

from align_hooks.record.writer import is_causal
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
    """A wrapper of ``GPTModel.forward`` that copies its inputs to the host on steps whose batch is wanted."""

    def around(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        if session.wants("batches"):
            with session.surviving("the batch"):
                call = inspect.signature(wrapped).bind(*args, **kwargs)
                given = {**call.arguments, **call.kwargs}  # the second opens up a **kwargs of a model of somebody else's
                if "input_ids" not in given:
                    raise TypeError("the model's forward does not name what it is given; decorate it with functools.wraps")
                found = {ours: given.get(theirs) for theirs, ours in ARGUMENTS.items()}
                chunk = session.micro_batches.setdefault([one is instance for one in session.chunks].index(True), [])
                chunk.append({name: seen(name, value) for name, value in found.items() if isinstance(value, torch.Tensor)})
        return wrapped(*args, **kwargs)

    return around


def seen(name: str, value: torch.Tensor) -> NDArray[Any]:
    """A host copy, so that nothing of a micro-batch outlives it on the device; of a causal mask one row says all."""
    array = to_numpy(value)
    return array[:1] if name == "attention_mask" and is_causal(array) else array
