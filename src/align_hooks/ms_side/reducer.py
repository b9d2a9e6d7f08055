"""The Cell that takes the place of a training cell's ``grad_reducer`` and copies gradients.

Patch point: ``grads = self.grad_reducer(grads)`` in ``MFTrainOneStepCell.construct``, after unscaling and before clipping in 1.3 to 1.9.
Graph mode compiles ``construct`` from its text and would silently ignore a wrapper, while it compiles whatever Cell an attribute holds. The
Cell here calls the original reducer and copies gradients into Parameters, which ``depend`` ties into the graph; values and order of the
rest do not change. The copy happens in every step, because a compiled graph has no free branch; only selected steps cross to the host.

Injection refills a buffer for each gradient between steps, and a switch chooses between the buffers and the run's own gradients.

``MFPipelineWithLossScaleCell`` calls its ``grad_reducer`` on gradients that are still scaled and are reset afterwards (1.3 to 1.9). Its
equivalent patch point is ``clip_grad_norm``, hence :class:`CaptureThenClip`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import astuple, dataclass

import mindspore
from mindspore import Parameter, Tensor, nn, ops

from align_hooks.ms_side.chunks import NormPlan
from align_hooks.ms_side.lanes import SketchPlan
from align_hooks.ms_side.model import Parameters, refill
from align_hooks.ms_side.norms import ChunkSums
from align_hooks.ms_side.objects import Cell
from align_hooks.ms_side.own_parameters import own_parameter, set_unregistered, switch
from align_hooks.ms_side.sketches import SignedSums
from align_hooks.names.blocks import Array
from align_hooks.names.fused import Fused
from align_hooks.quantities.local_norms import LOCAL_NORMS
from align_hooks.quantities.registry import KINDS
from align_hooks.quantities.sketches import GRADIENT_SKETCHES
from align_hooks.settings import Settings


@dataclass(frozen=True, slots=True)
class Tasks:
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

    plan: NormPlan
    signs: SketchPlan
    vector: Parameter
    vector_of_reduced: Parameter
    signed: Parameter
    buffers: tuple[Parameter, ...]
    injected: tuple[Parameter, ...]
    injecting: Parameter
    parameters: Parameters

    def __init__(self, reducer: Cell, parameters: Parameters, tasks: Tasks, *, point: str = "reduced") -> None:
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
            plan = NormPlan.of(fused, [*shapes.values()])
            vector = own_parameter("chunk_sums", (len(plan.owners),))
            is_apart = self.local and self.sketches
            reduced = own_parameter("chunk_sums_of_reduced", (len(plan.owners),)) if is_apart else vector
            set_unregistered(self, plan=plan, vector=vector, vector_of_reduced=reduced)
            self.sums = ChunkSums(plan)
        if self.sketches:
            signs = SketchPlan.of(fused, [*shapes.values()])
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
        """What the original reducer returns, or what is injected in its place; compiled from this text."""
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


def capture_bytes(parameters: Parameters, tasks: Tasks) -> int:
    """Return the device memory of capturing and injecting, in bytes, before its allocation."""
    fused, shapes = [parameter.fused for parameter in parameters], [tuple(parameter.model.shape) for parameter in parameters]
    elements: int = sum(math.prod(shape) for shape in shapes)
    chunks = len(NormPlan.of(fused, shapes).owners) if tasks.norms or tasks.sketches else 0
    sums = SketchPlan.of(fused, shapes).numbers if tasks.sketches else 0
    return 4 * (chunks + sums + elements * (tasks.gradients + tasks.inject))
