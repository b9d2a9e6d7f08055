"""Sketches of a step, put together from all ranks: signed sums of shards add up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from align_hooks.errors import RecordError
from align_hooks.record.schema import SketchRow, structured
from align_hooks.record.shard import Shard
from align_hooks.record.sketch import sketch
from align_hooks.record.tensors import Tensors

Sketches = dict[str, NDArray[np.float64]]
"""Canonical name to squared sum and signed sums of a whole tensor, fp64 ``[1 + PROJECTIONS]``."""


def added_up(rows: Mapping[Path, Mapping[str, Any]], tables: Mapping[Path, Sequence[Shard]], step: int) -> Sketches:
    """The whole tensors' sketches; ``rows`` and ``tables`` are each rank's row of the step and the shards that it must hold.

    Raises RecordError for a shard that is missing and for sums that are none.
    """
    found: Sketches = {}
    for path, row in rows.items():
        sums = structured(SketchRow, row, f"{path}: step {step}", numbers=("sums",)).sums
        for shard in tables[path]:
            if shard.name not in sums:
                raise RecordError(f"{path} lacks {shard.name} at step {step}; record the run again")
            one = np.array(sums[shard.name])
            found[shard.name] = found[shard.name] + one if shard.name in found else one
    return found


def of_tensors(tensors: Tensors) -> Sketches:
    """The sketches of recorded tensors, each read once."""
    shards = {name: Shard(name, tensors.shape(name), name, "float32") for name in tensors}
    return {name: sketch(tensors[name], shard) for name, shard in shards.items()}
