"""The capturing Cell under semi-automatic parallelism, which keeps and replaces a rank's part of each gradient.

It takes the place of :class:`.reducer.CaptureGradients`, because MindSpore's parallel passes trace a Cell around the network with global
shapes, compile it with local shapes, and redistribute nothing.

- A Parameter of a gradient's whole shape does not compile. Clones of the weights, made as the optimizer makes its moments, are cut
  as the weights are. Clones made after a pipeline cell's own ``accu_grads`` are cut wrongly, so these are made before it is built.
- Chunk sums and signed sums need sizes, and when the Cell is traced it has the sizes of whole gradients. So norms and sketches are taken
  on the host from the buffers, on the steps where they are wanted: all gradients then cross to the host, and the buffers take memory where
  only norms or sketches are asked for.
- Clipping finds its global norm by walking from each weight to the norm, over few kinds of operators. ``Select`` stops that walk, and
  each rank then clips by its own norm, silently; a ``depend`` on the gradient itself lets the walk go on.
- A single ``depend`` holds all copies. A ``depend`` for each makes paths that double with every weight, and compiling does not end.
"""

from __future__ import annotations

from collections.abc import Callable

import mindspore
from mindspore import Parameter, Tensor, nn, ops

from align_hooks.errors import RefusedRun
from align_hooks.ms_side.model import Parameters, refill, sketches, squared_sums
from align_hooks.ms_side.objects import Cell, Optimizer
from align_hooks.ms_side.own_parameters import set_unregistered, switch
from align_hooks.ms_side.reducer import Tasks
from align_hooks.names.blocks import Array
from align_hooks.names.fused import Fused


class CaptureShards(nn.Cell):
    """Calls the original reducer, keeps this rank's part of each gradient in its own Parameters, and may inject gradients.

    Make the Cell before the training cell, put it :meth:`around` that cell's reducer, and :meth:`bind` it to the compiled graph's
    parameters. Raises RefusedRun for an optimizer that cannot clone its state."""

    copies: tuple[Parameter, ...]
    injected: tuple[Parameter, ...]
    injecting: Parameter
    parameters: Parameters

    def __init__(self, optimizer: Optimizer, tasks: Tasks) -> None:
        super().__init__(auto_prefix=False)
        if not hasattr(optimizer, "clone_state"):
            raise RefusedRun(
                f"{type(optimizer).__name__} has no clone_state, by which gradients are kept under semi_auto_parallel; "
                f"use MindFormers' AdamW, or ask for neither gradients nor their norms"
            )
        self.local = False
        self.norms, self.inject = tasks.norms, tasks.inject
        self.captures = tasks.norms or tasks.gradients or tasks.sketches
        self.count = len(optimizer.parameters)
        self.assign, self.cast, self.select = ops.Assign(), ops.Cast(), ops.Select()
        copies = _clones(optimizer, "align_hooks_gradient") if self.captures else ()
        injected = _clones(optimizer, "align_hooks_injected") if self.inject else ()
        set_unregistered(self, copies=copies, injected=injected, injecting=switch())

    def around(self, reducer: Cell) -> CaptureShards:
        """Set the original reducer, and return this Cell."""
        self.reducer = reducer
        return self

    def construct(self, gradients):  # type: ignore[no-untyped-def]
        """What the original reducer returns, or what is injected in its place; compiled from this text."""
        reduced = self.reducer(gradients)
        if self.captures:
            copied: tuple[Tensor, ...] = ()
            for index in range(self.count):
                copied += (self.assign(self.copies[index], self.cast(reduced[index], mindspore.float32)),)
            reduced = ops.depend(reduced, copied)
        if self.inject:
            chosen: tuple[Tensor, ...] = ()
            for index in range(self.count):
                injected = self.cast(self.injected[index], reduced[index].dtype)
                chosen += (ops.depend(self.select(self.injecting, injected, reduced[index]), reduced[index]),)
            reduced = chosen
        return reduced

    def bind(self, parameters: Parameters) -> None:
        """Set the parameters of this rank; raises RefusedRun where the compiled graph cut a buffer and its weight differently."""
        for parameter in parameters:
            weight = parameter.model
            for buffers in (self.copies, self.injected):
                if buffers and tuple(buffers[parameter.index].shape) != tuple(weight.shape):
                    raise RefusedRun(
                        f"the buffer of {weight.name}'s gradient is {list(buffers[parameter.index].shape)} here and the weight "
                        f"{list(weight.shape)}: this MindSpore cuts them differently; unset what captures or injects gradients"
                    )
        set_unregistered(self, parameters=parameters)

    @property
    def buffers(self) -> tuple[Parameter, ...]:
        """This rank's part of the last step's gradients, in the order of the parameters."""
        return tuple(self.copies[parameter.index] for parameter in self.parameters)

    @property
    def bytes(self) -> int:
        """The device memory of the buffers on this rank."""
        return 4 * sum(int(parameter.model.size) for parameter in self.parameters) * (self.captures + self.inject)

    def fill(self, read: Callable[[Fused], Array] | None) -> float:
        """Refill the buffers for the next step, see :func:`refill`; return the norm without other ranks' copies."""
        buffers = ((parameter, self.injected[parameter.index]) for parameter in self.parameters)
        return refill(self.injecting, buffers, read, copies=False)

    def squared_sums(self) -> dict[str, float]:
        """Map canonical names to squared sums of this rank's part of the last step's gradients; a transfer each."""
        return squared_sums(zip(self.parameters, self.buffers, strict=True))

    def gradient_sketches(self) -> dict[str, list[float]]:
        """Map canonical names to sketches of this rank's part of the last step's gradients, without copies; a transfer each."""
        pairs = zip(self.parameters, self.buffers, strict=True)
        return sketches((parameter, buffer) for parameter, buffer in pairs if parameter.counted)


def _clones(optimizer: Optimizer, prefix: str) -> tuple[Parameter, ...]:
    """Make fp32 zeros for each of the optimizer's parameters, which MindSpore cuts as the parameter."""
    clones = tuple(optimizer.clone_state(prefix=prefix, init="zeros"))
    for clone in clones:
        clone.requires_grad = False
    return clones
