"""A rank's parts of a PyNative model's weights, by hyper-parallel's layout of each.

A weight that tensor or expert parallelism cuts, or that ``fully_shard`` divides among data-parallel ranks, is a ``DTensor``: its
``layout`` says which axes of a grid of ranks cut each of its axes, and ``to_local`` returns this rank's part. Its gradient, ``main_grad``,
is cut alike (``core/dtensor/layout.py`` and ``platform/mindspore/fully_shard/param.py`` of hyper-parallel). Another weight is whole on
every rank.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from align_hooks.errors import RefusedRun
from align_hooks.ms_side.arrays import local
from align_hooks.ms_side.layouts import Box
from align_hooks.ms_side.model import MOVED_BUFFERS, CellParameter, CellParameters, Model
from align_hooks.ms_side.objects import Weight
from align_hooks.names.blocks import WHOLE, Cut, Dims, rows_and_columns
from align_hooks.names.fused import Fused
from align_hooks.process.ranks import Launch


class DistributedLayout(Struct, frozen=True):
    """The division of a weight over a grid of ranks."""

    name: str
    shape: tuple[int, ...]
    grid: tuple[int, ...]
    """Ranks along each axis of the grid, whose last axis varies fastest."""
    cuts: tuple[tuple[int, ...], ...]
    """For each axis of the weight, the axes of the grid that cut it, the outermost cut first."""
    ranks: tuple[int, ...]
    """The ranks of the grid, in its order."""

    def place(self, rank: int) -> tuple[int, ...]:
        """Return a rank's index along each axis of the grid; raise RefusedRun for a rank that is not in it."""
        if rank not in self.ranks:
            raise RefusedRun(f"{self.name} is divided among ranks {list(self.ranks)}, and rank {rank} is none of them")
        index = self.ranks.index(rank)
        return tuple(index // math.prod(self.grid[axis + 1 :]) % size for axis, size in enumerate(self.grid))

    def box(self, rank: int) -> Box:
        """Return [start, stop) of a rank's part on each axis; raise RefusedRun for parts of unequal size."""
        place, bounds = self.place(rank), []
        for size, cuts in zip(self.shape, self.cuts, strict=True):
            index, count = 0, 1
            for axis in cuts:
                index, count = index * self.grid[axis] + place[axis], count * self.grid[axis]
            if size % count:
                raise RefusedRun(f"{self.name} {list(self.shape)} is cut into {count} parts of unequal size; cut it evenly")
            bounds.append((index * size // count, (index + 1) * size // count))
        return tuple(bounds)

    def is_counted(self, rank: int) -> bool:
        """Return whether a rank is the lowest of the job that holds its part."""
        cutting = {axis for cuts in self.cuts for axis in cuts}
        # a weight may lie on a grid of some ranks, beside grids of others that hold the same
        return 0 in self.ranks and not any(index for axis, index in enumerate(self.place(rank)) if axis not in cutting)


def layout_of(weight: Weight) -> DistributedLayout | None:
    """Return the layout of a weight; None for one that is whole on every rank."""
    if not hasattr(weight, "to_local"):
        return None
    layout = weight.layout
    entries = [entry if isinstance(entry, tuple | list) else (entry,) for entry in layout.tensor_map]
    grid = tuple(map(int, layout.mesh_shape))
    # hyper-parallel counts the axes of the grid from the right, and writes -1 for none
    cuts = tuple(tuple(len(grid) - 1 - axis for axis in axes if axis >= 0) for axes in entries)
    return DistributedLayout(weight.name, tuple(weight.shape), grid, cuts, tuple(map(int, layout.rank_list)))


def parameters_of_rank(weights: Sequence[Weight], model: Model, vocabulary: int | None, launch: Launch) -> CellParameters:
    """Return this rank's parts of the parameters that the optimizer updates, and of the buffers that training moves.

    Raises RefusedRun for a part that this version does not read."""
    dims, rank = model.dims(vocabulary), launch.rank
    shapes = {weight.name: rows_and_columns(weight.name, weight.shape) for weight in weights if layout_of(weight) is not None}
    stacks = (weight for weight in weights if shapes.get(weight.name, weight.shape) != tuple(weight.shape))
    whole = [model.fused(weight.name, shapes[weight.name], dims) for weight in stacks]
    untrained = (weight for weight in model.network.get_parameters() if not weight.requires_grad)
    trained = [part_of(weight, model, vocabulary, rank, index) for index, weight in enumerate(weights)]
    buffers = [part_of(weight, model, vocabulary, rank) for weight in untrained if weight.name.endswith(MOVED_BUFFERS)]
    return CellParameters(
        tuple(part for part in trained if part is not None),
        dims,
        single_rank=launch.world_size == 1,
        buffers=tuple(part for part in buffers if part is not None),
        experts=frozenset(piece.name for fused in whole if fused is not None for piece in fused.parts),
    )


def part_of(weight: Weight, model: Model, vocabulary: int | None, rank: int, index: int = -1) -> CellParameter | None:
    """Return a rank's part of a weight, number ``index`` of the optimizer's or -1 for a buffer; None for no parameter."""
    layout, dims = layout_of(weight), model.dims(vocabulary)
    box = tuple((0, size) for size in weight.shape) if layout is None else layout.box(rank)
    if tuple(stop - start for start, stop in box) != (here := tuple(local(weight).shape)):
        raise RefusedRun(f"{weight.name} is {list(here)} here, where its layout leaves the ranges {list(map(list, box))} of it")
    is_stack = rows_and_columns(weight.name, weight.shape) != tuple(weight.shape)
    fused = (experts_in if is_stack else rows_in)(weight, box, model, dims)
    counted = rank == 0 if layout is None else layout.is_counted(rank)
    return None if fused is None else CellParameter(weight, fused, counted, index, trainable=index >= 0)


def experts_in(weight: Weight, box: Box, model: Model, dims: Dims) -> Fused | None:
    """Return the experts of a stack ``[experts, rows, columns]`` that are in a box."""
    (first, after), *matrix = box
    if [stop - start for start, stop in matrix] != [*weight.shape[1:]]:
        raise RefusedRun(f"{weight.name} is cut through its experts, which this version does not read; use as many ranks as divide them")
    shape = rows_and_columns(weight.name, (after - first, *weight.shape[1:]))
    fused = model.fused(weight.name, shape, replace(dims, experts=after - first), first_expert=first)
    if after - first < weight.shape[0] and fused is not None and any(piece.own for piece in fused.parts):
        raise RefusedRun(f"{weight.name} is divided among ranks by experts, which no family names; train it on one rank")
    return fused


def rows_in(weight: Weight, box: Box, model: Model, dims: Dims) -> Fused | None:
    """Return the pieces of a weight that are in a box: columns are a cut of the weight, rows a row-major range of these columns."""
    shape, cut = list(weight.shape), WHOLE
    for axis, (start, stop) in [*enumerate(box)][1:]:
        if stop - start == shape[axis]:
            continue
        if cut is not WHOLE:
            raise RefusedRun(f"{weight.name} is cut along two axes besides its rows, which this version does not read")
        cut, shape[axis] = Cut(axis, start // (stop - start), shape[axis] // (stop - start)), stop - start
    fused, width = model.fused(weight.name, shape, dims, cut), math.prod(shape[1:])
    if fused is None or (rows := box[0]) == (0, shape[0]):
        return fused
    return fused.narrowed(rows[0] * width, rows[1] * width)
