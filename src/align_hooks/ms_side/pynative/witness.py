"""The witness of a PyNative run below ``align-hooks prove`` (:mod:`align_hooks.job.witness`).

Patch point: the end of ``Trainer.__init__``, where the callbacks are known: those that save are taken out, and the witness's own comes
last. It lowers the number of steps at which the trainer's loop ends.
"""

import time
from itertools import chain

from mindformers.pynative.callback import TrainerCallback

from align_hooks.hooking.hook import Args, Function, Instance, Kwargs
from align_hooks.job.witness import JobWitness
from align_hooks.ms_side.arrays import number
from align_hooks.ms_side.hooks.witness import begin, digests, end
from align_hooks.ms_side.objects import Config

SAVES = "CheckpointCallback"


def wrap(witness: JobWitness, wrapped: Function, instance: Instance, args: Args, kwargs: Kwargs) -> None:
    """Call ``Trainer.__init__``, and put the witness in the place of the callbacks that save."""
    wrapped(*args, **kwargs)
    handler = instance.callback_handler
    if handler is None:  # a trainer that only generates text
        return
    kept = [callback for callback in handler.callbacks if type(callback).__name__ != SAVES]
    witness.left_out["checkpoints"] += len(handler.callbacks) - len(kept)
    handler.callbacks[:] = [*kept, PynativeWitness(witness, instance)]


class PynativeWitness(TrainerCallback):  # type: ignore[misc]
    """Keeps what must not change in a step, and ends training."""

    def __init__(self, witness: JobWitness, trainer: Instance) -> None:
        self.witness, self.trainer = witness, trainer
        self.ended: float | None = None
        """When the step before had ended and was kept; None before there is one."""

    def on_train_begin(self, args: Config, progress: Instance, **others: object) -> None:
        """Keep what the run starts from, and set the last step."""
        progress.max_steps = min(progress.max_steps, progress.global_step + self.witness.limit)
        begin(self.witness, self.digests(), chain.from_iterable(network.trainable_params() for network in self.trainer.model))

    def on_step_end(self, args: Config, progress: Instance, **others: Instance) -> None:
        """Keep a step; its seconds are those since the step before ended, with the data that it waits for."""
        loss = number(others["loss"])  # waits for the step
        seconds = None if self.ended is None else time.perf_counter() - self.ended
        end(self.witness, progress.global_step - 1, loss, seconds, self.digests)
        self.ended = time.perf_counter()  # so that the witness's own work is part of no step

    def digests(self) -> dict[str, str]:
        """Map the parameters of the models and of the optimizer to the digests of their bytes."""
        cells = [*self.trainer.model, self.trainer.optimizer]
        return {name: digest for cell in cells for name, digest in digests(cell).items()}
