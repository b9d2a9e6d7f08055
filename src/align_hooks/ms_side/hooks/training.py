"""The training loop: the step's number, and its scalars, batch, norms, gradients and weights.

Patch point: the ``callbacks`` of ``Model.train``. MindSpore calls ours around every step outside the compiled graph, and never in
evaluation (``Model.eval``). The training cell's outputs are read at full precision; MindFormers prints three to six decimals.
"""

import functools
import inspect
import math
import time

import mindspore
from mindspore.train.callback import Callback
from msgspec.structs import replace

from align_hooks.errors import RefusedRun
from align_hooks.hooking.hook import Args, Function, Instance, Kwargs, Result
from align_hooks.ms_side import state
from align_hooks.ms_side.activations import check_teacher, give_values, keep_activations, refuse_unseen
from align_hooks.ms_side.arrays import number
from align_hooks.ms_side.batch import consumed, unrecorded
from align_hooks.ms_side.hooks.config import get
from align_hooks.ms_side.hooks.model import facts, keep_schedule, load, optimizer_state
from align_hooks.ms_side.hooks.step import LOSS, GraphStep, UpdateInputs, counted, has_terms, read_terms
from align_hooks.ms_side.hooks.train_cell import compile_cell
from align_hooks.ms_side.model import pieces
from align_hooks.ms_side.objects import Loop, RunContext
from align_hooks.ms_side.optimizer import groups, rates, refuse_without_moments
from align_hooks.ms_side.place import place
from align_hooks.ms_side.routing import check_replay, choices_of, give_experts, refuse_unrouted
from align_hooks.ms_side.session import MsSession
from align_hooks.ms_side.token_losses import capture_token_losses
from align_hooks.quantities.activations import ACTIVATIONS
from align_hooks.quantities.batches import BATCHES
from align_hooks.quantities.optimizer_state import OPTIMIZER_STATE
from align_hooks.replay.weights import open_optimizer_state
from align_hooks.session.step import record_gradients, record_state, record_step
from align_hooks.settings import PREFIX


def wrap(session: MsSession, wrapped: Function, instance: Instance, args: Args, kwargs: Kwargs) -> Result:
    """Call ``Model.train`` with the recorder added to its callbacks."""
    call = inspect.signature(wrapped).bind(*args, **kwargs)
    call.apply_defaults()
    callbacks = call.arguments["callbacks"]
    columns = call.arguments["train_dataset"].get_col_names()
    theirs = callbacks if isinstance(callbacks, list | tuple) else [callbacks] if callbacks is not None else []
    call.arguments["callbacks"] = [LossTermReader(session), *theirs, Recorder(session, columns)]
    return wrapped(*call.args, **call.kwargs)


class LossTermReader(Callback):  # type: ignore[misc]
    """Reads the terms of the loss before MindFormers' own callbacks empty them."""

    def __init__(self, session: MsSession) -> None:
        super().__init__()
        self.session = session

    def on_train_step_end(self, run_context: RunContext) -> None:
        """Keep the terms of the step until it is recorded."""
        session = self.session
        session.terms = {}
        with session.recording.isolate_failures("the terms of the loss"):
            if session.recording.is_on:
                with session.recording.must_succeed(RuntimeError):  # what failed on the device ends training without us too
                    run_context.original_args().net_outputs[LOSS].asnumpy()  # waits for it: the seconds are to be the step's
            if session.recording.is_on and session.model is not None and has_terms(session.model):
                read = functools.partial(read_terms, session.train_cell, session.model)
                session.terms = session.recording.best_effort("the terms of the loss", read, {})


class Recorder(Callback):  # type: ignore[misc]
    """Opens and closes the session's steps."""

    def __init__(self, session: MsSession, columns: list[str]) -> None:
        super().__init__()
        self.session, self.columns = session, columns
        self.started = 0.0
        self.first = 0
        self.opened = self.prepared = False
        self.groups: tuple[int, ...] = ()  # the index of each parameter group's first parameter
        self.update = UpdateInputs()

    def on_train_begin(self, run_context: RunContext) -> None:
        """Refuse an unsupported trainer, and open a run whose parameters are not cut: the last moment before the first step."""
        session = self.session
        if session.train_cell is None:
            raise RefusedRun(
                "training started without MFTrainOneStepCell: this trainer is not supported; use runner_wrapper.type: MFTrainOneStepCell"
            )
        with session.recording.isolate_failures("what the run is"), session.beginning():
            refuse_unrouted(session)
            refuse_unseen(session)
            self.first = get(session.config, "runner_config.initial_step") or 0
            if session.sizes is None:
                self.open(run_context)
            elif session.settings.load_weights is not None:
                keep_schedule(session, open_optimizer_state(session.settings.load_weights))

    def open(self, run_context: RunContext) -> None:
        """Load weights, describe the run, record the initial weights."""
        session = self.session
        self.opened = True
        if session.settings.load_weights is not None:
            load(session)
        if session.parameters is not None:
            loop = run_context.original_args()
            skipped = loop.train_dataset.get_init_step()  # of a resumed run, whose data set still has them
            steps = range(self.first, self.first + loop.batch_num * loop.epoch_num - skipped)
            optimizer = session.train_cell.optimizer
            if session.settings.steps(OPTIMIZER_STATE):
                refuse_without_moments(optimizer)
            rows, length = (get(session.config, key) for key in ("train_dataset.batch_size", "model.model_config.seq_length"))
            check_teacher(session, steps)
            check_replay(session, steps, rows * length if rows and length else None)
            self.groups = tuple(groups(optimizer, session.parameters))
            session.describe(place=place(session.launch, session.sizes), facts=facts(session), steps=steps)
        if session.settings.deterministic and mindspore.get_context("deterministic") != "ON":
            raise RefusedRun(f"{PREFIX}DETERMINISTIC=1: the script switched MindSpore's deterministic mode off again; remove that call")
        record_state(session, self.first, functools.partial(optimizer_state, session, session.train_cell.optimizer))

    def on_train_step_begin(self, run_context: RunContext) -> None:
        """Open a step. Learning rate and loss scale are read here, before the update changes them."""
        session = self.session
        if not self.prepared:
            self.prepared = True
            with session.recording.isolate_failures("what the run is"), session.beginning():
                self.prepare(run_context)
        with session.recording.isolate_failures("the state that the step starts from"):
            session.step = self.first + run_context.original_args().cur_step_num - 1
            self.update = UpdateInputs()
            if session.replayed:
                with session.recording.must_succeed():
                    self.update = UpdateInputs(injected_norm=inject(session, session.step))
                    give_experts(session, session.step)
                    if session.teacher is not None:
                        give_values(session, session.step, number(session.train_cell.scale_sense))
            if session.recording.is_on:
                self.keep_state()
            self.started = time.perf_counter()

    def prepare(self, run_context: RunContext) -> None:
        """Put our Cells into the training cell, right before it is compiled."""
        session = self.session
        if not self.opened:
            compile_cell(session, run_context)
            self.open(run_context)
        elements, settings = run_context.original_args().train_dataset_element, session.settings

        @functools.cache
        def shape() -> tuple[int, int]:
            rows, length = consumed(elements, self.columns, session.train_cell)["tokens"].shape
            return int(rows), int(length)

        with session.recording.isolate_failures("token losses"):
            if settings.steps(BATCHES) and session.sizes is None and session.recording.writer is not None:
                session.token_losses = capture_token_losses(session.train_cell, math.prod(shape()))
        if session.sizes is None:
            put = functools.partial(choices_of, session, lambda: math.prod(shape()))
            # a replay that fails ends the run; a recorder does not
            session.choices = put() if session.routing is not None else session.recording.best_effort("the experts of each token", put, [])
        if settings.steps(ACTIVATIONS) or session.teacher is not None:
            keep_activations(session, *shape())
        names = functools.partial(unrecorded, self.columns, session.train_cell)
        session.see_unrecorded(session.recording.best_effort("the names of the model's inputs", names, []))

    def keep_state(self) -> None:
        """Read the state at the step's start, and the rate and the loss scale of its update."""
        session, cell = self.session, self.session.train_cell
        state.keep(session, cell.optimizer, getattr(cell, "loss_scaling_manager", None))
        if session.parameters is not None:
            rate, scale = rates(cell.optimizer, self.groups), number(cell.scale_sense)
            self.update = replace(self.update, rate=rate, loss_scale=scale)

    def on_train_step_end(self, run_context: RunContext) -> None:
        """Close a step; its row of scalars comes last and completes it."""
        with self.session.recording.isolate_failures("the numbers of the step"):
            self.close(run_context.original_args())
        self.session.step = None

    def close(self, loop: Loop) -> None:
        """Record the step that just ended."""
        session, step = self.session, self.session.step
        assert step is not None
        seconds = time.perf_counter() - self.started
        if session.parameters is not None and session.reducer is not None:  # before the next step overwrites them
            record_gradients(session, lambda: pieces(counted(session)))
        read_batch = functools.partial(consumed, loop.train_dataset_element, self.columns, session.train_cell)
        ended = GraphStep(session, step, loop.net_outputs, read_batch, self.update, seconds)
        record_step(session, ended, functools.partial(optimizer_state, session, session.train_cell.optimizer))


def inject(session: MsSession, step: int) -> float | None:
    """Inject the gradients of a step, or switch injection off for the step.

    Returns the norm of the injected gradients, or where gradients are cut of this rank's part without copies."""
    injection, reducer = session.injection, session.reducer
    if injection is None or reducer is None:
        return None
    if step not in injection.steps:
        reducer.fill(None)
        return None
    norm = reducer.fill(lambda fused: injection.read(step, fused))
    injection.made.add(step)
    return norm
