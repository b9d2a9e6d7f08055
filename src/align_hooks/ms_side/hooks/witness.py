"""The witness of a MindFormers run below ``align-hooks prove`` (:mod:`align_hooks.job.witness`).

Patch point: the ``callbacks`` of ``Model.train``, of which those that save and evaluate are left out. A callback of our own asks MindSpore
to stop after the last step.
"""

import inspect
import time
from collections.abc import Callable, Iterable

import mindspore
from mindspore.train.callback import Callback

from align_hooks.hooking.attach import installed_version
from align_hooks.hooking.hook import Args, Function, Instance, Kwargs, Result
from align_hooks.job.witness import JobWitness, WitnessedStep
from align_hooks.ms_side import state
from align_hooks.ms_side.arrays import to_numpy
from align_hooks.ms_side.devices import devices
from align_hooks.ms_side.objects import Cell, RunContext, Weight
from align_hooks.record.format.digests import xxh3

LEFT_OUT = {"ModelCheckpoint": "checkpoints", "EvalCallBack": "evaluations"}
"""Classes of callbacks, themselves or as a base, to what they do."""


def training(witness: JobWitness, wrapped: Function, instance: Instance, args: Args, kwargs: Kwargs) -> Result:
    """Call ``Model.train`` without the callbacks that save and evaluate, and with the witness's."""
    call = inspect.signature(wrapped).bind(*args, **kwargs)
    call.apply_defaults()
    given = call.arguments["callbacks"]
    kept = []
    for callback in given if isinstance(given, list | tuple) else [given] if given is not None else []:
        what = next((LEFT_OUT[base.__name__] for base in type(callback).__mro__ if base.__name__ in LEFT_OUT), "")
        if what:
            witness.left_out[what] += 1
        else:
            kept.append(callback)
    call.arguments["callbacks"] = [*kept, Watching(witness)]
    return wrapped(*call.args, **call.kwargs)


class Watching(Callback):  # type: ignore[misc]
    """Keeps what must not change in a step, and ends training."""

    def __init__(self, witness: JobWitness) -> None:
        super().__init__()
        self.witness = witness
        self.ended: float | None = None
        """When the step before had ended and was kept; None before there is one."""

    def on_train_begin(self, run_context: RunContext) -> None:
        """Keep what the run starts from."""
        cell = run_context.original_args().train_network
        begin(self.witness, digests(cell), cell.trainable_params())

    def on_train_step_end(self, run_context: RunContext) -> None:
        """Keep a step; its seconds are those since the step before ended, with the data that it waits for."""
        loop, witness = run_context.original_args(), self.witness
        outputs = loop.net_outputs
        loss = float((outputs[0] if isinstance(outputs, list | tuple) else outputs).asnumpy())  # waits for the step
        seconds = None if self.ended is None else time.perf_counter() - self.ended
        if witness.is_over:
            witness.seen.ignored_limit = True
            witness.write()
        else:
            end(witness, loop.cur_step_num - 1, loss, seconds, lambda: digests(loop.train_network))
        if witness.is_over:
            run_context.request_stop()
        self.ended = time.perf_counter()  # so that the witness's own work is part of no step


def begin(witness: JobWitness, initial: dict[str, str], trainable: Iterable[Weight]) -> None:
    """Keep what a run starts from: the digests of its ``initial`` state, and what it runs on."""
    seen = witness.seen
    seen.device = next((str(device["name"]) for device in devices()), "CPU")
    seen.versions = {name: installed_version(name) for name in ("mindspore", "mindformers")}
    seen.initial, seen.elements = initial, sum(parameter.size for parameter in trainable)
    witness.write()


def end(witness: JobWitness, step: int, loss: float, seconds: float | None, digests: Callable[[], dict[str, str]]) -> None:
    """Keep a step that has ended."""
    if witness.seen.device != "CPU":
        witness.seen.device_memory = mindspore.hal.max_memory_allocated()
    witness.end_step(WitnessedStep(step, [loss.hex()], state.generators(), seconds), digests)


def digests(cell: Cell) -> dict[str, str]:
    """Map the parameters of a training cell, the optimizer's state among them, to the digests of their bytes."""
    return {parameter.name: xxh3(to_numpy(parameter)) for parameter in cell.get_parameters()}
