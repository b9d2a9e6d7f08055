"""The sums over a step's gradients that become its norms and sketches, on the device, planned once."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import mindspore

from align_hooks.ms_side.model import CellParameter
from align_hooks.ms_side.objects import Tensor
from align_hooks.ms_side.plans import ChunkPlan, SignedSumPlan
from align_hooks.ms_side.sums import ChunkSums, SignedSums


@dataclass
class GradientSums:
    """The sums over gradients of norms and sketches."""

    names: tuple[str, ...]
    """The parameters that have a gradient, by their names in the framework."""
    plan: ChunkPlan
    chunks: ChunkSums
    parameters: Sequence[CellParameter] = ()
    _signs: tuple[SignedSumPlan, SignedSums] | None = field(default=None, init=False)

    @classmethod
    def of(cls, parameters: Sequence[CellParameter]) -> "GradientSums":
        """Plan for the gradients of these parameters."""
        fused = [parameter.fused for parameter in parameters]
        plan = ChunkPlan.of(fused, [each.shape for each in fused])
        return cls(tuple(each.native for each in fused), plan, ChunkSums(plan), parameters)

    def read(self, gradients: Sequence[Tensor], *, sketched: bool) -> tuple[dict[str, float], dict[str, list[float]] | None]:
        """Return squared sums and sketches by canonical name; one transfer."""
        given = tuple(gradients)
        sums = self.chunks(given)
        if not sketched:
            return self.plan.named(sums.asnumpy()), None
        if self._signs is None:
            fused = [parameter.fused for parameter in self.parameters]
            signs = SignedSumPlan.of(fused, [each.shape for each in fused])
            self._signs = signs, SignedSums(signs)
        plan, signed = self._signs
        on_host = mindspore.mint.cat((sums, signed(given))).asnumpy()
        squared = self.plan.named(on_host[: sums.shape[0]])
        return squared, plan.named(on_host[sums.shape[0] :], squared)
