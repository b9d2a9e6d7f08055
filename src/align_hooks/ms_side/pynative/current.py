"""The values of a PyNative step under way, each kept as a device tensor until the step has ended."""

from collections.abc import Sequence

import numpy as np
from msgspec import Struct, field

from align_hooks.ms_side.objects import Tensor
from align_hooks.names.blocks import Array


class PynativeMicroBatch(Struct):
    """What one micro-batch consumed and made."""

    arrays: dict[str, Array]
    """``tokens``, ``labels``, ``loss_mask`` ``[rows, sequence]``, on the host."""
    part: Tensor = None
    """Its part of the step's loss: its mean by the number of micro-batches; None before its end."""
    token_losses: Tensor = None
    """The model's own, ``[rows · sequence]``, before the mask; None where no function shows them."""
    experts: dict[str, Tensor] = field(default_factory=dict)
    """Name of a router to its choice, ``[sequence · rows, experts a token]``."""
    positions: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)
    """Name of an indexer to its choice, ``[rows, sequence, chosen]``, and the scores of what it chose."""

    @property
    def rows(self) -> int:
        """Rows of the micro-batch."""
        return len(self.arrays["tokens"])


def token_mean(loss: float | None, parts: Sequence[float], weights: Array) -> float | None:
    """Return the mean loss of the valid tokens of a rank's step; None where the part of a micro-batch is not known.

    ``loss`` is the mean of the micro-batches' means, None where it is of other ranks too, which is the same where each has as many tokens;
    ``parts`` are those that it is the sum of, and ``weights`` the sum of each micro-batch's loss mask."""
    if loss is not None and np.ptp(weights) == 0:
        return loss
    if len(parts) != len(weights):
        return None
    tokens = weights.sum()  # none, where the mask leaves a rank nothing of its rows
    return float((np.array(parts) * weights).sum() * len(parts) / tokens) if tokens else float(sum(parts))


class PynativeStepValues(Struct):
    """A new object each step."""

    started: float = 0.0
    """Seconds of :func:`time.perf_counter`."""
    micro_batches: list[PynativeMicroBatch] = field(default_factory=list)
    terms: dict[str, Tensor] = field(default_factory=dict)
    """Name of a term of the loss to its sum over layers and micro-batches, coefficient included."""
    rate: float | list[float] = 0.0
    """The learning rate, or each group's."""
    norm: Tensor = None
    """The global norm of the gradients with which the optimizer is called, before clipping."""
    squared: dict[str, float] = field(default_factory=dict)
    """Canonical name to the squared sum of its gradient."""
    sketches: dict[str, list[float]] | None = None
    """Canonical name to the sketch of its gradient; None where none was asked for."""
    skipped: int = 0
    """The trainer's count of skipped steps at the step's start."""
