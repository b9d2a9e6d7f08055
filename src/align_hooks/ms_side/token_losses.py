"""Each token's loss, before the mask and any sum, where a fault of the forward pass shows first.

Patch point: the ``_nllloss`` of MindFormers' ``CrossEntropyLoss``, whose output these losses are (1.3 to 1.9, older and newer models). As
in :mod:`align_hooks.ms_side.reducer` a Cell of ours is compiled in the place of the original and keeps its output, from the first
``on_train_step_begin`` on, which has the batch of the graph. The model must be called with the full batch, which only semi-automatic
parallelism cuts into micro-batches.
"""

import mindspore
import numpy as np
from mindspore import Parameter, nn, ops

from align_hooks.ms_side.model import model_of
from align_hooks.ms_side.objects import Cell
from align_hooks.ms_side.own_parameters import own_parameter, set_unregistered
from align_hooks.names.blocks import Array

PASSES_ON = ("DataOrderWrapperCell",)
"""Cells around a model that pass all their inputs on to the model."""
UNTOUCHED = -1.0
"""The buffer's first value; no cross entropy is negative."""


class CaptureTokenLosses(nn.Cell):
    """Calls the original and keeps its losses, fp32, in a Parameter of its own; a batch of another number of tokens is not kept."""

    buffer: Parameter

    def __init__(self, original: Cell, tokens: int) -> None:
        super().__init__(auto_prefix=False)
        self.original = original
        self.size = (tokens,)
        self.assign, self.cast = ops.Assign(), ops.Cast()
        set_unregistered(self, buffer=own_parameter("token_losses", self.size, UNTOUCHED))

    def construct(self, log_softmax, one_hot):  # type: ignore[no-untyped-def]
        """Return the original's losses; compiled from this text."""
        losses = self.original(log_softmax, one_hot)
        if losses.shape == self.size:
            losses = ops.depend(losses, self.assign(self.buffer, self.cast(losses, mindspore.float32)))
        return losses

    def read(self, shape: tuple[int, ...]) -> Array | None:
        """Return the last step's losses, ``[rows, sequence]``; None where the graph was compiled without this Cell or for another batch."""
        losses: Array = self.buffer.asnumpy()
        return None if losses.size != np.prod(shape) or (losses == UNTOUCHED).all() else losses.reshape(shape)


def is_called_whole(train_cell: Cell) -> bool:
    """Return whether a training cell calls its model with the full batch."""
    network = train_cell.network
    while type(network).__name__ in PASSES_ON:
        network = network.network
    return model_of(train_cell).network is network


def capture_token_losses(train_cell: Cell, tokens: int) -> CaptureTokenLosses | None:
    """Put a capturing Cell into the loss of a training cell's model; None where there is no such loss."""
    loss: Cell = getattr(model_of(train_cell).core, "loss", None)
    if not is_called_whole(train_cell) or type(loss).__name__ != "CrossEntropyLoss" or not hasattr(loss, "_nllloss"):
        return None
    capture = CaptureTokenLosses(loss._nllloss, tokens)
    loss._nllloss = capture
    return capture
