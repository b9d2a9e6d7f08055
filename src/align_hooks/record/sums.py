"""Norms and sketches of whole tensors: sums over all ranks that hold a shard which counts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from align_hooks.errors import RecordError
from align_hooks.messages import rendered
from align_hooks.quantities.registry import SKETCHES
from align_hooks.record.lines import Lines
from align_hooks.record.sketch_rows import Sketches, added_up

if TYPE_CHECKING:
    from align_hooks.record.reader import Run


def norms(run: Run, step: int) -> dict[str, float]:
    """Canonical name to the norm of its whole gradient; raises RecordError where a missing rank holds a part of one."""
    refuse_parts(run, "norm")
    total: dict[str, float] = {}
    for rank in run.manifests:
        rows = run.norm_rows(rank)
        squared = rows.of(step).tolist()
        for shard in run.shards(rank):
            if shard.counted and shard.trainable:
                total[shard.name] = total.get(shard.name, 0.0) + squared[rows.names[shard.name]]
    return {name: math.sqrt(squared) for name, squared in total.items()}


def counted_totals(run: Run, steps: Sequence[int]) -> dict[int, float]:
    """Step to the sum of all squared sums that count."""
    total = np.zeros(len(steps))
    for rank in run.manifests:
        rows = run.norm_rows(rank)
        columns = [rows.names[shard.name] for shard in run.shards(rank) if shard.counted and shard.trainable]
        total += rows.squared[[rows.steps[step] for step in steps]][:, columns].sum(axis=1)
    return dict(zip(steps, total.tolist(), strict=True))


def sketches(run: Run, kind: str, step: int, files: Mapping[int, Lines]) -> Sketches:
    """Canonical name to the sketch of its whole tensor, from every rank's rows."""
    shards = {
        file.path: [one for one in run.shards(rank) if one.counted and (one.trainable or not SKETCHES[kind].trainable)]
        for rank, file in files.items()
    }
    return added_up({file.path: file.row(step) for file in files.values()}, shards, step)


def refuse_parts(run: Run, what: str) -> None:
    """Raise RecordError where a missing rank holds a part of a tensor."""
    if run.missing is None:
        return
    there: dict[str, int] = {}
    whole: dict[str, int] = {}
    for shard in (shard for rank in run.manifests for shard in run.shards(rank) if shard.counted):
        there[shard.name] = there.get(shard.name, 0) + shard.elements
        whole[shard.name] = math.prod(shard.shape)
    name = next((name for name in there if there[name] < whole[name]), None)
    if name is not None:
        why = rendered(run.missing.message)
        raise RecordError(f"{run.path}: the {what} of {name} is not whole: {why}; copy or record every rank")
