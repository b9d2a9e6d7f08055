"""Each token's loss, before the mask and before any sum: where a forward fault shows first.

Seam: the ``_nllloss`` of MindFormers' ``CrossEntropyLoss``, whose output is that (1.3 to 1.9); the loss itself puts out their mean
alone. As in :mod:`align_hooks.ms_side.reducer` the Cell is compiled in the place of the original and keeps what it sees. It is put
there at the first ``on_train_step_begin``, which has the batch that the graph is compiled for.

Only where the model is called with the whole batch: cells that cut it into micro-batches are those of semi-automatic parallelism.
"""

from __future__ import annotations

from typing import Any

import mindspore
import numpy as np
from mindformers.core.loss import CrossEntropyLoss
from mindspore import Parameter, Tensor, nn, ops
from numpy.typing import NDArray

PASSES_ON = ("DataOrderWrapperCell",)
"""Cells around a model that hand it all that they are given."""

UNTOUCHED = -1.0
"""No cross entropy is negative."""


class CaptureTokenLosses(nn.Cell):
    """Calls the original and keeps its losses in a Parameter of its own, fp32; of another number of tokens nothing."""

    buffer: Parameter

    def __init__(self, original: Any, tokens: int) -> None:
        super().__init__(auto_prefix=False)
        self.original = original
        self.size = (tokens,)
        self.assign = ops.Assign()
        self.cast = ops.Cast()
        held = Parameter(Tensor(np.full(self.size, UNTOUCHED, np.float32)), name="align_hooks.token_losses", requires_grad=False)
        object.__setattr__(self, "buffer", held)  # past Cell's own bookkeeping, so that no checkpoint has it

    def construct(self, log_softmax, one_hot):  # type: ignore[no-untyped-def]
        """The original's losses; compiled from this text."""
        losses = self.original(log_softmax, one_hot)
        if losses.shape == self.size:
            losses = ops.depend(losses, self.assign(self.buffer, self.cast(losses, mindspore.float32)))
        return losses

    def read(self, shape: tuple[int, ...]) -> NDArray[Any] | None:
        """The last step's losses as ``[rows, sequence]``; None where the graph was compiled without this Cell or for another batch."""
        losses: NDArray[Any] = self.buffer.asnumpy()
        return None if losses.size != np.prod(shape) or (losses == UNTOUCHED).all() else losses.reshape(shape)


def capture_token_losses(train_cell: Any, tokens: int) -> CaptureTokenLosses | None:
    """Put a capturing Cell into the loss of a training cell's model; None where there is no such loss."""
    model = train_cell.network
    while type(model).__name__ in PASSES_ON:
        model = model.network
    loss = getattr(model, "loss", None)
    if not isinstance(loss, CrossEntropyLoss) or not hasattr(loss, "_nllloss"):
        return None
    capture = CaptureTokenLosses(loss._nllloss, tokens)
    loss._nllloss = capture
    return capture
