"""One training step, from its beginning to its end: what step it is, its losses, its row of scalars.

Seam: ``megatron.training.training.train_step``, called once an iteration and never by evaluation. ``forward_step``
itself lives in the script that runs as ``__main__``, where no import hook fires, and runs once a micro-batch and in
evaluation too; it is caught here as the argument ``forward_step_func``, bound by name because its position moved.
Losses are read from what the script's own loss function returns: Megatron prints the mean over ``--log-interval``.
"""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from megatron.training import get_args

from align_hooks.hooking.ledger import Wrapper
from align_hooks.session.step import record_step
from align_hooks.torch_side import random_states
from align_hooks.torch_side.arrays import to_numpy
from align_hooks.torch_side.hooks.model import Built
from align_hooks.torch_side.hooks.step import Ended, to_host
from align_hooks.torch_side.session import TorchSession

SKIPPED = 1  # index of skipped_iter in train_step's result, 0.9 to 0.19


def wrap(session: TorchSession) -> Callable[..., Any]:
    """A wrapper of ``train_step`` that opens and closes the session's step."""

    def around(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        call = inspect.signature(wrapped).bind(*args, **kwargs)
        call.arguments["forward_step_func"] = Wrapper(call.arguments["forward_step_func"], forward_step(session))
        session.step = get_args().curr_iteration
        session.forget_step()
        if session.recording.is_on:
            session.random.append(session.recording.attempt("the random states", random_states.at_step, {}))
        started = time.perf_counter()
        try:
            result = wrapped(*call.args, **call.kwargs)
            close(session, skipped=bool(result[SKIPPED]), seconds=time.perf_counter() - started)
        finally:
            session.step = None
            session.forget_attempt()
        return result

    return around


def forward_step(session: TorchSession) -> Callable[..., Any]:
    """A wrapper of the script's ``forward_step``, before which it reads the random state, that listens to the loss function which it
    returns: to each token's loss, where batches are wanted, and to what it makes of them."""

    def around(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        if session.step is not None and session.recording.is_on:
            session.random.append(session.recording.attempt("the random states", random_states.at_micro_batch, {}))
        output, loss_function = wrapped(*args, **kwargs)
        if session.step is None or not session.recording.is_on:
            return output, loss_function
        seen = session.micro_batches[max(session.micro_batches)][-1] if session.micro_batches else None
        if seen is not None and "loss_mask" not in seen:
            mask = next(iter(getattr(loss_function, "args", ())), None)
            if isinstance(mask, torch.Tensor):
                seen["loss_mask"] = to_numpy(mask)

        @functools.wraps(loss_function, assigned=())
        def listening(*loss_args: Any, **loss_kwargs: Any) -> Any:
            found = loss_function(*loss_args, **loss_kwargs)
            with session.recording.surviving("the loss"):
                if not (isinstance(found, tuple) and len(found) == 3):
                    raise TypeError("the script's loss function returns no (loss, tokens, report)")
                session.losses.append((found[0].detach().clone(), found[1].detach().clone()))
            with session.recording.surviving("token losses"):
                if seen is not None and loss_args and is_per_token(loss_args[0], seen):
                    seen["token_losses"] = to_numpy(loss_args[0])
            return found

        return output, listening

    return around


def is_per_token(output: Any, seen: Mapping[str, Any]) -> bool:
    """Whether what the loss function is given is one loss for each label of the micro-batch, as ``GPTModel`` returns."""
    return isinstance(output, torch.Tensor) and "labels" in seen and output.shape == seen["labels"].shape


def objective(session: TorchSession) -> Callable[..., Any]:
    """A wrapper of the schedule's ``forward_step``, which scales the loss: what it returns on the last stage is differentiated.

    Not of ``backward_step``: with pipeline stages the loss has been emptied by then, only its graph is left.
    """

    def around(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        losses = len(session.losses)
        result = wrapped(*args, **kwargs)
        if len(session.losses) > losses:
            with session.recording.surviving("the objective"):
                session.objectives.append(_first(_first(result)).detach().clone())
        return result

    return around


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, list | tuple) else value


def rerun(session: TorchSession) -> Callable[..., Any]:
    """A wrapper of ``RerunStateMachine.should_run_forward_backward``: a repeated attempt replaces the first."""

    def around(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        go = wrapped(*args, **kwargs)
        if go:
            session.forget_attempt()
        return go

    return around


def close(session: TorchSession, *, skipped: bool, seconds: float) -> None:
    """Record the step that just ended."""
    step = session.step
    assert step is not None
    if session.recording.is_on and not session.update:
        session.say(f"step {step} (iteration {step + 1}) made no update: Megatron left it before the optimizer; it is not recorded")
        return
    numbers: dict[str, Any] = {}
    with session.recording.surviving("the numbers of the step"):
        numbers = to_host(session)
    record_step(session, Ended(session, step, numbers, skipped, seconds), Built(session))
