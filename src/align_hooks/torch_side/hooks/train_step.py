"""One training step, from its beginning to its end: its number, its losses, its row of scalars.

Seam: ``megatron.training.training.train_step``, called once an iteration and never by evaluation. ``forward_step``
itself lives in the script that runs as ``__main__``, where no import hook fires, and runs once a micro-batch and in
evaluation too; it is caught here as the argument ``forward_step_func``, bound by name because its position moved.
Losses are read from what the script's own loss function returns: Megatron prints the mean over ``--log-interval``.

A loss function returns (loss, tokens, report) or (loss, report), by the length of which Megatron's schedule tells them apart, in every
version from 0.12 to 0.19 (``forward_step`` in ``megatron/core/pipeline_parallel/schedules.py``, since 0.13 ``forward_step_calc_loss``). The
first is a sum, which the schedule divides by tokens and by micro-batches; the second is a mean already: the schedule multiplies it by the
number of context-parallel ranks and divides it by the micro-batches, and how many tokens counted is not said. What becomes of either is
seen by :func:`objective`.
"""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Mapping, Sequence

import torch
from megatron.training import get_args

from align_hooks.hooking.guard import guarded
from align_hooks.hooking.hook import Args, Function, Instance, Kwargs, Result
from align_hooks.hooking.ledger import Wrapper
from align_hooks.names.blocks import Array
from align_hooks.session.step import record_step
from align_hooks.torch_side import activations, state
from align_hooks.torch_side.gathered import CurrentStep
from align_hooks.torch_side.hooks.model import optimizer_state
from align_hooks.torch_side.hooks.step import EndedStep, to_host
from align_hooks.torch_side.micro_batch import MicroBatch
from align_hooks.torch_side.objects import Tensor
from align_hooks.torch_side.rehearsal import past
from align_hooks.torch_side.session import TorchSession

SKIPPED = 1  # index of skipped_iter in train_step's result, 0.9 to 0.19


def wrap(session: TorchSession, wrapped: Function, instance: Instance, args: Args, kwargs: Kwargs) -> Result:
    """Call ``train_step`` between the opening and the closing of the session's step."""
    fed = session.is_fed or session.replay is not None
    with session.recording.must_succeed() if fed else session.recording.isolate_failures("the step"):
        session.step = get_args().curr_iteration  # first, for what feeds the step asks which it is
    try:
        with session.recording.isolate_failures("the state that the step starts from"):
            session.current = CurrentStep()
            call = inspect.signature(wrapped).bind(*args, **kwargs)
            around = functools.partial(guarded, functools.partial(forward_step, session), session)
            call.arguments["forward_step_func"] = Wrapper(call.arguments["forward_step_func"], around)
            args, kwargs = call.args, call.kwargs
            keep_state(session, call.arguments)
        activations.begin(session)
        started = time.perf_counter()
        result = wrapped(*args, **kwargs)
        activations.end(session)
        with session.recording.isolate_failures("the numbers of the step"):
            seconds = time.perf_counter() - started
            close(session, skipped=bool(result[SKIPPED]), seconds=seconds)
    finally:
        session.step = None
        activations.end(session)
        session.current = CurrentStep()
    return result


def keep_state(session: TorchSession, arguments: Mapping[str, object]) -> None:
    """Read what the step starts from; ``arguments`` are those of ``train_step``."""
    if not session.recording.is_on:
        return
    session.current.random = session.recording.best_effort("the random states", state.generators, {})
    with past(session):
        if session.buffers is None:
            session.buffers = state.Buffers.of(session.chunks)
        session.current.state.update(state.at_step(arguments.get("optimizer"), arguments.get("opt_param_scheduler")))
        session.current.buffers.update(session.buffers.copies())


def forward_step(session: TorchSession, wrapped: Function, instance: Instance, args: Args, kwargs: Kwargs) -> Result:
    """Read the random states, call the script's ``forward_step``, and listen to the loss function that it returns: to the loss and the
    tokens that it returns. A last stage may have none (0.16 on)."""
    if session.step is not None and session.recording.is_on:
        session.current.attempt.random.append(session.recording.best_effort("the random states", state.generators_at_micro_batch, {}))
    session.under_way = []
    try:
        output, loss_function = wrapped(*args, **kwargs)
    finally:
        passes, session.under_way = session.under_way, None
    if session.step is None or not session.recording.is_on or loss_function is None:
        return output, loss_function
    batch: MicroBatch | None = None
    with session.recording.isolate_failures("the batch"):
        batch = consumed(session, passes)
        if batch is not None:
            for handed in (getattr(loss_function, "args", ()), getattr(loss_function, "keywords", {})):
                batch.hand(handed)

    @functools.wraps(loss_function, assigned=())
    def listening(*loss_args: object, **loss_kwargs: object) -> Result:
        result = loss_function(*loss_args, **loss_kwargs)
        with session.recording.isolate_failures("the loss"):
            if batch is not None:
                batch.loss = len(session.current.attempt.losses)
            session.current.attempt.losses.append(returned(result))
        return result

    return output, listening


def consumed(session: TorchSession, passes: Sequence[tuple[int, MicroBatch]]) -> MicroBatch | None:
    """The pass that a forward step trains on, kept as its micro-batch: the first with gradients. One without is of a teacher, or is made
    again with gradients in the backward pass. None where batches are not wanted."""
    if not passes:
        return None
    trained = [(chunk, batch) for chunk, batch in passes if batch.differentiable]
    chunk, batch = (trained or passes)[0]
    batch.passes = len(trained)
    session.current.attempt.micro_batches.setdefault(chunk, []).append(batch)
    return batch


def returned(result: object) -> tuple[Tensor, Tensor | None]:
    """Loss and tokens that count, by what a loss function returned; no tokens where it returned (loss, report)."""
    if not isinstance(result, tuple | list) or len(result) not in (2, 3):
        raise TypeError("the script's loss function returns neither (loss, tokens, report) nor (loss, report)")
    loss, *tokens, _ = result
    return loss.detach().clone(), torch.as_tensor(tokens[0]).detach().clone() if tokens else None


def objective(session: TorchSession, wrapped: Function, instance: Instance, args: Args, kwargs: Kwargs) -> Result:
    """Call the schedule's ``forward_step``, which scales the loss, and keep its result on the last stage: that is differentiated.

    The seam is not ``backward_step``: with pipeline stages the loss has been emptied by then, and only its graph is left.
    """
    losses = len(session.current.attempt.losses)
    result = wrapped(*args, **kwargs)
    if len(session.current.attempt.losses) > losses:
        with session.recording.isolate_failures("the objective"):
            loss = result
            while isinstance(loss, list | tuple):
                loss = loss[0]
            session.current.attempt.objectives.append(loss.detach().clone())
    return result


def rerun(session: TorchSession, wrapped: Function, instance: Instance, args: Args, kwargs: Kwargs) -> Result:
    """Call ``RerunStateMachine.should_run_forward_backward``; a repeated attempt replaces the first."""
    go = wrapped(*args, **kwargs)
    if go:
        session.current.repeat()
    return go


def close(session: TorchSession, *, skipped: bool, seconds: float) -> None:
    """Record the step that just ended."""
    step = session.step
    assert step is not None
    if session.recording.is_on and not session.current.update:
        session.say(f"step {step} (iteration {step + 1}) made no update: Megatron left it before the optimizer; it is not recorded")
        return
    numbers: dict[str, float] = {}
    vectors: dict[str, Array] = {}
    with past(session):
        with session.recording.isolate_failures("the numbers of the step"):
            numbers, vectors = to_host(session)
        record_step(session, EndedStep(session, step, numbers, vectors, skipped, seconds), functools.partial(optimizer_state, session))
