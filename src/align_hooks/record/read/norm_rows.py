"""One rank's squared sums of all steps as one matrix: a job of 512 ranks has half a million squared sums a step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from msgspec import Struct

from align_hooks.errors import RecordError
from align_hooks.record.format.layout import Array, JsonObject
from align_hooks.record.format.rows import LARGEST, Norm, NormRow
from align_hooks.record.format.shard import Shard
from align_hooks.record.format.structured import structured
from align_hooks.record.read.lines import Lines


class NormRows(Struct, frozen=True):
    """One rank's squared sums of all steps."""

    path: Path
    names: Mapping[str, int]
    """Canonical name to column."""
    counts: Mapping[str, bool]
    """False for the name of a copy."""
    steps: Mapping[int, int]
    """Step to row."""
    squared: Array
    """fp64 ``[steps, names]``."""
    taken: Mapping[int, Sequence[Norm]]
    """Step to the framework's own norms."""
    weights: Mapping[int, Array]
    """Step to the squared sums of ``weight_names``, of the steps that have these."""
    weight_names: Sequence[str]
    """The weights that the rank computes with."""

    def squared_sums(self, steps: Sequence[int], names: Sequence[str]) -> Array:
        """Return squared sums, fp64 ``[steps, names]``, NaN where none was recorded; raises RecordError without a row."""
        for step in steps:
            if step not in self.steps:
                raise RecordError(f"{self.path} has no row for step {step}; record it with ALIGN_HOOKS_LOCAL_NORMS={step}")
        return np.asarray(self.squared[np.ix_([self.steps[step] for step in steps], [self.names[name] for name in names])])

    def named(self, step: int) -> dict[str, float]:
        """Return canonical name to squared sum of one step, without copies whose sum was not recorded."""
        values = zip(self.names, self.squared_sums([step], list(self.names))[0].tolist(), strict=True)
        return {name: value for name, value in values if self.counts[name] or not math.isnan(value)}


def read_norm_rows(lines: Lines, shards: Sequence[Shard]) -> NormRows:
    """Return the rows of one rank; raises RecordError where a counted trainable shard has no number, a copy gets NaN."""
    wanted = [shard for shard in shards if shard.trainable]
    names = {shard.name: index for index, shard in enumerate(wanted)}
    counted = {shard.name for shard in wanted if shard.counted}
    squared = np.full((len(lines.steps), len(wanted)), np.nan)
    taken: dict[int, Sequence[Norm]] = {}
    weights: dict[int, Array] = {}
    weight_names: Sequence[str] = ()
    for index, (step, row) in enumerate(lines.rows(sorted(lines.steps))):
        sums, taken[step], computed = _sums_and_norms(row, f"{lines.path}: step {step}")
        if not sums.keys() >= counted:
            missing = next(name for name in names if name in counted and name not in sums)
            raise RecordError(f"{lines.path} lacks {missing} at step {step}; record the run again")
        squared[index] = [sums.get(name, math.nan) for name in names]
        if computed:
            weight_names = weight_names or [*computed]
            weights[step] = np.array([computed.get(name, math.nan) for name in weight_names])
    counts = {shard.name: shard.counted for shard in wanted}
    return NormRows(lines.path, names, counts, {step: index for index, step in enumerate(taken)}, squared, taken, weights, weight_names)


def _sums_and_norms(row: JsonObject, where: str) -> tuple[Mapping[str, float], Sequence[Norm], Mapping[str, float]]:
    """Return the squared sums, the framework's norms and the weights' squared sums of a row; finite sums are checked together."""
    squared = row.get("squared")
    if type(squared) is dict and set(map(type, squared.values())) <= {float}:
        squares = np.array([*squared.values()])
        if bool(np.all((squares >= 0) & (squares < LARGEST))):
            norms = structured(NormRow, {**row, "squared": {}}, where, numbers=("taken", "weights"))
            return squared, norms.taken, norms.weights
    norms = structured(NormRow, row, where, numbers=("squared", "taken", "weights"))
    return norms.squared, norms.taken, norms.weights
