"""What a rank holds of a weight under semi-automatic parallelism, by MindSpore's own layout of it. Imports no framework.

``parameter_layout_dict`` of the compiled training cell says how each weight is cut: over the model-parallel ranks first, along one
axis, and over an optimizer-parallel group then, along the rows of what is left. Rows that stand together are a range of the
model-parallel part in row-major order, which is how a record keeps them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from align_hooks.errors import RefusedRun
from align_hooks.names.blocks import WHOLE, Cut

Box = tuple[tuple[int, int], ...]

ARRANGEMENT, MAP, UNIFORM, GROUP, FULL_SHAPE = 0, 1, 4, 5, 6
"""Places in an entry of ``parameter_layout_dict`` (MindSpore 2.7 to 2.9, where it has 12 of them)."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How a weight of ``shape`` is cut over the ranks of one pipeline stage.

    ``arrangement`` are the ranks as a grid, the last axis of which varies fastest with the rank. ``axes`` names, for each axis of the
    weight, the grid's axis that cuts it, counted from the right, -1 for none. ``group`` is the name of the optimizer-parallel group
    that cuts its rows further, empty for none.
    """

    name: str
    arrangement: tuple[int, ...]
    axes: tuple[int, ...]
    shape: tuple[int, ...]
    group: str = ""

    def parts(self, axis: int) -> int:
        """Into how many parts model parallelism cuts an axis."""
        return 1 if self.axes[axis] == -1 else self.arrangement[-1 - self.axes[axis]]

    def part(self, axis: int, rank: int) -> int:
        """Which of them a rank of the job has; stages are blocks of ranks, so the remainder is the rank within its stage."""
        faster = self.arrangement[len(self.arrangement) - self.axes[axis] :]
        return 0 if self.axes[axis] == -1 else rank // math.prod(faster) % self.parts(axis)


def layout_of(name: str, entry: Sequence[Any], shape: Sequence[int]) -> Layout:
    """The layout of a weight of ``shape`` from its entry; raises RefusedRun for one that this version does not read."""
    if len(entry) <= FULL_SHAPE:
        raise RefusedRun(f"{name}: MindSpore's layout has {len(entry)} entries and not 12; use MindSpore 2.7 or 2.9")
    if not entry[UNIFORM]:
        raise RefusedRun(f"{name} is cut into parts of unequal size, which this version does not read; cut it evenly")
    found = Layout(name, tuple(entry[ARRANGEMENT]), tuple(entry[MAP]), tuple(entry[FULL_SHAPE]), str(entry[GROUP] or ""))
    if found.shape != tuple(shape) or len(found.axes) != len(found.shape):
        raise RefusedRun(
            f"{name} is cut as {list(found.shape)} by {list(found.axes)} and is {list(shape)}: MindSpore cuts it in another shape, "
            f"as with 3D tensor parallelism; leave that out"
        )
    uneven = [axis for axis, size in enumerate(found.shape) if size % found.parts(axis)]
    if uneven:
        raise RefusedRun(f"{name} {list(shape)} is not cut into equal parts along axis {uneven[0]}; cut it evenly")
    return found


def boxes(layout: Layout, rank: int, group_rank: int = 0, group_size: int = 1) -> Box:
    """[start, stop) an axis of what a rank holds; ``group_rank`` of ``group_size`` is its place in the optimizer-parallel group.

    Raises RefusedRun where the group does not divide the rows.
    """
    found = _model_parallel(layout, rank)
    if layout.group:
        start, stop = found[0]
        share, left_over = divmod(stop - start, group_size)
        if left_over:
            raise RefusedRun(f"{layout.name}: {stop - start} rows are not cut into {group_size} equal parts; cut it evenly")
        found[0] = (start + group_rank * share, start + (group_rank + 1) * share)
    return tuple(found)


def _model_parallel(layout: Layout, rank: int) -> list[tuple[int, int]]:
    """The box of a rank before optimizer parallelism cuts it."""
    found = []
    for axis, size in enumerate(layout.shape):
        step = size // layout.parts(axis)
        start = layout.part(axis, rank) * step
        found.append((start, start + step))
    return found


def cut_and_flat(layout: Layout, rank: int, group_rank: int = 0, group_size: int = 1) -> tuple[Cut, tuple[int, int] | None]:
    """The model-parallel part that a rank computes with, and the elements [start, stop) of it, row-major, that it holds.

    None where it holds all of it. Raises RefusedRun where model parallelism cuts two axes.
    """
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


def is_counted(layout: Layout, rank: int, group_rank: int = 0, group_size: int = 1) -> bool:
    """Whether a rank is the lowest of those that hold the same part of a weight.

    The ranks of a stage with one model-parallel part, ascending, are dealt out to groups in runs of ``group_size``, so parts repeat
    with that period. Raises RefusedRun where the rank's place in its group is another.
    """
    size = math.prod(layout.arrangement)
    first = rank // size * size
    mine = _model_parallel(layout, rank)
    alike = [one for one in range(first, first + size) if _model_parallel(layout, one) == mine]
    position = alike.index(rank)
    if layout.group and (len(alike) % group_size or position % group_size != group_rank):
        raise RefusedRun(
            f"{layout.name}: rank {rank} is number {group_rank} of an optimizer-parallel group of {group_size}, where this version expects "
            f"number {position % group_size}; set parallel.enable_parallel_optimizer: False in the YAML"
        )
    return position < (group_size if layout.group else 1)


def place(rank: int, ranks: int, *, dp: int, cp: int, mp: int, pp: int) -> dict[str, int]:
    """Axis to a rank's index on it, and ``<axis>_size`` to the number of ranks along it; ``tp`` is MindFormers' model parallelism.

    Model-parallel ranks stand together, then context-, then data-parallel ones; stages are blocks. Raises RefusedRun where the sizes
    do not make the job.
    """
    if dp * cp * mp * pp != ranks:
        raise RefusedRun(
            f"parallel_config has data_parallel {dp}, context_parallel {cp}, model_parallel {mp} and pipeline_stage {pp}, which make "
            f"{dp * cp * mp * pp} ranks, and the job has {ranks}; make them the same"
        )
    rest, tp = divmod(rank, mp)
    rest, context = divmod(rest, cp)
    stage, data = divmod(rest, dp)
    indices = {"dp": data, "tp": tp, "pp": stage, "cp": context, "ep": 0}
    return indices | {"dp_size": dp, "tp_size": mp, "pp_size": pp, "cp_size": cp, "ep_size": 1}
