"""One step's row of scalars, put together from those of all ranks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from align_hooks.record.schema import Manifest, RankRow, Row
from align_hooks.record.terms import whole


def merged_row(rows: Mapping[int, RankRow], manifests: Mapping[int, Manifest], *, per_token: bool) -> Row:
    """A step's row from rank to row; ``per_token`` says whether all tokens are differentiated alike. Losses are None where a missing rank
    holds a loss of its own."""
    row = rows[min(rows)].of_job()
    holders = list(_loss_holders(rows, manifests))
    if len(holders) < _loss_places(manifests):
        holders, row = [], replace(row, loss=None, objective_loss=None, valid_tokens=None)
    if len(holders) > 1:
        row = _mean(row, holders, per_token=per_token)
    elif holders:
        (holder,) = holders
        row = replace(row, loss=holder.loss, objective_loss=holder.objective_loss, valid_tokens=holder.valid_tokens)
    ranks = next(iter(manifests.values())).launch.world_size
    row = _with_terms(row, whole(of_rank.terms for of_rank in rows.values()) if len(rows) == ranks else None)
    parts = [of_rank.squared for of_rank in rows.values() if of_rank.squared is not None]
    if row.grad_norm is None and len(parts) == len(rows):
        row = replace(row, grad_norm=math.sqrt(total) if (total := sum(parts)) >= 0 else math.nan)
    return row


def _with_terms(row: Row, terms: dict[str, float] | None) -> Row:
    """A row of the language model's loss alone, with the other terms of the job, where these are known."""
    objective = row.objective_loss
    total = None if objective is None else objective + sum((terms or {}).values())  # fsum raises beyond a double
    return replace(row, terms=terms, objective_loss=total)


def _mean(row: Row, holders: Sequence[RankRow], *, per_token: bool) -> Row:
    """A row with the mean losses of its holders; without losses where a holder lacks one."""
    counts, losses, objectives = ([getattr(holder, key) for holder in holders] for key in ("valid_tokens", "loss", "objective_loss"))
    if None in (*counts, *losses, *objectives):
        return replace(row, loss=None, objective_loss=None, valid_tokens=None)
    tokens = sum(counts)
    loss, weighed = (
        sum(value * count for value, count in zip(values, counts, strict=True)) / tokens if tokens else math.nan
        for values in (losses, objectives)
    )
    return replace(row, valid_tokens=tokens, loss=loss, objective_loss=weighed if per_token else sum(objectives) / len(holders))


def _loss_places(manifests: Mapping[int, Manifest]) -> int:
    """How many data- and context-parallel places must have a loss before the job's is known; 0 where no rank is missing."""
    first = next(iter(manifests.values()))
    ranks = first.launch.world_size
    return 0 if len(manifests) == ranks else first.place.get("dp_size", ranks) * first.size("cp")


def _loss_holders(rows: Mapping[int, RankRow], manifests: Mapping[int, Manifest]) -> Iterator[RankRow]:
    """One row with a loss for each data- and context-parallel place: tensor-parallel ranks hold the same loss. Where each rank holds the
    loss of the whole batch, one row in all."""
    seen = set()
    for rank, row in sorted(rows.items()):
        place = manifests[rank].place
        where = (None, None) if row.whole else (place.get("dp", rank), place.get("cp", 0))
        if row.loss is not None and where not in seen:
            seen.add(where)
            yield row
