"""One step's row of scalars, put together from those of all ranks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

LOSSES = ("loss", "objective_loss")
A_RANKS_OWN = ("squared", "micro_batches", "random", "unrecorded_inputs")
"""What a rank's row holds beside what a job's does."""

Row = dict[str, Any]


def merged_row(rows: Mapping[int, Row], places: Mapping[int, Mapping[str, int]], world_size: int, *, per_token: bool) -> Row:
    """A step's row from rank to row; ``places`` are the ranks' places, ``per_token`` whether all tokens are differentiated alike.

    Losses are None where a rank that is missing holds one of its own.
    """
    row = dict(rows[min(rows)])
    holders = list(_loss_holders(rows, places))
    if len(holders) < _loss_places(places, world_size):
        holders, row = [], row | dict.fromkeys((*LOSSES, "valid_tokens"))
    if len(holders) > 1:
        tokens = sum(one["valid_tokens"] for one in holders)
        row["valid_tokens"] = tokens
        row["loss"] = sum(one["loss"] * one["valid_tokens"] for one in holders) / tokens if tokens else math.nan
        objectives = [one["objective_loss"] for one in holders]
        row["objective_loss"] = sum(objectives) / len(holders)
        if per_token:
            weighed = sum(one["objective_loss"] * one["valid_tokens"] for one in holders)
            row["objective_loss"] = weighed / tokens if tokens else math.nan
    elif holders:
        row |= {key: holders[0].get(key) for key in (*LOSSES, "valid_tokens")}
    parts = [one["squared"] for one in rows.values() if one.get("squared") is not None]
    if row["grad_norm"] is None and len(parts) == len(rows):
        row["grad_norm"] = math.sqrt(sum(parts))
    return {key: value for key, value in row.items() if key not in A_RANKS_OWN}


def _loss_places(places: Mapping[int, Mapping[str, int]], world_size: int) -> int:
    """How many data- and context-parallel places must have a loss for the job's to be known; 0 where no rank is missing."""
    if len(places) == world_size:
        return 0
    place = next(iter(places.values()))
    return int(place.get("dp_size", world_size)) * int(place.get("cp_size", 1))


def _loss_holders(rows: Mapping[int, Row], places: Mapping[int, Mapping[str, int]]) -> Iterator[Row]:
    """One row with a loss for each data- and context-parallel place: tensor-parallel ranks hold the same one.

    Where each of them holds the loss of the whole batch, one row in all.
    """
    seen = set()
    for rank, row in sorted(rows.items()):
        place = places[rank]
        where = (None, None) if row.get("whole") else (place.get("dp", rank), place.get("cp", 0))
        if row.get("loss") is not None and where not in seen:
            seen.add(where)
            yield row


def number(value: Any) -> Any:
    """Undo the strings that stand for NaN and the infinities in strict JSON."""
    if isinstance(value, list):
        return [number(item) for item in value]
    return float(value) if value in ("nan", "inf", "-inf") else value
