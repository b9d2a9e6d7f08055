"""One step's row of scalars, merged from all ranks.

:func:`merged_row` defines the merge. :func:`merged_rows` computes the same rows of a run from columns, together for
steps at which the same ranks hold a loss; steps with incomplete columns go to the former.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import mul
from typing import TypeAlias

import numpy as np
from msgspec.structs import replace

from align_hooks.record.format.layout import Array
from align_hooks.record.format.rows import RankRow, ScalarRow
from align_hooks.record.format.schema import Manifest
from align_hooks.record.format.terms import whole
from align_hooks.record.read.rank_rows import FLOAT, KNOWN, NO_TERMS, SKIPPED, TERMS, WHOLE, Columns, RankRows, at

MOST_TOKENS = 1 << 40
"""The most tokens of a rank and step with exact sums in fp64, the type of columns."""
LOSSES = ("loss", "objective_loss", "valid_tokens")
Losses: TypeAlias = tuple[float | None, float | None, float | None]
"""The values of :data:`LOSSES` at a step."""


def merged_row(rows: Mapping[int, RankRow], manifests: Mapping[int, Manifest], *, per_token: bool) -> ScalarRow:
    """Return a step's row of all ranks; losses are None where a missing rank holds a loss of its own.

    ``per_token`` is whether all tokens have one weight in the objective.
    """
    row = rows[min(rows)].of_job()
    known = [(rank, of_rank.whole, of_rank.loss is not None) for rank, of_rank in rows.items()]
    holders = [rows[rank] for rank in _loss_holders(known, manifests)]
    lacking = len(holders) < _loss_places(manifests)
    of_holders = ([getattr(holder, key) for holder in holders or [rows[min(rows)]]] for key in LOSSES)
    loss, objective, tokens = (None, None, None) if lacking else _means(*of_holders, per_token=per_token)
    ranks = next(iter(manifests.values())).launch.world_size
    terms = whole(of_rank.terms for of_rank in rows.values()) if len(rows) == ranks else None
    total = None if objective is None else objective + sum((terms or {}).values())  # fsum raises beyond a double
    parts = [of_rank.squared for of_rank in rows.values() if of_rank.squared is not None]
    norm = _norm(parts) if row.grad_norm is None and len(parts) == len(rows) else row.grad_norm
    return replace(row, loss=loss, objective_loss=total, valid_tokens=tokens, terms=terms, grad_norm=norm)


def _means(
    losses: Sequence[float | None], objectives: Sequence[float | None], counts: Sequence[float | None], *, per_token: bool
) -> Losses:
    """Return loss, objective and tokens of the holders; None where one lacks a loss, or only some have tokens."""
    if len(losses) == 1:
        return losses[0], objectives[0], counts[0]
    if None in (*losses, *objectives) or 0 < counts.count(None) < len(counts):
        return None, None, None
    return _means_of_known(losses, objectives, counts, per_token=per_token)  # type: ignore[arg-type]


def _means_of_known(losses: Sequence[float], objectives: Sequence[float], counts: Sequence[float | None], *, per_token: bool) -> Losses:
    if None in counts:  # each loss is a mean; Megatron-LM sums per-token objectives over ranks, and divides by no tokens then
        return sum(losses) / len(losses), sum(objectives) / (1 if per_token else len(objectives)), None
    tokens = sum(counts)  # type: ignore[arg-type]
    loss = sum(map(mul, losses, counts)) / tokens if tokens else math.nan
    if per_token:
        return loss, sum(map(mul, objectives, counts)) / tokens if tokens else math.nan, tokens
    return loss, sum(objectives) / len(objectives), tokens


def _norm(squares: Sequence[float]) -> float:
    """Return the root of a sum of squares; NaN where the sum is negative."""
    return math.sqrt(total) if (total := sum(squares)) >= 0 else math.nan


def _loss_places(manifests: Mapping[int, Manifest]) -> int:
    """Return the number of data- and context-parallel places that need a loss; 0 where no rank is missing."""
    first = next(iter(manifests.values()))
    ranks = first.launch.world_size
    return 0 if len(manifests) == ranks else first.place.get("dp_size", ranks) * first.size("cp")


def _loss_holders(known: Iterable[tuple[int, bool, bool]], manifests: Mapping[int, Manifest]) -> Iterator[int]:
    """Yield one rank with a loss for each data- and context-parallel place; one in all for losses of the full batch.

    ``known`` has rank, whether its loss is of the full batch, and whether it has a loss.
    """
    seen = set()
    for rank, whole_batch, has_loss in sorted(known):
        place = manifests[rank].place
        where = (None, None) if whole_batch else (place.get("dp", rank), place.get("cp", 0))
        if has_loss and where not in seen:
            seen.add(where)
            yield rank


def merged_rows(
    rows: Mapping[int, RankRows], steps: Sequence[int], manifests: Mapping[int, Manifest], *, per_token: bool
) -> list[ScalarRow]:
    """Return the rows of ascending ``steps`` that all ranks have, each equal to :func:`merged_row`'s."""
    numbers = np.array(steps, np.int64)
    columns = {rank: of_rank.columns(numbers) for rank, of_rank in rows.items()}
    merged: dict[int, ScalarRow] = {}
    for indices in _alike(columns):
        every = len(indices) == len(steps)
        chosen = columns if every else {rank: at(of_rank, indices) for rank, of_rank in columns.items()}
        merged |= {row.step: row for row in _of_columns(chosen, numbers[indices], manifests, per_token=per_token)}
    for step in steps:
        if step not in merged:
            of_ranks = {rank: of_rank[step] for rank, of_rank in rows.items()}
            merged[step] = merged_row(of_ranks, manifests, per_token=per_token)
    return [merged[step] for step in steps]


def _alike(columns: Mapping[int, Columns]) -> Iterator[Array]:
    """Yield the indices of steps with complete columns, grouped by the ranks that have a loss, of the full batch or not,
    and no other terms."""
    first = columns[min(columns)]  # samples and rate come from the first rank
    complete = ~(np.isinf(first["consumed_samples"]) | np.isinf(first["learning_rate"]))
    patterns = []
    for of_rank in columns.values():
        flags = of_rank["flags"]
        complete &= ~of_rank["kept"] & (flags & (FLOAT | TERMS) == 0) & ~(np.abs(of_rank["valid_tokens"]) > MOST_TOKENS)
        patterns += [~np.isnan(of_rank["loss"]), (flags & WHOLE) > 0, (flags & NO_TERMS) > 0]
    packed = np.packbits(np.array(patterns), axis=0)[:, complete].T
    indices = np.flatnonzero(complete)
    _, which = np.unique(packed, axis=0, return_inverse=True) if len(indices) else (None, indices)
    for number in range(int(which.max(initial=-1)) + 1):
        yield indices[which.reshape(-1) == number]


def _of_columns(columns: Mapping[int, Columns], steps: Array, manifests: Mapping[int, Manifest], *, per_token: bool) -> Iterator[ScalarRow]:
    """Yield the rows of one group of :func:`_alike`."""
    first = columns[min(columns)]
    known = [(rank, bool(of["flags"][0] & WHOLE), not math.isnan(of["loss"][0])) for rank, of in columns.items()]
    holders = list(_loss_holders(known, manifests))
    lacking = len(holders) < _loss_places(manifests)
    by_key = [list(zip(*(_listed(columns[rank][key]) for rank in holders or [min(columns)]), strict=True)) for key in LOSSES]
    losses = [(None, None, None) if lacking else _means(*of_step, per_token=per_token) for of_step in zip(*by_key, strict=True)]
    ranks = next(iter(manifests.values())).launch.world_size
    terms: dict[str, float] | None = {} if len(columns) == ranks and all(of["flags"][0] & NO_TERMS for of in columns.values()) else None
    names = ("consumed_samples", "grad_norm", "clip_coefficient", "learning_rate", "loss_scale", "seconds")
    others = zip(*(_listed(first[name]) for name in names), strict=True)
    skipped = [bool(flags & SKIPPED) if flags & KNOWN else None for flags in first["flags"].tolist()]
    norms = _norms(first["grad_norm"], [of_rank["squared"] for of_rank in columns.values()])
    for index, (step, (loss, objective, tokens), skip, numbers) in enumerate(zip(steps.tolist(), losses, skipped, others, strict=True)):
        samples, norm, clip, rate, scale, seconds = numbers
        yield ScalarRow(
            step=step,
            loss=loss,
            objective_loss=None if objective is None else objective + 0,
            valid_tokens=None if tokens is None else int(tokens),
            consumed_samples=None if samples is None else int(samples),
            grad_norm=norms.get(index) if norm is None else norm,
            clip_coefficient=clip,
            learning_rate=rate,
            loss_scale=scale,
            skipped=skip,
            seconds=seconds,
            terms=terms,
        )


def _listed(column: Array) -> list[float | None]:
    """Return the numbers of a column; None for NaN."""
    return [None if number != number else number for number in column.tolist()]


def _norms(norm: Array, squared: Sequence[Array]) -> dict[int, float]:
    """Return the norm from all ranks' squares, by the index of a step with all squares and without ``norm``."""
    indices = np.flatnonzero(np.isnan(norm) & ~np.isnan(np.array(squared)).any(axis=0))
    parts = zip(*(column[indices].tolist() for column in squared), strict=True)
    return {index: _norm(squares) for index, squares in zip(indices.tolist(), parts, strict=True)}
