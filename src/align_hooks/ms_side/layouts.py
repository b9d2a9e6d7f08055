"""A rank's part of a weight under semi-automatic parallelism, by MindSpore's own layout. Imports no framework.

``parameter_layout_dict`` of the compiled training cell says how each weight is cut: first along an axis over the model-parallel ranks, then
along the rows of that part over an optimizer-parallel group. A record keeps these rows as a row-major range of the model-parallel part.
"""

import math
from collections.abc import Sequence

from msgspec import Struct

from align_hooks.errors import RefusedRun
from align_hooks.ms_side.objects import LayoutEntry
from align_hooks.names.blocks import WHOLE, Cut

Box = tuple[tuple[int, int], ...]
ARRANGEMENT, MAP, UNIFORM, GROUP, FULL_SHAPE = 0, 1, 4, 5, 6
"""Positions in an entry of ``parameter_layout_dict`` (MindSpore 2.7 to 2.9, where it has 12 members)."""


class WeightLayout(Struct, frozen=True):
    """The division of a weight over the ranks of a pipeline stage."""

    name: str
    arrangement: tuple[int, ...]
    """The grid of the ranks, whose last axis varies fastest."""
    axes: tuple[int, ...]
    """For each axis of the weight the grid's axis that cuts it, counted from the right, -1 for none."""
    shape: tuple[int, ...]
    group: str = ""
    """The optimizer-parallel group that cuts the rows further; empty for none."""

    def parts(self, axis: int) -> int:
        """Return the number of parts into which model parallelism cuts an axis."""
        return 1 if self.axes[axis] == -1 else self.arrangement[-1 - self.axes[axis]]

    def part(self, axis: int, rank: int) -> int:
        """Return a rank's index among the parts of an axis."""
        faster = self.arrangement[len(self.arrangement) - self.axes[axis] :]
        # stages are blocks of ranks, so the remainder is the rank within its stage
        return 0 if self.axes[axis] == -1 else rank // math.prod(faster) % self.parts(axis)


def layout_of(name: str, entry: LayoutEntry, shape: Sequence[int]) -> WeightLayout:
    """Return the layout of a weight of ``shape`` from its entry; raises RefusedRun for a layout that this version does not read."""
    if len(entry) <= FULL_SHAPE:
        raise RefusedRun(f"{name}: MindSpore's layout has {len(entry)} entries and not 12; use MindSpore 2.7 or 2.9")
    if not entry[UNIFORM]:
        raise RefusedRun(f"{name} is cut into parts of unequal size, which this version does not read; cut it evenly")
    layout = WeightLayout(name, tuple(entry[ARRANGEMENT]), tuple(entry[MAP]), tuple(entry[FULL_SHAPE]), str(entry[GROUP] or ""))
    if layout.shape != tuple(shape) or len(layout.axes) != len(layout.shape):
        raise RefusedRun(
            f"{name} is cut as {list(layout.shape)} by {list(layout.axes)} and is {list(shape)}: MindSpore cuts it in another shape, "
            f"as with 3D tensor parallelism; leave that out"
        )
    uneven = [axis for axis, size in enumerate(layout.shape) if size % layout.parts(axis)]
    if uneven:
        raise RefusedRun(f"{name} {list(shape)} is not cut into equal parts along axis {uneven[0]}; cut it evenly")
    return layout


def boxes(layout: WeightLayout, rank: int, group_rank: int = 0, group_size: int = 1) -> Box:
    """Return [start, stop) per axis of a rank's part; ``group_rank`` of ``group_size`` is its place in the optimizer-parallel group.

    Raises RefusedRun where the group does not divide the rows."""
    box = _model_parallel(layout, rank)
    if layout.group:
        start, stop = box[0]
        share, left_over = divmod(stop - start, group_size)
        if left_over:
            raise RefusedRun(f"{layout.name}: {stop - start} rows are not cut into {group_size} equal parts; cut it evenly")
        box[0] = (start + group_rank * share, start + (group_rank + 1) * share)
    return tuple(box)


def _model_parallel(layout: WeightLayout, rank: int) -> list[tuple[int, int]]:
    """Return the box of a rank before optimizer parallelism cuts it."""
    steps = [size // layout.parts(axis) for axis, size in enumerate(layout.shape)]
    starts = [layout.part(axis, rank) * step for axis, step in enumerate(steps)]
    return [(start, start + step) for start, step in zip(starts, steps, strict=True)]


def cut_and_flat(layout: WeightLayout, rank: int, group_rank: int = 0, group_size: int = 1) -> tuple[Cut, tuple[int, int] | None]:
    """Return the model-parallel part with which a rank computes, and its elements [start, stop) of that part, row-major, None for all.

    Raises RefusedRun where model parallelism cuts two axes."""
    cut_axes = [axis for axis in range(len(layout.shape)) if layout.parts(axis) > 1]
    if len(cut_axes) > 1:
        raise RefusedRun(f"{layout.name} is cut along {len(cut_axes)} axes; this version reads weights that are cut along one")
    cut = Cut(cut_axes[0], layout.part(cut_axes[0], rank), layout.parts(cut_axes[0])) if cut_axes else WHOLE
    if not layout.group:
        return cut, None
    (start, stop), *tail = boxes(layout, rank, group_rank, group_size)
    width = math.prod(high - low for low, high in tail)
    first = _model_parallel(layout, rank)[0][0]
    return cut, ((start - first) * width, (stop - first) * width)


def is_counted(layout: WeightLayout, rank: int, group_rank: int = 0, group_size: int = 1) -> bool:
    """Return whether a rank is the lowest that holds its part of a weight; raise RefusedRun for an unexpected place in its group."""
    # the ranks of a stage with the same model-parallel part are assigned to groups in runs of group_size, so parts repeat with that period
    size = math.prod(layout.arrangement)
    first = rank // size * size
    mine = _model_parallel(layout, rank)
    alike = [other for other in range(first, first + size) if _model_parallel(layout, other) == mine]
    position = alike.index(rank)
    if layout.group and (len(alike) % group_size or position % group_size != group_rank):
        raise RefusedRun(
            f"{layout.name}: rank {rank} is number {group_rank} of an optimizer-parallel group of {group_size}, where this version expects "
            f"number {position % group_size}; set parallel.enable_parallel_optimizer: False in the YAML"
        )
    return position < (group_size if layout.group else 1)
