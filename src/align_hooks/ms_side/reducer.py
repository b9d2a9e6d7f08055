"""The Cell that takes the place of a training cell's ``grad_reducer`` and copies gradients.

Seam: ``grads = self.grad_reducer(grads)`` in ``MFTrainOneStepCell.construct`` stands after unscaling and before clipping
in 1.3 to 1.9. Graph mode compiles ``construct`` from its source text and would silently ignore a wrapper around it, while an
attribute is compiled with whatever Cell it holds. The Cell here calls the original reducer and copies gradients into Parameters,
which ``depend`` ties into the graph; values and order of the rest stay as they were.

The copy happens in every step, because a compiled graph has no free branch. Only selected steps are moved to the host.

Injection uses the same seam in the other direction: a buffer for each gradient is refilled between steps from outside the graph, and
a switch says whether a step uses the buffers or the run's own gradients.

``MFPipelineWithLossScaleCell`` calls its ``grad_reducer`` earlier, on gradients that are still scaled and are reset afterwards
(1.3 to 1.9). Its seam of the same meaning is ``clip_grad_norm``, hence :class:`CaptureThenClip`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import mindspore
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

from align_hooks.ms_side.chunks import NormPlan
from align_hooks.ms_side.model import Parameters
from align_hooks.ms_side.norms import ChunkSums
from align_hooks.ms_side.objects import Cell
from align_hooks.names.blocks import Array
from align_hooks.names.fused import Fused
from align_hooks.record.norms import squared_sum


class CaptureGradients(nn.Cell):
    """Calls the original reducer, keeps gradients and their chunk sums in Parameters of its own, and may return injected gradients.

    ``point`` chooses the gradients of the chunk sums: ``reduced`` are those that the reducer returns, ``local`` those that it is given.
    The chunk sums of all pieces are a single fp32 vector, so that a step's norms need a single transfer.
    """

    plan: NormPlan | None
    vector: Parameter
    buffers: tuple[Parameter, ...]
    injected: tuple[Parameter, ...]
    injecting: Parameter

    def __init__(self, reducer: Cell, parameters: Parameters, *, point: str, norms: bool, gradients: bool, inject: bool) -> None:
        super().__init__(auto_prefix=False)
        self.reducer = reducer
        self.local = point == "local"
        self.norms = norms
        self.gradients = gradients
        self.inject = inject
        self.select = ops.Select()
        self.assign = ops.Assign()
        self.cast = ops.Cast()
        self.count = len(parameters.all)
        self.fused = [parameter.fused for parameter in parameters]
        shapes = {parameter.fused.native: tuple(parameter.model.shape) for parameter in parameters}
        set_unregistered(self, plan=NormPlan.of(self.fused, [shapes[fused.native] for fused in self.fused]) if norms else None)
        if self.plan is not None:
            self.sums = ChunkSums(self.plan)
        set_unregistered(
            self,
            vector=own_parameter("chunk_sums", (len(self.plan.owners) if self.plan is not None else 1,)),
            buffers=tuple(own_parameter(f"gradient.{name}", shape) for name, shape in shapes.items()) if gradients else (),
            injected=tuple(own_parameter(f"injected.{name}", shape) for name, shape in shapes.items()) if inject else (),
            injecting=switch(),
        )

    def construct(self, gradients):  # type: ignore[no-untyped-def]
        """What the original reducer returns, or what is injected in its place; compiled from this text."""
        reduced = self.reducer(gradients)
        summed = reduced
        if self.local:
            summed = gradients
        if self.norms:
            reduced = ops.depend(reduced, self.assign(self.vector, self.sums(summed)))
        if self.gradients:
            for index in range(self.count):
                stored = self.assign(self.buffers[index], self.cast(reduced[index], mindspore.float32))
                reduced = ops.depend(reduced, stored)
        if self.inject:
            chosen: tuple[Tensor, ...] = ()
            for index in range(self.count):
                injected = self.cast(self.injected[index], reduced[index].dtype)
                chosen += (self.select(self.injecting, injected, reduced[index]),)
            reduced = chosen
        return reduced

    def fill(self, read: Callable[[Fused], Array] | None) -> float:
        """Refill the buffers for the next step from ``read`` (native fp32 arrays); with None the step uses its own gradients.

        Returns the global norm of the injected gradients.
        """
        self.injecting.set_data(Tensor(read is not None))
        if read is None:
            return 0.0
        total = 0.0
        for buffer, fused in zip(self.injected, self.fused, strict=True):
            array = read(fused)
            total += squared_sum(array)
            buffer.set_data(Tensor(array))
        return math.sqrt(total)

    def squared_sums(self) -> dict[str, float]:
        """Canonical name to fp64 squared sum of the last step; a single transfer."""
        return {} if self.plan is None else self.plan.named(self.vector.asnumpy())


def set_unregistered(cell: nn.Cell, **attributes: object) -> None:
    """Set attributes of a Cell past its own bookkeeping: a registered Parameter would end up in the run's checkpoints."""
    for name, value in attributes.items():
        object.__setattr__(cell, name, value)


def own_parameter(name: str, shape: tuple[int, ...], value: float = 0.0) -> Parameter:
    """A Parameter of ours, fp32, filled with ``value``."""
    return Parameter(Tensor(np.full(shape, value, np.float32)), name=f"align_hooks.{name}", requires_grad=False)


def switch() -> Parameter:
    """The Parameter that says whether a step's gradients are injected."""
    return Parameter(Tensor(False), name="align_hooks.injecting", requires_grad=False)


class CaptureThenClip(nn.Cell):
    """Takes the place of a cell's ``clip_grad_norm``: captures or injects, then clips as the original does."""

    def __init__(self, capture: Cell, clip: Cell) -> None:
        super().__init__(auto_prefix=False)
        self.capture = capture
        self.clip = clip
        self.clip_norm = clip.clip_norm

    def construct(self, gradients):  # type: ignore[no-untyped-def]
        """Clipped gradients and their global norm; compiled from this text."""
        return self.clip(self.capture(gradients))


class Unreduced(nn.Cell):
    """A reducer that changes nothing, for a seam behind the real reducer."""

    def construct(self, gradients):  # type: ignore[no-untyped-def]
        """The gradients themselves; compiled from this text."""
        return gradients


def capture_bytes(parameters: Parameters, *, norms: bool, gradients: bool, inject: bool) -> int:
    """Device memory that capturing and injecting will take, before any of it is allocated."""
    elements = sum(int(math.prod(parameter.model.shape)) for parameter in parameters)
    fused, shapes = [parameter.fused for parameter in parameters], [tuple(parameter.model.shape) for parameter in parameters]
    chunks = len(NormPlan.of(fused, shapes).owners) if norms else 0
    return 4 * (chunks + elements * (gradients + inject))
