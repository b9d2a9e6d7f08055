"""The training loop: what step it is, and the step's scalars, batch, norms, gradients and weights.

Seam: the ``callbacks`` of ``Model.train``, one callback more. MindSpore calls it around every step outside the compiled
graph, and never in evaluation (that is ``Model.eval``). The training cell's outputs are read at full precision;
MindFormers prints three to six decimals.
"""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable
from typing import Any

import mindspore
from mindspore.train.callback import Callback

from align_hooks.errors import RefusedRun
from align_hooks.ms_side.arrays import to_numpy
from align_hooks.ms_side.batch import consumed, unrecorded
from align_hooks.ms_side.hooks.compiled import hold
from align_hooks.ms_side.hooks.config import get
from align_hooks.ms_side.hooks.model import facts, keep_schedule, load, refuse_unknown
from align_hooks.ms_side.model import is_per_token, pieces, sketches
from align_hooks.ms_side.optimizer import groups, moment_dtypes, moments, rates, updates_made
from align_hooks.ms_side.place import place, summed
from align_hooks.ms_side.random_states import at_step
from align_hooks.ms_side.session import MsSession
from align_hooks.ms_side.token_losses import capture_token_losses
from align_hooks.replay.weights import open_optimizer_state
from align_hooks.settings import PREFIX

LOSS, OVERFLOW, GLOBAL_NORM = 0, 1, 4
"""Places in the output of MFTrainOneStepCell, 1.3 to 1.9. Its loss scale, place 2, is already the next step's."""


def wrap(session: MsSession) -> Callable[..., Any]:
    """A wrapper of ``Model.train`` that adds the recorder to its callbacks."""

    def around(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        call = inspect.signature(wrapped).bind(*args, **kwargs)
        call.apply_defaults()
        given = call.arguments["callbacks"]
        columns = call.arguments["train_dataset"].get_col_names()
        callbacks = list(given) if isinstance(given, list | tuple) else [given] if given is not None else []
        call.arguments["callbacks"] = [*callbacks, Recorder(session, columns)]
        return wrapped(*call.args, **call.kwargs)

    return around


class Recorder(Callback):  # type: ignore[misc]
    """Opens and closes the session's steps."""

    def __init__(self, session: MsSession, columns: list[str]) -> None:
        super().__init__()
        self.session, self.columns = session, columns
        self.started = 0.0
        self.first = 0
        self.opened = self.prepared = False
        self.squared: dict[str, float] = {}
        self.groups: tuple[int, ...] = ()
        self.rate: float | list[float] = 0.0
        self.injected_norm: float | None = None
        self.scale = 1.0

    def on_train_begin(self, run_context: Any) -> None:
        """Refuse what is not supported, and open the run where no parameter is cut: the last moment before the first step."""
        session = self.session
        if session.train_cell is None:
            raise RefusedRun(
                "training started without MFTrainOneStepCell: this trainer is not supported; use runner_wrapper.type: MFTrainOneStepCell"
            )
        self.first = get(session.config, "runner_config.initial_step") or 0
        if session.sizes is None:
            self.open(run_context)
        elif session.settings.load_weights is not None:
            keep_schedule(session, open_optimizer_state(session.settings.load_weights))

    def open(self, run_context: Any) -> None:
        """Load weights, describe the run, record the initial weights."""
        session = self.session
        self.opened = True
        if session.settings.load_weights is not None:
            load(session)
        if session.parameters is not None:
            loop = run_context.original_args()
            steps = range(self.first, self.first + loop.batch_num * loop.epoch_num)
            refuse_unknown(session)
            self.groups = tuple(groups(session.train_cell.optimizer, session.parameters))  # they stay, so no step looks for them
            session.describe(
                place=place(session.launch, session.sizes),
                shards=session.parameters.shards(),
                facts=facts(session),
                steps=steps,
                wanted=session.parameters.wanted(),
                elsewhere=session.parameters.elsewhere(),
            )
        if session.settings.deterministic and mindspore.get_context("deterministic") != "ON":
            raise RefusedRun(f"{PREFIX}DETERMINISTIC=1: the script switched MindSpore's deterministic mode off again; remove that call")
        self.state(self.first)

    def on_train_step_begin(self, run_context: Any) -> None:
        """Open a step; rate and loss scale are read here, before the update moves them on."""
        session = self.session
        if not self.opened:
            hold(session, run_context.original_args())
            self.open(run_context)
        if not self.prepared:
            self.prepared = True
            with session.surviving("token losses"):
                self.see_tokens(run_context.original_args().train_dataset_element)
            nothing: list[str] = []
            look = functools.partial(unrecorded, self.columns, session.train_cell)
            session.see_unrecorded(session.attempt("the names of the model's inputs", look, nothing))
        session.step = self.first + run_context.original_args().cur_step_num - 1
        self.injected_norm = inject(session, session.step)
        if session.recording:
            session.random = session.attempt("the random states", at_step, {})
        if session.recording and session.parameters is not None:
            with session.surviving("the update"):
                self.rate = rates(session.train_cell.optimizer, self.groups)
                self.scale = float(to_numpy(session.train_cell.scale_sense).reshape(-1)[0])
        self.started = time.perf_counter()

    def see_tokens(self, elements: Any) -> None:
        """Have each token's loss kept, where batches are recorded: the last moment before the graph is compiled."""
        session = self.session
        if session.settings.batches and session.sizes is None and session.record is not None:
            tokens = consumed(elements, self.columns, session.train_cell)["tokens"].size
            session.token_losses = capture_token_losses(session.train_cell, tokens)

    def on_train_step_end(self, run_context: Any) -> None:
        """Close a step; its row of scalars comes last and makes it whole."""
        session, step = self.session, self.session.step
        assert step is not None
        arguments = run_context.original_args()
        outputs = arguments.net_outputs
        if session.recording:
            outputs[LOSS].asnumpy()  # wait for the device, so that seconds are the step's
        seconds = time.perf_counter() - self.started
        batch: dict[str, Any] = {}
        with session.surviving("the batch"):
            if session.recording:
                batch = consumed(arguments.train_dataset_element, self.columns, session.train_cell)
            if session.wants("batches") and session.record is not None:
                joined_first = session.sizes.joined_first() if session.sizes is not None else None
                losses = session.token_losses.read(batch["tokens"].shape) if session.token_losses is not None else None
                batch |= {"token_losses": losses} if losses is not None else {}
                session.record.batch(step, batch, [len(batch["tokens"])], joined_first=joined_first)
                session.recorded("batches")
        with session.surviving("gradients"):
            self.gradients(step, outputs)
        self.state(step + 1)
        with session.surviving("scalars"):
            if session.recording and session.record is not None:
                session.record.scalars(self.row(outputs, batch, seconds))
        session.made += 1
        session.step = None

    def taken(self, outputs: Any) -> list[dict[str, Any]]:
        """The global norm that the training cell clipped by, where it is of the gradients whose norms are recorded."""
        session = self.session
        injected = session.injection is not None and session.step in session.injection.steps
        if outputs[GLOBAL_NORM] is None or injected or session.settings.local_norms_point == "local":
            return []
        together = {"first": session.launch.rank, "ranks": 1}
        if session.sizes is not None:
            together = {"first": 0, "ranks": session.launch.world_size}
        return [{"norm": float(to_numpy(outputs[GLOBAL_NORM]).reshape(-1)[0])} | together]

    def gradients(self, step: int, outputs: Any) -> None:
        """Move norms and gradients to the host on steps where they are wanted."""
        session, reducer = self.session, self.session.reducer
        self.squared = {}
        if reducer is None or session.parameters is None:
            return
        if session.wants("local_norms"):
            squared = self.squared = reducer.squared_sums()
            if any(one.counted for one in session.parameters) or reducer.local:
                session.print_norms(step, squared, {name for one in session.parameters for name in one.fused.cut})
            if session.record is not None:
                session.record.local_norms(step, session.settings.local_norms_point, squared, self.taken(outputs))
            session.recorded("local_norms")
        if session.record is None or not (session.wants("sketches") or session.wants("gradients")):
            return
        counted = [(one, buffer) for one, buffer in zip(session.parameters, reducer.buffers, strict=True) if one.counted]
        if session.wants("sketches"):
            session.record.sketches("gradients", step, sketches(counted))
            session.recorded("sketches")
        if session.wants("gradients"):
            session.record.gradients(step, pieces(counted))
            session.recorded("gradients")

    def state(self, updates: int) -> None:
        """Write weights and optimizer state after ``updates`` updates, where they were asked for."""
        session = self.session
        if session.record is None or session.parameters is None:
            return
        if session.wants("sketches", updates):
            with session.surviving("sketches of the weights"):
                session.record.sketches("weights", updates, session.parameters.weight_sketches())
                session.recorded("sketches")
        if session.wants("weights", updates):
            with session.surviving("weights"):
                parameters = session.parameters
                session.record.weights(updates, parameters.weights(), session.model_config, parameters.weight_squares())
                session.recorded("weights")
        if session.wants("optimizer_state", updates):
            with session.surviving("the optimizer's state"):
                optimizer = session.train_cell.optimizer
                found = moments(optimizer, session.parameters)
                session.record.optimizer_state(updates, found, updates_made(optimizer), moment_dtypes(optimizer))
                session.recorded("optimizer_state")

    def row(self, outputs: Any, batch: dict[str, Any], seconds: float) -> dict[str, Any]:
        """The step's scalars. MindFormers takes no global norm without clipping: then ours, of what the optimizer was given.

        Where gradients are cut a rank has its part of that norm, which the reader adds up.
        """
        session, cell = self.session, self.session.train_cell
        step = session.step
        assert step is not None
        loss = float(to_numpy(outputs[LOSS]).reshape(-1)[0])
        clip = float(cell.clip_grad_norm.clip_norm.asnumpy().reshape(())) if cell.use_clip_grad else None
        norm = outputs[GLOBAL_NORM]
        parts: dict[str, float] = {}
        if norm is not None:
            norm = float(to_numpy(norm).reshape(-1)[0])
        elif session.sizes is not None:
            parts = self.part_of_norm()
        elif self.injected_norm is not None:
            norm = self.injected_norm
        elif session.reducer is not None and session.reducer.norms:
            norm = sum(session.reducer.squared_sums().values()) ** 0.5
        overflow = outputs[OVERFLOW]
        ranks = session.launch.world_size
        rows, tokens = len(batch["tokens"]) * ranks, int((batch["loss_mask"] > 0).sum())
        losses = {"loss": loss, "objective_loss": loss * ranks if summed(session.launch) else loss, "valid_tokens": tokens}
        if session.sizes is not None:
            rows = session.sizes.rows(len(batch["tokens"]))
            losses = session.sizes.losses(loss, tokens, place(session.launch, session.sizes), per_token=is_per_token(cell))
        return {
            "step": step,
            **losses,
            "consumed_samples": rows * (step + 1),
            "grad_norm": norm,
            "clip_coefficient": min(1.0, clip / (max(norm, clip) + 1e-6)) if clip and norm is not None else 1.0,
            "learning_rate": self.rate,
            "loss_scale": self.scale,
            "skipped": bool(to_numpy(overflow).reshape(-1)[0]) if hasattr(overflow, "asnumpy") else bool(overflow),
            "seconds": seconds,
            "random": [session.random],
            "unrecorded_inputs": sorted(session.unrecorded),
            **parts,
        }

    def part_of_norm(self) -> dict[str, float]:
        """This rank's squared part of the global norm, where this step has it."""
        if self.injected_norm is not None:
            return {"squared": self.injected_norm**2}
        if self.session.parameters is None or not self.squared:
            return {}
        return {"squared": sum(self.squared[name] for one in self.session.parameters if one.counted for name in one.fused.pieces)}


def inject(session: MsSession, step: int) -> float | None:
    """Fill in the gradients of a step that is injected, or switch injection off for it; the global norm of what was filled in."""
    injection, reducer = session.injection, session.reducer
    if injection is None or reducer is None:
        return None
    if step not in injection.steps:
        reducer.fill(None)
        return None
    norm = reducer.fill(lambda fused: injection.read(step, fused))  # of all gradients, or of those that count where they are cut
    injection.made.add(step)
    return norm
