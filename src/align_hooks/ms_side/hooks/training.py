"""The training loop: what step it is, and the step's scalars, batch, norms, gradients and weights.

Seam: the ``callbacks`` of ``Model.train``, one callback more. MindSpore calls it around every step outside the compiled
graph, and never in evaluation (that is ``Model.eval``). The training cell's outputs are read at full precision;
MindFormers prints three to six decimals.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from typing import Any

import mindformers
import mindspore
from mindspore.train.callback import Callback

from align_hooks import __version__
from align_hooks.errors import RefusedRun
from align_hooks.ms_side.arrays import to_numpy
from align_hooks.ms_side.batch import consumed
from align_hooks.ms_side.hooks.config import get
from align_hooks.ms_side.model import learning_rate, optimizer_facts
from align_hooks.ms_side.seeds import read_back
from align_hooks.ms_side.session import MsSession
from align_hooks.replay.weights import Loader
from align_hooks.settings import PREFIX

LOSS, OVERFLOW, GLOBAL_NORM = 0, 1, 4
"""Places in the output of MFTrainOneStepCell, 1.5 to 1.9. Its loss scale, place 2, is already the next step's."""


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
        self.rate: float | list[float] = 0.0
        self.scale = 1.0

    def on_train_begin(self, run_context: Any) -> None:
        """Load weights, describe the run, record the initial weights: the last moment before the first step."""
        session = self.session
        if session.train_cell is None:
            raise RefusedRun(
                "training started without MFTrainOneStepCell: this trainer is not supported; use runner_wrapper.type: MFTrainOneStepCell"
            )
        self.first = get(session.config, "runner_config.initial_step") or 0
        if session.settings.load_weights is not None:
            load(session)
        if session.parameters is not None:
            loop = run_context.original_args()
            steps = range(self.first, self.first + loop.batch_num * loop.epoch_num)
            session.describe(place=PLACE, shards=session.parameters.shards(), facts=facts(session), steps=steps)
        if session.settings.deterministic and mindspore.get_context("deterministic") != "ON":
            raise RefusedRun(f"{PREFIX}DETERMINISTIC=1: the script switched MindSpore's deterministic mode off again; remove that call")
        self.weights(self.first)

    def on_train_step_begin(self, run_context: Any) -> None:
        """Open a step; rate and loss scale are read here, before the update moves them on."""
        session = self.session
        session.step = self.first + run_context.original_args().cur_step_num - 1
        if session.recording:
            with session.surviving("the update"):
                optimizer = session.train_cell.optimizer
                count = len(optimizer.parameters) if optimizer.is_group_lr else 1
                rates = [learning_rate(optimizer, index) for index in range(count)]
                self.rate = rates[0] if len(set(rates)) == 1 else rates
                self.scale = float(to_numpy(session.train_cell.scale_sense).reshape(-1)[0])
        self.started = time.perf_counter()

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
                batch = consumed(arguments.train_dataset_element, self.columns, session)
            if session.wants("batches") and session.record is not None:
                session.record.batch(step, batch, [len(batch["tokens"])])
                session.recorded("batches")
        with session.surviving("gradients"):
            self.gradients(step)
        self.weights(step + 1)
        with session.surviving("scalars"):
            if session.recording and session.record is not None:
                session.record.scalars(row(session, outputs, batch, rate=self.rate, scale=self.scale, seconds=seconds))
        session.made += 1
        session.step = None

    def gradients(self, step: int) -> None:
        """Move norms and gradients to the host on steps where they are wanted."""
        session, reducer = self.session, self.session.reducer
        if reducer is None or session.parameters is None:
            return
        if session.wants("local_norms"):
            squared = reducer.squared_sums()
            session.print_norms(step, squared)
            if session.record is not None:
                session.record.local_norms(step, session.settings.local_norms_point, squared)
            session.recorded("local_norms")
        if session.wants("gradients") and session.record is not None:
            pairs = zip(session.parameters, reducer.buffers, strict=True)
            found = {name: piece for one, buffer in pairs for name, piece in one.fused.split(to_numpy(buffer))}
            session.record.gradients(step, found)
            session.recorded("gradients")

    def weights(self, updates: int) -> None:
        """Write the weights after ``updates`` updates, where they were asked for."""
        session = self.session
        if session.wants("weights", updates) and session.record is not None and session.parameters is not None:
            with session.surviving("weights"):
                session.record.weights(updates, session.parameters.weights(), session.model_config)
                session.recorded("weights")


PLACE = dict.fromkeys(("dp", "tp", "pp", "cp", "ep"), 0) | {f"{axis}_size": 1 for axis in ("dp", "tp", "pp", "cp", "ep")}


def load(session: MsSession) -> None:
    """Start from given weights."""
    source, parameters = session.settings.load_weights, session.parameters
    assert source is not None and parameters is not None
    parameters.load(Loader(source, {shard.name: shard.shape for shard in parameters.shards()}).read)
    session.override("weights", "the framework's own", source, f"{PREFIX}LOAD_WEIGHTS")
    if source.steps.single() != 0:
        session.override("optimizer state", f"of step {source.steps.text}", "reset", "weights were loaded without the optimizer's state")


def row(
    session: MsSession, outputs: Any, batch: dict[str, Any], *, rate: float | list[float], scale: float, seconds: float
) -> dict[str, Any]:
    """The step's scalars. MindFormers takes no global norm without clipping: then ours, where the gradients are captured."""
    step = session.step
    assert step is not None
    cell = session.train_cell
    loss = float(to_numpy(outputs[LOSS]).reshape(-1)[0])
    clip = float(cell.clip_grad_norm.clip_norm.asnumpy().reshape(())) if cell.use_clip_grad else None
    norm = outputs[GLOBAL_NORM]
    if norm is not None:
        norm = float(to_numpy(norm).reshape(-1)[0])
    elif session.reducer is not None and session.reducer.norms:
        norm = sum(session.reducer.squared_sums().values()) ** 0.5
    rows = len(batch["tokens"])
    return {
        "step": step,
        "loss": loss,
        "objective_loss": loss,
        "valid_tokens": int((batch["loss_mask"] > 0).sum()),
        "consumed_samples": rows * (step + 1),
        "grad_norm": norm,
        "clip_coefficient": min(1.0, clip / (max(norm, clip) + 1e-6)) if clip and norm is not None else 1.0,
        "learning_rate": rate,
        "loss_scale": scale,
        "skipped": bool(to_numpy(outputs[OVERFLOW]).reshape(-1)[0]) if hasattr(outputs[OVERFLOW], "asnumpy") else bool(outputs[OVERFLOW]),
        "seconds": seconds,
    }


def facts(session: MsSession) -> dict[str, Any]:
    """What ``run.json`` says about a MindFormers run."""
    config, cell, parameters = session.config, session.train_cell, session.parameters
    assert parameters is not None
    dtype = str(get(config, "model.model_config.compute_dtype") or "float16").removeprefix("mindspore.").lower()
    return {
        "framework": "MindFormers",
        "versions": {"align_hooks": __version__, "mindformers": mindformers.__version__, "mindspore": mindspore.__version__},
        "model": session.model_config,
        "padded_vocabulary": parameters.dims.padded,
        "optimizer": optimizer_facts(cell, parameters) | {"loss_scale": float(to_numpy(cell.scale_sense).reshape(-1)[0])},
        "training": {
            "micro_batch_size": get(config, "train_dataset.batch_size"),
            "global_batch_size": get(config, "train_dataset.batch_size"),
            "sequence_length": get(config, "model.model_config.seq_length"),
            "train_steps": get(config, "lr_schedule.total_steps"),
            "per_token_loss": bool(cell.calculate_per_token_loss),
            "compute_type": dtype,
        },
        "determinism": read_back() | {"config.seed": get(config, "seed")},
        "arguments": flat(config),
    }


def flat(config: Any, prefix: str = "") -> dict[str, str]:
    """The configuration as dotted keys to text."""
    found: dict[str, str] = {}
    for key, value in config.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": str(value)}
    return found
