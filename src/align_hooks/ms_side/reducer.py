"""The Cell that takes the place of a training cell's ``grad_reducer`` and lets gradients be seen.

Seam: ``grads = self.grad_reducer(grads)`` in ``MFTrainOneStepCell.construct`` stands after unscaling and before clipping
in 1.3 to 1.9. Graph mode compiles ``construct`` from its source text, so wrapping it would be ignored silently, while an
attribute that holds a Cell is compiled with whatever Cell it holds. This one calls the original reducer and copies what it
sees into Parameters, tied into the graph with ``depend``; values and order of the rest stay as they were.

The copy happens in every step, because a compiled graph has no free branch; only selected steps are moved to the host.

Injection is the same door the other way: one buffer a gradient, refilled between steps from outside the graph, and one
switch that says whether this step's gradients are the buffers' or the run's own.

``MFPipelineWithLossScaleCell`` calls its ``grad_reducer`` earlier, on what is still scaled and is reset afterwards
(1.3 to 1.9); its door of the same meaning is ``clip_grad_norm``, hence :class:`CaptureThenClip`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mindspore
import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from numpy.typing import NDArray

from align_hooks.ms_side.model import Parameters
from align_hooks.names.fused import Fused
from align_hooks.record.norms import CHUNK, squared_sum


class ChunkSums(nn.Cell):
    """Sums of squares of one gradient's pieces, by chunks of :mod:`align_hooks.record.norms`, fp32, one after the other."""

    def __init__(self, shape: tuple[int, ...], repeats: int, rows: tuple[int, ...]) -> None:
        super().__init__(auto_prefix=False)
        tail = shape[1:]
        self.whole = len(rows) == 1
        self.runs = (repeats, sum(rows), *tail)
        self.bounds = tuple(zip(np.cumsum((0, *rows[:-1])).tolist(), np.cumsum(rows).tolist(), strict=True))
        sizes = [repeats * count * int(np.prod(tail, dtype=np.int64)) for count in rows]
        self.full = tuple(size // CHUNK * CHUNK for size in sizes)
        self.rest = tuple(size - size // CHUNK * CHUNK for size in sizes)
        self.counts = tuple(-(-size // CHUNK) for size in sizes)
        self.chunk = CHUNK
        self.square = ops.Square()
        self.reduce_sum = ops.ReduceSum()
        self.cat = ops.Concat()
        self.cast = ops.Cast()

    def construct(self, gradient):  # type: ignore[no-untyped-def]
        """Sums of all pieces, joined; compiled from this text."""
        gradient = self.cast(gradient, mindspore.float32)
        sums: tuple[Any, ...] = ()
        for index in range(len(self.bounds)):
            piece = gradient
            if not self.whole:
                piece = gradient.reshape(self.runs)[:, self.bounds[index][0] : self.bounds[index][1]]
            flat = piece.reshape((-1,))
            if self.full[index] > 0:
                chunks = flat[: self.full[index]].reshape((-1, self.chunk))
                sums += (self.reduce_sum(self.square(chunks), 1),)
            if self.rest[index] > 0:
                sums += (self.reduce_sum(self.square(flat[self.full[index] :].reshape((1, -1))), 1),)
        return self.cat(sums)


class CaptureGradients(nn.Cell):
    """Calls the original reducer; keeps gradients and, or, their chunk sums in Parameters of its own; may return others.

    ``point`` chooses what is seen: ``reduced`` is what the reducer returns, ``local`` what it was given. The chunk sums of
    all pieces are one fp32 vector, so that a step's norms need one transfer.
    """

    vector: Parameter
    buffers: tuple[Parameter, ...]
    injected: tuple[Parameter, ...]
    injecting: Parameter

    def __init__(self, reducer: Any, parameters: Parameters, *, point: str, norms: bool, gradients: bool, inject: bool) -> None:
        super().__init__(auto_prefix=False)
        self.reducer = reducer
        self.local = point == "local"
        self.norms = norms
        self.gradients = gradients
        self.inject = inject
        self.select = ops.Select()
        self.assign = ops.Assign()
        self.cast = ops.Cast()
        self.cat = ops.Concat()
        self.count = len(parameters.all)
        self.fused = [one.fused for one in parameters]
        self.sums = nn.CellList(
            [ChunkSums(tuple(one.model.shape), one.fused.blocks.repeats, one.fused.blocks.rows) for one in parameters], auto_prefix=False
        )
        self.names = [name for one in parameters for name in one.fused.pieces]
        self.counts = [count for cell in self.sums for count in cell.counts]
        self._keep("vector", _buffer("chunk_sums", (sum(self.counts) if norms else 1,)))
        shapes = {one.fused.native: tuple(one.model.shape) for one in parameters} if gradients else {}
        self._keep("buffers", tuple(_buffer(f"gradient.{name}", shape) for name, shape in shapes.items()))
        given = {one.fused.native: tuple(one.model.shape) for one in parameters} if inject else {}
        self._keep("injected", tuple(_buffer(f"injected.{name}", shape) for name, shape in given.items()))
        self._keep("injecting", Parameter(Tensor(False), name="align_hooks.injecting", requires_grad=False))

    def _keep(self, name: str, value: Any) -> None:
        """Set an attribute past Cell's own bookkeeping: a registered Parameter would end up in the run's checkpoints."""
        object.__setattr__(self, name, value)

    def construct(self, gradients):  # type: ignore[no-untyped-def]
        """What the original reducer returns, or what is injected in its place; compiled from this text."""
        reduced = self.reducer(gradients)
        seen = reduced
        if self.local:
            seen = gradients
        if self.norms:
            sums: tuple[Any, ...] = ()
            for index in range(self.count):
                sums += (self.sums[index](seen[index]),)
            reduced = ops.depend(reduced, self.assign(self.vector, self.cat(sums)))
        if self.gradients:
            for index in range(self.count):
                stored = self.assign(self.buffers[index], self.cast(reduced[index], mindspore.float32))
                reduced = ops.depend(reduced, stored)
        if self.inject:
            chosen: tuple[Any, ...] = ()
            for index in range(self.count):
                given = self.cast(self.injected[index], reduced[index].dtype)
                chosen += (self.select(self.injecting, given, reduced[index]),)
            reduced = chosen
        return reduced

    def fill(self, read: Callable[[Fused], NDArray[Any]] | None) -> float:
        """Refill the buffers for the next step from ``read`` (native fp32 arrays), or with None let it use its own gradients.

        Returns the global norm of what was filled in.
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
        """Canonical name to fp64 squared sum of the last step; one transfer."""
        vector = self.vector.asnumpy().astype(np.float64)
        parts = np.split(vector, np.cumsum(self.counts)[:-1])
        return {name: float(part.sum()) for name, part in zip(self.names, parts, strict=True)}


def _buffer(name: str, shape: tuple[int, ...]) -> Parameter:
    return Parameter(Tensor(np.zeros(shape, np.float32)), name=f"align_hooks.{name}", requires_grad=False)


class CaptureThenClip(nn.Cell):
    """In the place of a cell's ``clip_grad_norm``: captures or injects, then clips as the original does."""

    def __init__(self, capture: Any, clip: Any) -> None:
        super().__init__(auto_prefix=False)
        self.capture = capture
        self.clip = clip
        self.clip_norm = clip.clip_norm

    def construct(self, gradients):  # type: ignore[no-untyped-def]
        """Clipped gradients and their global norm; compiled from this text."""
        return self.clip(self.capture(gradients))


class Unreduced(nn.Cell):
    """A reducer that changes nothing, for a door behind the real one."""

    def construct(self, gradients):  # type: ignore[no-untyped-def]
        """The gradients themselves; compiled from this text."""
        return gradients


def capture_bytes(parameters: Parameters, *, norms: bool, gradients: bool, inject: bool) -> int:
    """Device memory that capturing and injecting will take, before any of it is allocated."""
    elements = [int(np.prod(one.model.shape, dtype=np.int64)) for one in parameters]
    chunks = sum(-(-size // CHUNK) + len(one.fused.pieces) for size, one in zip(elements, parameters, strict=True))
    return 4 * (chunks * norms + sum(elements) * (gradients + inject))
