"""Norms and sketches of full tensors: sums over the counted shards of all ranks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from align_hooks.errors import RecordError
from align_hooks.messages import rendered
from align_hooks.quantities.registry import SKETCHES
from align_hooks.record.format.rows import SketchRow
from align_hooks.record.format.shard import Shard
from align_hooks.record.format.sketch import DEFINITION, as_sums, sketch
from align_hooks.record.format.structured import structured
from align_hooks.record.read.lines import Lines
from align_hooks.record.read.run_rows import RunRows
from align_hooks.record.read.tensors import Tensors

Sketches: TypeAlias = dict[str, NDArray[np.float64]]
"""Canonical name to squared sum and signed sums of a tensor, fp64 ``[1 + PROJECTIONS]``."""


def norms(run: RunRows, step: int) -> dict[str, float]:
    """Return the norm of each gradient; raises RecordError where a missing rank holds a part, and without a row."""
    names, of_steps = _norms(run, [step])
    return dict(zip(names, of_steps[0].tolist(), strict=True))


def norm_columns(run: RunRows, steps: Sequence[int]) -> dict[str, NDArray[np.float64]]:
    """Return the norms of each gradient at ``steps``; raises RecordError as :func:`norms` does."""
    names, of_steps = _norms(run, steps)
    return dict(zip(names, of_steps.T, strict=True))


def _norms(run: RunRows, steps: Sequence[int]) -> tuple[list[str], NDArray[np.float64]]:
    """Return the canonical names, and the norms ``[steps, names]``."""
    refuse_parts(run, "norm")
    columns: dict[str, int] = {}
    counted = {rank: [shard.name for shard in run.counted_once(rank)] for rank in run.manifests}
    for names in counted.values():
        for name in names:
            columns.setdefault(name, len(columns))
    total = np.zeros((len(steps), len(columns)))
    for rank, names in counted.items():
        total[:, [columns[name] for name in names]] += run.norm_rows(rank).squared_sums(steps, names)
    return list(columns), np.sqrt(total)


def weight_norms(run: RunRows, step: int) -> dict[str, float]:
    """Return the norm of each weight after ``step`` updates, as far as all squared sums were recorded."""
    if run.made_by_hand or run.missing is not None:
        return {}
    total: dict[str, float] = {}
    unknown: set[str] = set()
    for rank in run.manifests:
        squares = run.weight_squares(rank, step)
        for shard in run.counted_once(rank, trainable=False):
            total[shard.name] = total.get(shard.name, 0.0) + squares.get(shard.name, 0.0)
            unknown |= {shard.name} - squares.keys()
    return {name: math.sqrt(squared) for name, squared in total.items() if name not in unknown}


def counted_totals(run: RunRows, steps: Sequence[int]) -> dict[int, float]:
    """Return the sum of all counted squared sums of each step."""
    total = np.zeros(len(steps))
    for rank in run.manifests:
        squared = run.norm_rows(rank).squared_sums(steps, [shard.name for shard in run.counted_once(rank)])
        total += np.asfortranarray(squared).sum(axis=1)  # tensor after tensor, whatever the steps
    return dict(zip(steps, total.tolist(), strict=True))


def sketches(run: RunRows, kind: str, step: int, files: Mapping[int, Lines]) -> Sketches:
    """Return the sketch of each tensor from all ranks' rows; raises RecordError for a missing shard or other definition."""
    whole: Sketches = {}
    for rank, lines in files.items():
        row = structured(SketchRow, lines.row(step), f"{lines.path}: step {step}")
        if row.definition != DEFINITION:
            raise RecordError(f"{lines.path}: its signed sums are of another definition than this version's; record the run again")
        for shard in run.counted_once(rank, trainable=SKETCHES[kind].trainable):
            if shard.name not in row.sums:
                raise RecordError(f"{lines.path} lacks {shard.name} at step {step}; record the run again")
            part = as_sums(row.sums[shard.name])
            whole[shard.name] = whole[shard.name] + part if shard.name in whole else part
    return whole


def sketches_of(tensors: Tensors) -> Sketches:
    """Return the sketches of stored tensors, each read once."""
    return {name: sketch(tensors[name], Shard(name, tensors.shape(name), name, "float32")) for name in tensors}


def refuse_parts(run: RunRows, quantity: str) -> None:
    """Raise RecordError where a missing rank holds a part of a tensor."""
    if run.missing is None:
        return
    recorded: dict[str, int] = {}
    whole: dict[str, int] = {}
    for shard in (shard for rank in run.manifests for shard in run.counted_once(rank, trainable=False)):
        recorded[shard.name] = recorded.get(shard.name, 0) + shard.elements
        whole[shard.name] = math.prod(shard.shape)
    name = next((name for name in recorded if recorded[name] < whole[name]), None)
    if name is not None:
        why = rendered(run.missing.message)
        raise RecordError(f"{run.path}: the {quantity} of {name} is not whole: {why}; copy or record every rank")
