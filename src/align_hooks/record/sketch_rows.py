"""Sketches of a step, put together from all ranks: signed sums of shards add up."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from align_hooks.errors import RecordError
from align_hooks.record.shard import Shard
from align_hooks.record.sketch import PROJECTIONS, sketch
from align_hooks.record.tensors import Tensors

STEP = re.compile(rb'\{"step": (\d{1,15}), ')
"""How a row of the writer begins."""
Sketches = dict[str, NDArray[np.float64]]
"""Canonical name to squared sum and signed sums of a whole tensor, fp64 ``[1 + PROJECTIONS]``."""


class SketchFile:
    """One rank's rows of sketches, each read when asked for: a long run has gigabytes of them.

    Of a step that was repeated the last row counts; a torn last line does not. Raises RecordError for what is no row.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._at: dict[int, int] = {}
        if not path.exists():
            return
        at = 0
        try:
            with path.open("rb") as file:
                for line in file:
                    found = STEP.match(line)
                    if line.endswith(b"\n") and found is None:
                        raise RecordError(f"{path} holds {line[:40]!r}, which is no row of sketches; record the run again")
                    if line.endswith(b"\n") and found is not None:
                        self._at[int(found.group(1))] = at
                    at += len(line)
        except OSError as error:
            raise RecordError(f"{path} cannot be read: {error}") from None

    @property
    def steps(self) -> set[int]:
        """Steps that have a row."""
        return set(self._at)

    def row(self, step: int) -> dict[str, Any]:
        """The row of a step."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._at[step])
                row = json.loads(file.readline())
        except (OSError, ValueError, RecursionError) as error:
            raise RecordError(f"{self.path}: the row of step {step} cannot be read ({error}); record the run again") from None
        return dict(row)


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
