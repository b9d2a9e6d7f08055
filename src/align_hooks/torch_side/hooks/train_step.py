"""One training step, from its beginning to its end: what step it is, its losses, its row of scalars.

Seam: ``megatron.training.training.train_step``, called once an iteration and never by evaluation. ``forward_step``
itself lives in the script that runs as ``__main__``, where no import hook fires, and runs once a micro-batch and in
evaluation too; it is caught here as the argument ``forward_step_func``, bound by name because its position moved.
Losses are read from what the script's own loss function returns: Megatron prints the mean over ``--log-interval``.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from megatron.core.num_microbatches_calculator import get_num_microbatches
from megatron.training import get_args

from align_hooks.errors import RefusedRun
from align_hooks.hooking.ledger import Wrapper
from align_hooks.record.batch import joined
from align_hooks.record.random_states import changes
from align_hooks.record.sequence import slices_of, zigzag
from align_hooks.torch_side import random_states
from align_hooks.torch_side.arrays import to_numpy
from align_hooks.torch_side.hooks.model import record_state
from align_hooks.torch_side.session import TorchSession

TAKEN = ("norm", "same", "exact")
SKIPPED = 1  # index of skipped_iter in train_step's result, 0.9 to 0.19


def wrap(session: TorchSession) -> Callable[..., Any]:
    """A wrapper of ``train_step`` that opens and closes the session's step."""

    def around(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        call = inspect.signature(wrapped).bind(*args, **kwargs)
        call.arguments["forward_step_func"] = Wrapper(call.arguments["forward_step_func"], forward_step(session))
        session.step = get_args().curr_iteration
        session.forget_step()
        if session.recording:
            session.random.append(session.attempt("the random states", random_states.at_step, {}))
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
        if session.step is not None and session.recording:
            session.random.append(session.attempt("the random states", random_states.at_micro_batch, {}))
        output, loss_function = wrapped(*args, **kwargs)
        if session.step is None or not session.recording:
            return output, loss_function
        seen = session.micro_batches[max(session.micro_batches)][-1] if session.micro_batches else None
        if seen is not None and "loss_mask" not in seen:
            mask = next(iter(getattr(loss_function, "args", ())), None)
            if isinstance(mask, torch.Tensor):
                seen["loss_mask"] = to_numpy(mask)

        @functools.wraps(loss_function, assigned=())
        def listening(*loss_args: Any, **loss_kwargs: Any) -> Any:
            found = loss_function(*loss_args, **loss_kwargs)
            with session.surviving("the loss"):
                if not (isinstance(found, tuple) and len(found) == 3):
                    raise TypeError("the script's loss function returns no (loss, tokens, report)")
                session.losses.append((found[0].detach().clone(), found[1].detach().clone()))
            with session.surviving("token losses"):
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
            with session.surviving("the objective"):
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
    with session.surviving("sketches"):
        sketches(session, step, numbers)
    with session.surviving("the batch"):
        batch(session, step)
    record_state(session, step + 1)
    if session.recording and session.record is not None:
        with session.surviving("scalars"):
            session.record.scalars(row(session, step, numbers, skipped=skipped, seconds=seconds))


def to_host(session: TorchSession) -> dict[str, Any]:
    """All device numbers of the step, in one transfer: losses, tokens, loss scale, gradient norm, squared sums, sketches (a list each)."""
    named: dict[str, Any] = {f"loss {index}": loss for index, (loss, _) in enumerate(session.losses)}
    named |= {f"tokens {index}": tokens for index, (_, tokens) in enumerate(session.losses)}
    named |= {f"objective {index}": value for index, value in enumerate(session.objectives)}
    named |= {f"taken {index} {key}": one[key] for index, one in enumerate(session.taken) for key in TAKEN}
    named |= {f"update {key}": value for key, value in session.update.items() if isinstance(value, torch.Tensor)}
    named |= {f"norm {name}": value for name, value in session.norms.items()}
    named |= {f"sketch {name}": value for name, value in session.sketches.items()}
    device = next((value.device for value in named.values() if isinstance(value, torch.Tensor)), "cpu")
    on_device = {key: torch.as_tensor(value, device=device).detach().double().reshape(-1) for key, value in named.items()}
    values = iter(torch.cat(list(on_device.values())).tolist() if on_device else [])
    taken = {key: list(itertools.islice(values, len(tensor))) for key, tensor in on_device.items()}
    numbers = {key: found if key.startswith("sketch ") else found[0] for key, found in taken.items()}
    return numbers | {f"update {k}": v for k, v in session.update.items() if not isinstance(v, torch.Tensor)}


def local_norms(session: TorchSession, step: int, numbers: dict[str, Any]) -> None:
    """Print and record the norms that the gradients hook left on the device."""
    squared = {key.removeprefix("norm "): value for key, value in numbers.items() if key.startswith("norm ")}
    if not session.wants("local_norms", step):
        return
    assert session.parameters is not None
    missing = [
        one.fused.native for one, _ in session.parameters.held if one.model.requires_grad and not squared.keys() >= {*one.fused.pieces}
    ]
    if missing:
        raise RefusedRun(f"the gradient of {missing[0]} was never seen ready; this optimizer prepares it elsewhere")
    counted = {name for parameter in session.parameters if parameter.counted for name in parameter.fused.pieces}
    parts = {name for parameter in session.parameters for name in parameter.fused.cut}
    session.print_norms(step, {name: value for name, value in squared.items() if name in counted}, parts)
    if session.record is not None:
        taken = [one | {key: numbers[f"taken {index} {key}"] for key in TAKEN} for index, one in enumerate(session.taken)]
        session.record.local_norms(step, "reduced", squared, taken)
    session.recorded("local_norms")


def sketches(session: TorchSession, step: int, numbers: dict[str, Any]) -> None:
    """Write the sketches that the gradients hook left on the device."""
    if not session.wants("sketches", step) or session.record is None:
        return
    found = {key.removeprefix("sketch "): value for key, value in numbers.items() if key.startswith("sketch ")}
    session.record.sketches("gradients", step, found)
    session.recorded("sketches")


def batch(session: TorchSession, step: int) -> None:
    """Write the micro-batches that the model consumed, joined along the batch axis.

    Every chunk of a virtual pipeline sees each micro-batch: the first takes tokens, the last labels and their mask.
    """
    if not session.wants("batches", step) or session.record is None:
        return
    chunks = [session.micro_batches[index] for index in sorted(session.micro_batches)]
    merged = [{name: array for part in reversed(parts) for name, array in part.items()} for parts in zip(*chunks, strict=True)]
    arrays, rows = joined(merged)
    session.record.batch(step, arrays, rows, slices=slices(session, arrays))
    session.recorded("batches")


def slices(session: TorchSession, arrays: Mapping[str, Any]) -> list[list[int]] | None:
    """The positions [start, stop) of the sequence that this context-parallel rank was given; None without context parallelism."""
    place, args = session.place, get_args()
    if place["cp_size"] == 1:
        return None
    shown = slices_of(arrays["position_ids"], args.seq_length) if "position_ids" in arrays and not args.reset_position_ids else None
    return shown or zigzag(place["cp"], place["cp_size"], args.seq_length)


def row(session: TorchSession, step: int, numbers: dict[str, Any], *, skipped: bool, seconds: float) -> dict[str, Any]:
    """The step's scalars, at full precision from their source.

    ``loss`` is the sum over valid tokens divided by their number. ``objective_loss`` is what was differentiated: the
    mean over micro-batches of their token means, or with ``--calculate-per-token-loss`` the sum that is divided by the number of
    all tokens later. ``micro_batches`` are a micro-batch's sum of losses, tokens, and part of the objective, from the first
    tensor-parallel rank of the last stage. ``random`` are digests of the random state, ``unrecorded_inputs`` what else the model was given.
    """
    args = get_args()
    losses, tokens, objectives = (
        [value for key, value in numbers.items() if key.startswith(f"{kind} ")] for kind in ("loss", "tokens", "objective")
    )
    total = sum(tokens)
    loss = sum(losses) / total if total else None
    seen = len(objectives) == len(losses)
    if not seen:  # a schedule of the framework's with a forward pass of its own: what it differentiates is not known but said
        scale = [1.0 if args.calculate_per_token_loss else 1 / max(count, 1) / len(losses) for count in tokens]
        objectives = [value * factor for value, factor in zip(losses, scale, strict=True)]
    norm, clip = numbers.get("update grad_norm"), numbers.get("update clip_grad")
    return {
        "step": step,
        "loss": loss,
        "objective_loss": sum(objectives) / ((total or 1) if args.calculate_per_token_loss else 1) if losses else None,
        "valid_tokens": int(total),
        "consumed_samples": args.consumed_train_samples + args.micro_batch_size * args.data_parallel_size * get_num_microbatches(),
        "grad_norm": norm,
        "squared": numbers.get("update squared"),
        "clip_coefficient": min(1.0, clip / (norm + 1e-6)) if clip and norm is not None else 1.0,
        "learning_rate": numbers.get("update learning_rate"),
        "loss_scale": numbers.get("update loss_scale", 1.0),
        "skipped": skipped,
        "seconds": seconds,
        "micro_batches": [list(one) for one in zip(losses, tokens, objectives, strict=True)] if seen and session.place["tp"] == 0 else [],
        "random": changes(session.random),
        "unrecorded_inputs": sorted(session.unrecorded),
    }
