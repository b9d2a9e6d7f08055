"""The squared sums of :mod:`align_hooks.record.format.norms` of all gradients, inside the compiled graph.

:mod:`.chunks` groups the elements. Small gradients with chunks of one width are joined, so the graph has a few operators for each large
gradient, and a few for all small gradients. The host adds up in fp64, which MindSpore's devices do not have.
"""

import mindspore
from mindspore import nn, ops

from align_hooks.ms_side.chunks import NormPlan, largest_part
from align_hooks.ms_side.objects import Tensor
from align_hooks.record.format.norms import PART


class ChunkSums(nn.Cell):
    """Sums of squares of the chunks of all gradients, fp32, in one vector."""

    def __init__(self, plan: NormPlan) -> None:
        super().__init__(auto_prefix=False)
        self.members = tuple(members for members, _ in plan.groups)
        widths = [width for _, width in plan.groups]
        self.parts = tuple(largest_part(width, PART) for width in widths)
        self.in_chunk = tuple(width // part for width, part in zip(widths, self.parts, strict=True))
        self.count = len(plan.groups)
        self.square, self.reduce_sum, self.cat, self.cast = ops.Square(), ops.ReduceSum(), ops.Concat(), ops.Cast()

    def construct(self, gradients):  # type: ignore[no-untyped-def]
        """Sums of all chunks, joined; compiled from this text."""
        sums: tuple[Tensor, ...] = ()
        for group in range(self.count):
            flat: tuple[Tensor, ...] = ()
            for index in self.members[group]:
                flat += (self.cast(gradients[index], mindspore.float32).reshape((-1,)),)
            joined = flat[0]
            if len(flat) > 1:
                joined = self.cat(flat)
            of_parts = self.reduce_sum(self.square(joined.reshape((-1, self.parts[group]))), 1)
            if self.in_chunk[group] > 1:
                of_parts = self.reduce_sum(of_parts.reshape((-1, self.in_chunk[group])), 1)
            sums += (of_parts,)
        return self.cat(sums)
