"""The capturing Cell under semi-automatic parallelism: what a rank holds of each gradient, kept and replaced.

It stands where :class:`.reducer.CaptureGradients` stands, and is another Cell because of what MindSpore's parallel passes make of
one in the graph around the network: it is traced with whole shapes and compiled with local ones, and nothing is redistributed.

- A Parameter of a gradient's whole shape does not compile. Clones of the weights, made as the optimizer makes its moments, are cut
  as the weights are. Clones made after a pipeline cell's own ``accu_grads`` are cut wrongly, so these are made before it is built.
- Chunk sums need sizes, which are those of whole gradients when the Cell is traced. So norms are taken on the host from the buffers,
  on the steps where they are wanted: all gradients then cross to the host, and the buffers take memory where only norms are asked for.
- Clipping finds its global norm by walking from each weight to the norm, over few kinds of operators. ``Select`` stops that walk, and
  each rank then clips by its own norm, silently; a ``depend`` on the gradient itself lets the walk go on.
- One ``depend`` on all copies: one after the other makes paths that double with every weight, and compiling does not end.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mindspore
from mindspore import Parameter, Tensor, nn, ops
from numpy.typing import NDArray

from align_hooks.errors import RefusedRun
from align_hooks.ms_side.model import Parameters, fill, squared_sums
from align_hooks.names.fused import Fused
from align_hooks.record.norms import squared_sum


class CaptureShards(nn.Cell):
    """Calls the original reducer; keeps this rank's part of each gradient in Parameters of its own; may return others.

    Make it before the training cell is built, put it :meth:`around` its reducer, and :meth:`bind` it to what the compiled graph holds.
    Raises RefusedRun for an optimizer that cannot clone its state.
    """

    copies: tuple[Parameter, ...]
    given: tuple[Parameter, ...]
    injecting: Parameter
    parameters: Parameters | None

    def __init__(self, optimizer: Any, *, norms: bool, gradients: bool, inject: bool) -> None:
        super().__init__(auto_prefix=False)
        if not hasattr(optimizer, "clone_state"):
            raise RefusedRun(
                f"{type(optimizer).__name__} has no clone_state, by which gradients are kept under semi_auto_parallel; "
                f"use MindFormers' AdamW, or ask for neither gradients nor their norms"
            )
        self.local = False
        self.norms = norms
        self.captures = norms or gradients
        self.inject = inject
        self.count = len(optimizer.parameters)
        self.assign = ops.Assign()
        self.cast = ops.Cast()
        self.select = ops.Select()
        self._set("copies", _clones(optimizer, "align_hooks_gradient") if self.captures else ())
        self._set("given", _clones(optimizer, "align_hooks_injected") if inject else ())
        self._set("injecting", Parameter(Tensor(False), name="align_hooks.injecting", requires_grad=False))
        self._set("parameters", None)

    def _set(self, name: str, value: Any) -> None:
        """Set an attribute past Cell's own bookkeeping: a registered Parameter would end up in the run's checkpoints."""
        object.__setattr__(self, name, value)

    def around(self, reducer: Any) -> CaptureShards:
        """This Cell, with the reducer that it calls."""
        self.reducer = reducer
        return self

    def construct(self, gradients):  # type: ignore[no-untyped-def]
        """What the original reducer returns, or what is injected in its place; compiled from this text."""
        reduced = self.reducer(gradients)
        if self.captures:
            kept: tuple[Any, ...] = ()
            for index in range(self.count):
                kept += (self.assign(self.copies[index], self.cast(reduced[index], mindspore.float32)),)
            reduced = ops.depend(reduced, kept)
        if self.inject:
            chosen: tuple[Any, ...] = ()
            for index in range(self.count):
                given = self.cast(self.given[index], reduced[index].dtype)
                chosen += (ops.depend(self.select(self.injecting, given, reduced[index]), reduced[index]),)
            reduced = chosen
        return reduced

    def bind(self, parameters: Parameters) -> None:
        """Tell which of the weights this rank holds; raises RefusedRun where the compiled graph cut a buffer otherwise."""
        for one in parameters:
            for buffers in (self.copies, self.given):
                if buffers and tuple(buffers[one.index].shape) != tuple(one.model.shape):
                    raise RefusedRun(
                        f"the buffer of {one.model.name}'s gradient is {list(buffers[one.index].shape)} here and the weight "
                        f"{list(one.model.shape)}: this MindSpore cuts them differently; unset what captures or injects gradients"
                    )
        self._set("parameters", parameters)

    @property
    def held(self) -> Parameters:
        """The parameters that :meth:`bind` was given."""
        assert self.parameters is not None
        return self.parameters

    @property
    def buffers(self) -> tuple[Parameter, ...]:
        """This rank's part of the last step's gradients, in the order of the parameters."""
        return tuple(self.copies[one.index] for one in self.held)

    @property
    def bytes(self) -> int:
        """Device memory that the buffers take on this rank."""
        return 4 * sum(int(one.model.size) for one in self.held) * (self.captures + self.inject)

    def fill(self, read: Callable[[Fused], NDArray[Any]] | None) -> float:
        """Refill the buffers for the next step from ``read`` (what is held, fp32), or with None let it use its own gradients.

        Returns the norm of what was filled in and counts on this rank.
        """
        self.injecting.set_data(Tensor(read is not None))
        if read is None:
            return 0.0
        total = 0.0
        for one in self.held:
            array = read(one.fused)
            total += squared_sum(array) if one.counted else 0.0
            fill(self.given[one.index], array)
        return math.sqrt(total)

    def squared_sums(self) -> dict[str, float]:
        """Canonical name to squared sum of this rank's part of the last step's gradients; every gradient crosses to the host."""
        return squared_sums(zip(self.held, self.buffers, strict=True))


def _clones(optimizer: Any, prefix: str) -> tuple[Parameter, ...]:
    """Zeros in fp32 for each of the optimizer's parameters, which MindSpore cuts as it cuts that parameter."""
    clones = tuple(optimizer.clone_state(prefix=prefix, init="zeros"))
    for clone in clones:
        clone.requires_grad = False
    return clones
