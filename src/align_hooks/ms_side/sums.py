"""Sums over all gradients inside the compiled graph: the squared sums of :mod:`align_hooks.record.format.norms`, and signed sums.

:mod:`.plans` groups the elements. Small gradients with chunks of one width are joined, so the graph has a few operators for each large
gradient, and a few for all small gradients. Sums of up to a few thousand elements are fp32, since MindSpore's devices have no fp64; the
host adds these up in fp64, so a gradient's sketch is within 1e-6 of its norm. Weights are sketched on the host in fp64, since weights of
two runs are compared to the bit. Signs are Parameters, since a graph would hold constants twice.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import mindspore
from mindspore import Parameter, Tensor, mint, nn, ops

from align_hooks.ms_side.model import CellParameter
from align_hooks.ms_side.own_parameters import own_array, set_unregistered
from align_hooks.ms_side.plans import ChunkPlan, Matrix, PieceGroup, SignedSumPlan, largest_part
from align_hooks.record.format.norms import PART
from align_hooks.record.format.sketch import PROJECTIONS, TURNS


class ChunkSums(nn.Cell):
    """Sums of squares of the chunks of all gradients, fp32, in one vector."""

    def __init__(self, plan: ChunkPlan) -> None:
        super().__init__(auto_prefix=False)
        self.members = tuple(members for members, _ in plan.groups)
        widths = [width for _, width in plan.groups]
        self.parts = tuple(largest_part(width, PART) for width in widths)
        self.in_chunk = tuple(width // part for width, part in zip(widths, self.parts, strict=True))
        self.count = len(plan.groups)
        self.square, self.reduce_sum, self.cat, self.cast = ops.Square(), ops.ReduceSum(), ops.Concat(), ops.Cast()

    def construct(self, gradients):  # type: ignore[no-untyped-def]
        """Return the sums of all chunks, joined; compiled from this text."""
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


class SignedSums(nn.Cell):
    """The sums of all pieces, fp32, in one vector."""

    def __init__(self, plan: SignedSumPlan) -> None:
        super().__init__(auto_prefix=False)
        self.groups = nn.CellList([GroupSums(number, group) for number, group in enumerate(plan.groups)])
        self.cat = ops.Concat()

    def construct(self, gradients):  # type: ignore[no-untyped-def]
        """Return the sums of each group, joined; compiled from this text."""
        sums: tuple[Tensor, ...] = ()
        for group in self.groups:
            sums += (group(gradients),)
        return self.cat(sums)


class GroupSums(nn.Cell):
    """The sums of pieces with equal numbers of columns, fp32 ``[sets · TURNS · PROJECTIONS]``."""

    columns: Parameter
    rows: Parameter

    def __init__(self, number: int, group: PieceGroup) -> None:
        super().__init__(auto_prefix=False)
        self.pieces = nn.CellList([AsMatrix(member) for member in group.members])
        self.members = tuple(member.gradient for member in group.members)
        self.count, self.at_once = len(group.members), group.at_once
        self.reduce_sum, self.cat = ops.ReduceSum(), ops.Concat()
        set_unregistered(
            self, columns=own_array(f"signs.{number}.columns", group.column_signs), rows=own_array(f"signs.{number}.rows", group.row_signs)
        )

    def construct(self, gradients):  # type: ignore[no-untyped-def]
        """Return the sums of each row tile, added as far as they are of one piece; compiled from this text."""
        matrices: tuple[Tensor, ...] = ()
        for index in range(self.count):
            matrices += (self.pieces[index](gradients[self.members[index]]),)
        joined = matrices[0]
        if self.count > 1:
            joined = self.cat(matrices)
        width = joined.shape[1]
        signed = joined.reshape((-1, TURNS, width)) * self.columns
        by_tile = self.reduce_sum(signed.reshape((-1, TURNS, width // PROJECTIONS, PROJECTIONS)), 2) * self.rows
        if self.at_once > 1:
            by_tile = self.reduce_sum(by_tile.reshape((-1, self.at_once, TURNS, PROJECTIONS)), 1)
        return by_tile.reshape((-1,))


class AsMatrix(nn.Cell):
    """A piece of a gradient as a matrix of full row tiles and projection columns, fp32."""

    def __init__(self, matrix: Matrix) -> None:
        super().__init__(auto_prefix=False)
        self.view, self.begin, self.size, self.is_whole = matrix.view, matrix.begin, matrix.size, matrix.is_whole
        self.shape, self.transposed = (matrix.rows, matrix.columns), matrix.transposed
        self.is_filled = any(after for _, after in matrix.padding)
        self.pad, self.slice, self.transpose, self.cast = ops.Pad(matrix.padding), ops.Slice(), ops.Transpose(), ops.Cast()

    def construct(self, gradient):  # type: ignore[no-untyped-def]
        """Return the piece; compiled from this text."""
        piece = gradient
        if not self.is_whole:
            piece = self.slice(piece.reshape(self.view), self.begin, self.size)
        piece = self.cast(piece, mindspore.float32)
        if self.transposed:
            piece = self.transpose(piece.reshape((self.shape[1], self.shape[0])), (1, 0))
        piece = piece.reshape(self.shape)
        if self.is_filled:
            piece = self.pad(piece)
        return piece


@dataclass
class GradientSums:
    """The sums over a step's gradients that become its norms and sketches, planned once, where no graph is compiled."""

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
        on_host = mint.cat((sums, signed(given))).asnumpy()
        squared = self.plan.named(on_host[: sums.shape[0]])
        return squared, plan.named(on_host[sums.shape[0] :], squared)
