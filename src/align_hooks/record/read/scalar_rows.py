"""One step's row of scalars, put together from those of all ranks.

:func:`merged_row` says how. :func:`merged_rows` makes the same rows of a whole run out of columns, those together at whose steps the same
ranks hold a loss; a step of which the columns do not tell everything is left to the former.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import mul
from typing import TypeAlias

import numpy as np
from msgspec.structs import replace

from align_hooks.record.format.layout import Array
from align_hooks.record.format.schema import Manifest, RankRow, ScalarRow
from align_hooks.record.format.terms import whole
from align_hooks.record.read.rank_rows import FLOAT, KNOWN, NO_TERMS, SKIPPED, TERMS, WHOLE, RankRows, RowColumns

MOST_TOKENS = 1 << 40
"""Of a rank and step; the sums of more would not be exact in fp64, in which columns are."""


def merged_row(rows: Mapping[int, RankRow], manifests: Mapping[int, Manifest], *, per_token: bool) -> ScalarRow:
    """A step's row from rank to row; ``per_token`` says whether all tokens are differentiated alike. Losses are None where a missing rank
    holds a loss of its own."""
    row = rows[min(rows)].of_job()
    known = [(rank, row.whole, row.loss is not None) for rank, row in rows.items()]
    holders = [rows[rank] for rank in _loss_holders(known, manifests)]
    if len(holders) < _loss_places(manifests):
        holders, row = [], replace(row, loss=None, objective_loss=None, valid_tokens=None)
    if len(holders) > 1:
        row = _mean(row, holders, per_token=per_token)
    elif holders:
        (holder,) = holders
        row = replace(row, loss=holder.loss, objective_loss=holder.objective_loss, valid_tokens=holder.valid_tokens)
    ranks, objective = next(iter(manifests.values())).launch.world_size, row.objective_loss
    terms = whole(of_rank.terms for of_rank in rows.values()) if len(rows) == ranks else None
    total = None if objective is None else objective + sum((terms or {}).values())  # fsum raises beyond a double
    row = replace(row, terms=terms, objective_loss=total)
    parts = [of_rank.squared for of_rank in rows.values() if of_rank.squared is not None]
    if row.grad_norm is None and len(parts) == len(rows):
        row = replace(row, grad_norm=_norm(parts))
    return row


def _mean(row: ScalarRow, holders: Sequence[RankRow], *, per_token: bool) -> ScalarRow:
    """A row with the mean losses of its holders; without losses where a holder lacks one, or some alone say how many tokens they have."""
    losses, objectives, counts = ([getattr(holder, key) for holder in holders] for key in ("loss", "objective_loss", "valid_tokens"))
    if _are_no_means(losses, objectives, counts):
        return replace(row, loss=None, objective_loss=None, valid_tokens=None)
    loss, objective, tokens = _means(losses, objectives, counts, per_token=per_token)
    return replace(row, valid_tokens=tokens, loss=loss, objective_loss=objective)


def _are_no_means(losses: Sequence[float | None], objectives: Sequence[float | None], counts: Sequence[float | None]) -> bool:
    return None in (*losses, *objectives) or 0 < counts.count(None) < len(counts)


def _means(losses: Sequence[float], objectives: Sequence[float], counts: Sequence[float | None], *, per_token: bool) -> Losses:
    """Loss, objective and tokens of several holders together. Where none says how many tokens it has, each loss is a mean of its own; what
    is differentiated per token is summed over ranks, and Megatron-LM then divides by no tokens."""
    if None in counts:
        return sum(losses) / len(losses), sum(objectives) / (1 if per_token else len(objectives)), None
    tokens = sum(counts)  # type: ignore[arg-type]
    loss = sum(map(mul, losses, counts)) / tokens if tokens else math.nan
    if per_token:
        return loss, sum(map(mul, objectives, counts)) / tokens if tokens else math.nan, tokens
    return loss, sum(objectives) / len(objectives), tokens


def _norm(squares: Sequence[float]) -> float:
    """The root of a sum of parts of a square; NaN where that is negative."""
    return math.sqrt(total) if (total := sum(squares)) >= 0 else math.nan


def _loss_places(manifests: Mapping[int, Manifest]) -> int:
    """How many data- and context-parallel places must have a loss before the job's is known; 0 where no rank is missing."""
    first = next(iter(manifests.values()))
    ranks = first.launch.world_size
    return 0 if len(manifests) == ranks else first.place.get("dp_size", ranks) * first.size("cp")


def _loss_holders(known: Iterable[tuple[int, bool, bool]], manifests: Mapping[int, Manifest]) -> Iterator[int]:
    """One rank with a loss for each data- and context-parallel place: tensor-parallel ranks hold the same loss. Where each rank holds the
    loss of the whole batch, one rank in all. ``known`` says of each rank whether its loss is that, and whether it has one."""
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
    """The rows of ``steps``, ascending, which all ranks have; each as :func:`merged_row` makes it."""
    numbers = np.array(steps, np.int64)
    columns = {rank: of_rank.columns(numbers) for rank, of_rank in rows.items()}
    merged: dict[int, ScalarRow] = {}
    for indices in _alike(columns):
        every = len(indices) == len(steps)
        chosen = columns if every else {rank: of_rank.at(indices) for rank, of_rank in columns.items()}
        alike = _of_columns(chosen, numbers[indices], manifests, per_token=per_token)
        merged |= {row.step: row for row in alike}
    for step in steps:
        if step not in merged:
            of_ranks = {rank: of_rank[step] for rank, of_rank in rows.items()}
            merged[step] = merged_row(of_ranks, manifests, per_token=per_token)
    return [merged[step] for step in steps]


def _alike(columns: Mapping[int, RowColumns]) -> Iterator[Array]:
    """The indices of steps of which columns tell everything, those together at which the same ranks have a loss, of the whole batch or not,
    and know of no other terms of it. Of the first rank alone samples and rate are needed."""
    first = columns[min(columns)].numbers
    told = ~(np.isinf(first["consumed_samples"]) | np.isinf(first["learning_rate"]))
    patterns = []
    for of_rank in columns.values():
        told &= ~of_rank.kept & (of_rank.flags & (FLOAT | TERMS) == 0) & ~(np.abs(of_rank.numbers["valid_tokens"]) > MOST_TOKENS)
        patterns += [~np.isnan(of_rank.numbers["loss"]), (of_rank.flags & WHOLE) > 0, (of_rank.flags & NO_TERMS) > 0]
    packed = np.packbits(np.array(patterns), axis=0)[:, told].T
    indices = np.flatnonzero(told)
    _, which = np.unique(packed, axis=0, return_inverse=True) if len(indices) else (None, indices)
    for number in range(int(which.max(initial=-1)) + 1):
        yield indices[which.reshape(-1) == number]


def _of_columns(
    columns: Mapping[int, RowColumns], steps: Array, manifests: Mapping[int, Manifest], *, per_token: bool
) -> Iterator[ScalarRow]:
    """The rows of steps that are alike by :func:`_alike`."""
    first = columns[min(columns)]
    known = [(rank, bool(of.flags[0] & WHOLE), not math.isnan(of.numbers["loss"][0])) for rank, of in columns.items()]
    holders = list(_loss_holders(known, manifests))
    lacking = len(holders) < _loss_places(manifests)
    losses = _losses([first] if not holders else [columns[rank] for rank in holders], per_token=per_token, lacking=lacking)
    ranks = next(iter(manifests.values())).launch.world_size
    terms: dict[str, float] | None = {} if len(columns) == ranks and all(of.flags[0] & NO_TERMS for of in columns.values()) else None
    names = ("consumed_samples", "grad_norm", "clip_coefficient", "learning_rate", "loss_scale", "seconds")
    others = zip(*(_listed(first.numbers[name]) for name in names), strict=True)
    skipped = [bool(flags & SKIPPED) if flags & KNOWN else None for flags in first.flags.tolist()]
    norms = _norms(first.numbers["grad_norm"], [of_rank.numbers["squared"] for of_rank in columns.values()])
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
    """The numbers of a column; None where one is unknown."""
    return [None if number != number else number for number in column.tolist()]


Losses: TypeAlias = tuple[float | None, float | None, float | None]
"""Loss, objective and valid tokens of a step."""


def _losses(holders: Sequence[RowColumns], *, per_token: bool, lacking: bool) -> Iterator[Losses]:
    """The losses of steps, of those who hold one; as :func:`_mean` makes them of several."""
    keys = ("loss", "objective_loss", "valid_tokens")
    losses, objectives, counts = (list(zip(*(_listed(of.numbers[key]) for of in holders), strict=True)) for key in keys)
    for of_step in zip(losses, objectives, counts, strict=True):
        if not lacking and len(holders) == 1:
            yield of_step[0][0], of_step[1][0], of_step[2][0]
        elif lacking or _are_no_means(*of_step):
            yield None, None, None
        else:
            yield _means(*of_step, per_token=per_token)  # type: ignore[arg-type]


def _norms(norm: Array, squared: Sequence[Array]) -> dict[int, float]:
    """The norm made of all ranks' squares, by the index of a step of which all are known and the ``norm`` is not."""
    indices = np.flatnonzero(np.isnan(norm) & ~np.isnan(np.array(squared)).any(axis=0))
    parts = zip(*(column[indices].tolist() for column in squared), strict=True)
    return {index: _norm(squares) for index, squares in zip(indices.tolist(), parts, strict=True)}
