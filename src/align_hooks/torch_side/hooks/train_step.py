"""One training step, from its beginning to its end: its number, its losses, its row of scalars.

Patch point: ``megatron.training.training.train_step``, called once an iteration and never by evaluation. ``forward_step`` is in the script
that runs as ``__main__``, where no import hook fires, and runs in evaluation too; it is wrapped here as the argument ``forward_step_func``,
bound by name because its position moved. Losses are the results of the script's own loss function: Megatron prints means.

A loss function returns (loss, tokens, report) or (loss, report), which Megatron's schedule distinguishes by length from 0.12 to 0.19
(``forward_step`` in ``megatron/core/pipeline_parallel/schedules.py``, since 0.13 ``forward_step_calc_loss``). The schedule divides the
first loss, a sum, by tokens and micro-batches; it multiplies the second, a mean over an unknown number of tokens, by the context-parallel
ranks and divides it by the micro-batches. :func:`objective` sees the result of either. :mod:`..sequence_sums` has what 0.12 does otherwise.
"""

import functools
import time
from collections.abc import Callable, Sequence

import torch

from align_hooks.hooking.guard import guarded
from align_hooks.hooking.hook import Args, Function, Instance, Kwargs, Result, argument, with_argument
from align_hooks.hooking.patch_log import Wrapper
from align_hooks.names.blocks import Array
from align_hooks.record.format.state import BUFFER
from align_hooks.session.step import record_step
from align_hooks.torch_side import activations, state
from align_hooks.torch_side.arrays import bypass_device_rewriting
from align_hooks.torch_side.hooks.model import optimizer_state
from align_hooks.torch_side.hooks.step import MegatronStep, to_host
from align_hooks.torch_side.micro_batch import MicroBatch
from align_hooks.torch_side.objects import Scheduler, Tensor
from align_hooks.torch_side.run_arguments import get_args
from align_hooks.torch_side.sequence_sums import joined, seen_sums
from align_hooks.torch_side.session import CurrentStep, TorchSession

NOTHING: state.States = {}
SKIPPED = 1  # index of skipped_iter in train_step's result, 0.9 to 0.19


def wrap(session: TorchSession, wrapped: Function, instance: Instance, args: Args, kwargs: Kwargs) -> Result:
    """Call ``train_step`` between the opening and the closing of the session's step."""
    given = functools.partial(argument, wrapped, args, kwargs)
    try:
        open_step(session, lambda: get_args().curr_iteration, given("opt_param_scheduler"))
        if (forward_step_func := given("forward_step_func")) is None:
            raise TypeError("train_step does not name its forward_step_func; decorate it with functools.wraps")
        args, kwargs = with_argument(wrapped, args, kwargs, "forward_step_func", listening(session, forward_step_func))
        result = wrapped(*args, **kwargs)
        close(session, skipped=bool(result[SKIPPED]))
    finally:
        leave_step(session)
    return result


def open_step(session: TorchSession, number: Callable[[], int], schedule: Scheduler) -> None:
    """Begin a step: read its number and the state that it starts from, and put its probes in place."""
    replays = session.replayed or session.replay is not None
    with session.recording.must_succeed() if replays else session.recording.isolate_failures("the step"):
        session.step = number()  # first, for replays need it
    with session.recording.isolate_failures("the state that the step starts from"):
        keep_state(session, schedule)
    activations.begin(session)
    session.current.started = time.perf_counter()


def leave_step(session: TorchSession) -> None:
    """Forget the step under way."""
    session.step = None
    activations.end(session)
    session.current = CurrentStep()


def listening(session: TorchSession, forward_step_func: Function) -> Function:
    """Return a loop's forward step function, which keeps what the model consumed and what its loss function returns."""
    return Wrapper(forward_step_func, functools.partial(guarded, functools.partial(forward_step, session), session))


def keep_state(session: TorchSession, schedule: Scheduler) -> None:
    """Read the state at the step's start; that of torch's generators before its first forward pass."""
    if not session.recording.is_on:
        return
    with bypass_device_rewriting(session):
        session.current.random = session.recording.best_effort("the random states", state.PYTHON_AND_NUMPY.read, {})
        if session.buffers is None:
            session.buffers, session.scaled = state.buffers_of(session.chunks), state.scaled_modules(session.chunks)
        session.current.state = state.at_step(session.leaves, schedule)
        session.current.buffers.update({name: getattr(module, key).detach().clone() for name, module, key in session.buffers})
        for path, module in session.scaled:
            for name, held in state.scalings(path, module).items():
                if isinstance(held, torch.Tensor):
                    session.current.buffers[name] = held
                else:
                    session.current.state[f"{BUFFER}{name}"] = held


def forward_step(session: TorchSession, wrapped: Function, instance: Instance, args: Args, kwargs: Kwargs) -> Result:
    """Read the random states, call the script's ``forward_step``, and wrap the returned loss function to read its results."""
    if session.step is not None and session.recording.is_on:
        with bypass_device_rewriting(session):
            states = session.recording.best_effort("the random states", state.generators_at_micro_batch, NOTHING)
        session.current.attempt.random.append(states)
    session.under_way = []
    try:
        output, loss_function = wrapped(*args, **kwargs)
    finally:
        passes, session.under_way = session.under_way, None
    if session.step is None or not session.recording.is_on or loss_function is None:  # from 0.16 on a last stage may have none
        return output, loss_function
    batch: MicroBatch | None = None
    with session.recording.isolate_failures("the batch"):
        batch = consumed(session, passes)
        if batch is not None:
            for arguments in (getattr(loss_function, "args", ()), getattr(loss_function, "keywords", {})):
                batch.add_candidates(arguments)

    @functools.wraps(loss_function, assigned=())
    def listening(*loss_args: object, **loss_kwargs: object) -> Result:
        with seen_sums(session) as sums:
            result = loss_function(*loss_args, **loss_kwargs)
        with session.recording.isolate_failures("the loss"):
            attempt, loss = session.current.attempt, returned(result)
            if batch is not None:
                batch.loss = len(attempt.losses)
            if (summed := joined(sums, session.place, counts=loss[1] is not None)) is not None:
                attempt.sums[len(attempt.losses)] = summed
            attempt.losses.append(loss)
        return result

    return output, listening


def consumed(session: TorchSession, passes: Sequence[tuple[int, MicroBatch]]) -> MicroBatch | None:
    """Keep the pass on which a forward step trains as its micro-batch, and return the pass; None where batches are not wanted."""
    if not passes:
        return None
    # a pass without gradients is a distillation teacher's, or is recomputed with gradients in the backward pass
    trained = [(chunk, batch) for chunk, batch in passes if batch.differentiable]
    chunk, batch = (trained or passes)[0]
    batch.passes = len(trained)
    session.current.attempt.micro_batches.setdefault(chunk, []).append(batch)
    return batch


def returned(result: object) -> tuple[Tensor, Tensor | None]:
    """Return loss and number of counted tokens from a loss function's result; None for tokens where it is (loss, report)."""
    if not isinstance(result, tuple | list) or len(result) not in (2, 3):
        raise TypeError("the script's loss function returns neither (loss, tokens, report) nor (loss, report)")
    loss, *tokens, _ = result
    return loss.detach().clone(), torch.as_tensor(tokens[0]).detach().clone() if tokens else None


def objective(session: TorchSession, wrapped: Function, instance: Instance, args: Args, kwargs: Kwargs) -> Result:
    """Call the schedule's ``forward_step``, which scales the loss, and keep its result, the differentiated loss, on the last stage."""
    # backward_step is no patch point: with pipeline stages the loss is emptied by then, and only its graph is left
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
    begins = instance.state.name == "NOT_RUNNING_YET"
    go = wrapped(*args, **kwargs)
    if go and not begins:
        session.current.repeat()
    return go


def close(session: TorchSession, *, skipped: bool) -> None:
    """Record the step that just ended; ``skipped`` where its update was not made."""
    activations.end(session)
    step = session.step
    with session.recording.isolate_failures("the numbers of the step"), bypass_device_rewriting(session):
        seconds = time.perf_counter() - session.current.started
        assert step is not None
        if session.recording.is_on and not session.current.update:
            session.say(f"step {step} (iteration {step + 1}) made no update: Megatron left it before the optimizer; it is not recorded")
            return
        numbers: dict[str, Tensor | float] = {}
        vectors: dict[str, Array] = {}
        with session.recording.isolate_failures("the numbers of the step"):
            numbers, vectors = to_host(session)
        ended = MegatronStep(session, step, numbers, vectors, skipped, seconds, session.current)
        record_step(session, ended, functools.partial(optimizer_state, session))
