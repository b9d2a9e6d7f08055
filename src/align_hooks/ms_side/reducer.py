"""The Cell that takes the place of a training cell's ``grad_reducer`` and copies gradients.

Patch point: ``grads = self.grad_reducer(grads)`` in ``MFTrainOneStepCell.construct``, after unscaling and before clipping in 1.3 to 1.9.
Graph mode compiles ``construct`` from its text and would silently ignore a wrapper, while it compiles whatever Cell an attribute holds. The
Cell here calls the original reducer and copies gradients into Parameters, which ``depend`` ties into the graph; values and order of the
rest do not change. The copy happens in every step, because a compiled graph has no free branch; only selected steps cross to the host.

Injection refills a buffer for each gradient between steps, and a switch chooses between the buffers and the run's own gradients.

``MFPipelineWithLossScaleCell`` calls its ``grad_reducer`` on gradients that are still scaled and are reset afterwards (1.3 to 1.9). Its
equivalent patch point is ``clip_grad_norm``, hence :class:`CaptureThenClip`.

Under semi-automatic parallelism :class:`CaptureShards` keeps and replaces a rank's part of each gradient, because MindSpore's parallel
passes trace a Cell around the network with global shapes, compile it with local shapes, and redistribute nothing.

- A Parameter of a gradient's whole shape does not compile. Clones of the weights, made as the optimizer makes its moments, are cut as the
  weights are. Clones made after a pipeline cell's own ``accu_grads`` are cut wrongly, so these are made before it is built.
- Chunk sums and signed sums need sizes, and when the Cell is traced it has the sizes of whole gradients. So norms and sketches are taken on
  the host from the buffers, on the steps where they are wanted: all gradients then cross to the host, and the buffers take memory where
  only norms or sketches are asked for.
- Clipping finds its global norm by walking from each weight to the norm, over few kinds of operators. ``Select`` stops that walk, and each
  rank then clips by its own norm, silently; a ``depend`` on the gradient itself lets the walk go on.
- A single ``depend`` holds all copies. A ``depend`` for each makes paths that double with every weight, and compiling does not end.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import mindspore
from mindspore import Parameter, Tensor, nn, ops
from msgspec import Struct
from msgspec.structs import astuple

from align_hooks.errors import RefusedRun
from align_hooks.ms_side.model import CellParameters, refill, sketches, squared_sums
from align_hooks.ms_side.objects import Cell, Optimizer
from align_hooks.ms_side.own_parameters import own_parameter, set_unregistered, switch
from align_hooks.ms_side.plans import ChunkPlan, SignedSumPlan
from align_hooks.ms_side.sums import ChunkSums, SignedSums
from align_hooks.names.blocks import Array
from align_hooks.names.fused import Fused
from align_hooks.quantities.local_norms import LOCAL_NORMS
from align_hooks.quantities.registry import KINDS
from align_hooks.quantities.sketches import GRADIENT_SKETCHES
from align_hooks.settings import Settings


class Tasks(Struct, frozen=True):
    """The tasks of a capturing Cell in every step, decided before the graph is compiled."""

    norms: bool = False
    gradients: bool = False
    sketches: bool = False
    inject: bool = False

    @classmethod
    def of(cls, settings: Settings, *, inject: bool) -> Tasks:
        """Return the tasks of a run's settings."""
        keeps = any(settings.steps(kind) for kind in KINDS if kind.kept_on_device)
        return cls(bool(settings.steps(LOCAL_NORMS)), keeps, bool(settings.steps(GRADIENT_SKETCHES)), inject)

    def __bool__(self) -> bool:
        return any(astuple(self))


class CaptureGradients(nn.Cell):
    """Calls the original reducer, keeps gradients, chunk sums and signed sums in its own Parameters, and may inject gradients.

    ``point`` chooses the gradients of the norms: the reducer's results (``reduced``) or its arguments (``local``). The chunk sums of all
    pieces are one fp32 vector, for one transfer a step; so are the signed sums."""

    plan: ChunkPlan
    signs: SignedSumPlan
    vector: Parameter
    vector_of_reduced: Parameter
    signed: Parameter
    buffers: tuple[Parameter, ...]
    injected: tuple[Parameter, ...]
    injecting: Parameter
    parameters: CellParameters

    def __init__(self, reducer: Cell, parameters: CellParameters, tasks: Tasks, *, point: str = "reduced") -> None:
        super().__init__(auto_prefix=False)
        self.reducer = reducer
        self.local = point == "local"
        self.norms, self.gradients, self.sketches, self.inject = tasks.norms, tasks.gradients, tasks.sketches, tasks.inject
        self.select, self.assign, self.cast = ops.Select(), ops.Assign(), ops.Cast()
        self.count = len(parameters.all)
        self.counted = all(parameter.counted for parameter in parameters)
        fused = [parameter.fused for parameter in parameters]
        shapes = {parameter.fused.native: tuple(parameter.model.shape) for parameter in parameters}
        self.squares = self.norms or self.sketches
        if self.squares:
            plan = ChunkPlan.of(fused, [*shapes.values()])
            vector = own_parameter("chunk_sums", (len(plan.owners),))
            is_apart = self.local and self.sketches
            reduced = own_parameter("chunk_sums_of_reduced", (len(plan.owners),)) if is_apart else vector
            set_unregistered(self, plan=plan, vector=vector, vector_of_reduced=reduced)
            self.sums = ChunkSums(plan)
        if self.sketches:
            signs = SignedSumPlan.of(fused, [*shapes.values()])
            set_unregistered(self, signs=signs, signed=own_parameter("signed_sums", (signs.numbers,)))
            self.signed_sums = SignedSums(signs)
        set_unregistered(
            self,
            parameters=parameters,
            buffers=tuple(own_parameter(f"gradient.{name}", shape) for name, shape in shapes.items()) if self.gradients else (),
            injected=tuple(own_parameter(f"injected.{name}", shape) for name, shape in shapes.items()) if self.inject else (),
            injecting=switch(),
        )

    def construct(self, gradients):  # type: ignore[no-untyped-def]
        """Return the original reducer's gradients, or those injected in their place; compiled from this text."""
        reduced = self.reducer(gradients)
        summed = reduced
        if self.local:
            summed = gradients
        if self.squares:
            reduced = ops.depend(reduced, self.assign(self.vector, self.sums(summed)))
        if self.sketches:
            if self.local:
                reduced = ops.depend(reduced, self.assign(self.vector_of_reduced, self.sums(reduced)))
            reduced = ops.depend(reduced, self.assign(self.signed, self.signed_sums(reduced)))
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
        """Refill the buffers for the next step, see :func:`refill`; return the norm of all injected gradients."""
        return refill(self.injecting, zip(self.parameters, self.injected, strict=True), read, copies=True)

    def squared_sums(self) -> dict[str, float]:
        """Map canonical names to the last step's squared sums, fp64; one transfer."""
        return self.plan.named(self.vector.asnumpy()) if self.squares else {}

    def gradient_sketches(self) -> dict[str, list[float]]:
        """Map canonical names to sketches of the last step's reduced gradients; two transfers. Empty on a rank of copies."""
        if not self.counted:
            return {}
        squared = self.plan.named(self.vector_of_reduced.asnumpy())
        return self.signs.named(self.signed.asnumpy(), squared)


class CaptureThenClip(nn.Cell):
    """Takes the place of a cell's ``clip_grad_norm``: captures or injects, then calls the original."""

    def __init__(self, capture: Cell, clip: Cell) -> None:
        super().__init__(auto_prefix=False)
        self.capture = capture
        self.clip = clip
        self.clip_norm = clip.clip_norm

    def construct(self, gradients):  # type: ignore[no-untyped-def]
        """Clipped gradients and their global norm; compiled from this text."""
        return self.clip(self.capture(gradients))


def capture_bytes(parameters: CellParameters, tasks: Tasks) -> int:
    """Return the device memory of capturing and injecting, in bytes, before its allocation."""
    fused, shapes = [parameter.fused for parameter in parameters], [tuple(parameter.model.shape) for parameter in parameters]
    elements: int = sum(math.prod(shape) for shape in shapes)
    chunks = len(ChunkPlan.of(fused, shapes).owners) if tasks.norms or tasks.sketches else 0
    sums = SignedSumPlan.of(fused, shapes).numbers if tasks.sketches else 0
    return 4 * (chunks + sums + elements * (tasks.gradients + tasks.inject))


class CaptureShards(nn.Cell):
    """Calls the original reducer, keeps this rank's part of each gradient in its own Parameters, and may inject gradients.

    Make the Cell before the training cell, put it :meth:`around` that cell's reducer, and :meth:`bind` it to the compiled graph's
    parameters. Raises RefusedRun for an optimizer that cannot clone its state."""

    copies: tuple[Parameter, ...]
    injected: tuple[Parameter, ...]
    injecting: Parameter
    parameters: CellParameters

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
        """Return the original reducer's gradients, or those injected in their place; compiled from this text."""
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

    def bind(self, parameters: CellParameters) -> None:
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
        if (unmade := clone.init_mode) is not None:
            # each slice that MindSpore initialises moves the seed of the next: without a slice's number it leaves the seeds to the weights
            unmade.init_data = functools.partial(lambda make, _=None, *cut: make(None, *cut), unmade.init_data)
    return clones
