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
from collections.abc import Callable
from typing import Any

import torch
from megatron.training import get_args

from align_hooks.hooking.ledger import Wrapper
from align_hooks.record.batch import joined
from align_hooks.torch_side.arrays import to_numpy
from align_hooks.torch_side.hooks.model import record_state
from align_hooks.torch_side.session import TorchSession

SKIPPED = 1  # index of skipped_iter in train_step's result, 0.9 to 0.19


def wrap(session: TorchSession) -> Callable[..., Any]:
    """A wrapper of ``train_step`` that opens and closes the session's step."""

    def around(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        call = inspect.signature(wrapped).bind(*args, **kwargs)
        call.arguments["forward_step_func"] = Wrapper(call.arguments["forward_step_func"], forward_step(session))
        session.step = get_args().curr_iteration
        session.forget_attempt()
        session.update.clear()
        session.norms.clear()
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
    """A wrapper of the script's ``forward_step`` that listens to the loss function which it returns."""

    def around(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        output, loss_function = wrapped(*args, **kwargs)
        if session.step is None or not session.recording:
            return output, loss_function
        if session.micro_batches and "loss_mask" not in session.micro_batches[-1]:
            mask = next(iter(getattr(loss_function, "args", ())), None)
            if isinstance(mask, torch.Tensor):
                session.micro_batches[-1]["loss_mask"] = to_numpy(mask)

        @functools.wraps(loss_function, assigned=())
        def listening(*loss_args: Any, **loss_kwargs: Any) -> Any:
            found = loss_function(*loss_args, **loss_kwargs)
            with session.surviving("the loss"):
                if not (isinstance(found, tuple) and len(found) == 3):
                    raise TypeError("the script's loss function returns no (loss, tokens, report)")
                session.losses.append((found[0].detach().clone(), found[1].detach().clone()))
            return found

        return output, listening

    return around


def rerun(session: TorchSession) -> Callable[..., Any]:
    """A wrapper of ``RerunStateMachine.should_run_forward_backward``: a repeated attempt replaces the first."""

    def around(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        go = wrapped(*args, **kwargs)
        if go:
            session.forget_attempt()
        return go

    return around


def close(session: TorchSession, *, skipped: bool, seconds: float) -> None:
    """Write everything of the step that just ended; its row of scalars comes last and makes it whole."""
    step = session.step
    assert step is not None
    if session.recording and not session.update:
        session.say(f"step {step} (iteration {step + 1}) made no update: Megatron left it before the optimizer; it is not recorded")
        return
    session.made += 1
    numbers: dict[str, Any] = {}
    with session.surviving("the numbers of the step"):
        numbers = to_host(session)
    with session.surviving("local norms"):
        local_norms(session, step, numbers)
    with session.surviving("the batch"):
        batch(session, step)
    record_state(session, step + 1)
    if session.recording and session.record is not None:
        with session.surviving("scalars"):
            session.record.scalars(row(session, step, numbers, skipped=skipped, seconds=seconds))


def to_host(session: TorchSession) -> dict[str, Any]:
    """All device numbers of the step, in one transfer: losses, tokens, loss scale, gradient norm, squared sums."""
    named: dict[str, Any] = {f"loss {index}": loss for index, (loss, _) in enumerate(session.losses)}
    named |= {f"tokens {index}": tokens for index, (_, tokens) in enumerate(session.losses)}
    named |= {f"update {key}": value for key, value in session.update.items() if isinstance(value, torch.Tensor)}
    named |= {f"norm {name}": value for name, value in session.norms.items()}
    on_device = {key: value.detach().double().reshape(()) for key, value in named.items()}
    values = torch.stack([value.to(next(iter(on_device.values())).device) for value in on_device.values()]).tolist() if on_device else []
    return dict(zip(on_device, values, strict=True)) | {
        f"update {k}": v for k, v in session.update.items() if not isinstance(v, torch.Tensor)
    }


def local_norms(session: TorchSession, step: int, numbers: dict[str, Any]) -> None:
    """Print and record the norms that the gradients hook left on the device."""
    squared = {key.removeprefix("norm "): value for key, value in numbers.items() if key.startswith("norm ")}
    if not session.wants("local_norms", step) or not squared:
        return
    if session.parameters is not None and session.parameters.counted:
        session.print_norms(step, squared)
    if session.record is not None:
        session.record.local_norms(step, "reduced", squared)
    session.recorded("local_norms")


def batch(session: TorchSession, step: int) -> None:
    """Write the micro-batches that the model consumed, joined along the batch axis."""
    if not session.wants("batches", step) or session.record is None:
        return
    session.record.batch(step, *joined(session.micro_batches))
    session.recorded("batches")


def row(session: TorchSession, step: int, numbers: dict[str, Any], *, skipped: bool, seconds: float) -> dict[str, Any]:
    """The step's scalars, at full precision from their source.

    ``loss`` is the sum over valid tokens divided by their number. ``objective_loss`` is what was differentiated: the
    mean over micro-batches of their token means, or the same as ``loss`` with ``--calculate-per-token-loss``.
    """
    args = get_args()
    losses = [numbers[key] for key in numbers if key.startswith("loss ")]
    tokens = [numbers[key] for key in numbers if key.startswith("tokens ")]
    total = sum(tokens)
    loss = sum(losses) / total if total else None
    means = [value / max(count, 1) for value, count in zip(losses, tokens, strict=True)]
    norm, clip = numbers.get("update grad_norm"), numbers.get("update clip_grad")
    return {
        "step": step,
        "loss": loss,
        "objective_loss": loss if args.calculate_per_token_loss else sum(means) / len(means) if means else None,
        "valid_tokens": int(total),
        "consumed_samples": args.consumed_train_samples + args.micro_batch_size * args.data_parallel_size * len(losses),
        "grad_norm": norm,
        "clip_coefficient": min(1.0, clip / (norm + 1e-6)) if clip and norm is not None else 1.0,
        "learning_rate": numbers.get("update learning_rate"),
        "loss_scale": numbers.get("update loss_scale", 1.0),
        "skipped": skipped,
        "seconds": seconds,
    }
