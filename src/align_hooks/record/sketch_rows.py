"""Sketches of a step, put together from all ranks: signed sums of shards add up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from align_hooks.errors import RecordError
from align_hooks.record.shard import Shard
from align_hooks.record.sketch import PROJECTIONS, sketch
from align_hooks.record.tensors import Tensors

Sketches = dict[str, NDArray[np.float64]]
"""Canonical name to squared sum and signed sums of a whole tensor, fp64 ``[1 + PROJECTIONS]``."""


def added_up(rows: Mapping[Path, Mapping[str, Any]], tables: Mapping[Path, Sequence[Shard]], step: int) -> Sketches:
    """The whole tensors' sketches; ``rows`` and ``tables`` are each rank's row of the step and the shards that it must hold.

    Raises RecordError for a shard that is missing and for sums that are none.
    """
    found: Sketches = {}
    for path, row in rows.items():
        sums = row.get("sums")
        if not isinstance(sums, dict):
            raise RecordError(f"{path} has no sums at step {step}; record the run again")
        for shard in tables[path]:
            if shard.name not in sums:
                raise RecordError(f"{path} lacks {shard.name} at step {step}; record the run again")
            one = _numbers(sums[shard.name], f"{path}: {shard.name} at step {step}")
            found[shard.name] = found[shard.name] + one if shard.name in found else one
    return found


def of_tensors(tensors: Tensors) -> Sketches:
    """The sketches of recorded tensors, each read once."""
    shards = {name: Shard(name, tensors.shape(name), name, "float32") for name in tensors}
    return {name: sketch(tensors[name], shard) for name, shard in shards.items()}


def _numbers(given: Any, where: str) -> NDArray[np.float64]:
    fits = isinstance(given, list) and len(given) == 1 + PROJECTIONS
    if not fits or not all(_is_sum(one) for one in given):
        raise RecordError(f"{where} holds {str(given)[:40]!r}, which are not {1 + PROJECTIONS} sums; record the run again")
    found = np.array([float(one) for one in given])
    if found[0] < 0:
        raise RecordError(f"{where} begins with {found[0]:g}, which is no squared sum; record the run again")
    return found


def _is_sum(one: Any) -> bool:
    """A number, or the string that stands for one that is not finite."""
    if isinstance(one, str):
        return one in ("nan", "inf", "-inf")
    return type(one) is float or (type(one) is int and abs(one) < 1 << 63)
