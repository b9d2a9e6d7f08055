"""Which rows of a step's batch hold the error of its token losses: those of one rank, of later micro-batches, or all.

Rows are independent of each other in a forward pass. So an error in the rows of one data-parallel rank is something that this rank alone
computes with, and one that begins with the second micro-batch is something that the first one left behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from align_hooks.messages import Message, Side, message, terms
from align_hooks.record.batch import Batch

SHOWN = 5
"""How many rows are listed."""


class Rows(Enum):
    """Which rows are wrong."""

    ALL = "all"
    RANK = "rank"
    LATER = "later micro-batches"
    MICRO_BATCH = "one micro-batch"
    SOME = "some"


@dataclass(frozen=True, slots=True)
class Wrong:
    """Which rows are wrong, and that in words; no words where all are."""

    rows: Rows = Rows.ALL
    told: Message | None = None


def counts(losses: tuple[NDArray[Any], NDArray[Any]]) -> NDArray[np.bool_]:
    """Which tokens count, ``[rows, sequence]``: no cross entropy of a token that does is 0 on both sides."""
    found: NDArray[np.bool_] = (losses[0] != 0) | (losses[1] != 0)
    return found


def wrong_rows(losses: tuple[NDArray[Any], NDArray[Any]], limit: float) -> NDArray[np.bool_]:
    """Of two arrays of token losses, ``[rows, sequence]``, which rows are further apart than ``limit`` times a mean loss."""
    return beyond(losses, limit, axis=1)


def beyond(losses: tuple[NDArray[Any], NDArray[Any]], limit: float, axis: int) -> NDArray[np.bool_]:
    """The same of what is left when ``axis`` is summed over: 1 leaves rows, 0 positions. What is not finite is beyond."""
    one, other = (array.astype(np.float64) for array in losses)
    counted = counts(losses)
    size = np.sqrt(np.nansum(np.square(one)) / max(int(counted.sum()), 1))
    tokens = np.maximum(counted.sum(axis=axis), 1)
    with np.errstate(invalid="ignore"):
        found: NDArray[np.bool_] = ~(np.sqrt(np.square(other - one).sum(axis=axis) / tokens) <= limit * size)
    return found


def pattern(wrong: NDArray[np.bool_], batches: Sequence[Batch]) -> Wrong:
    """What the wrong rows have in common; ``batches`` are the reference's and the candidate's, whose rows these are."""
    rows = set(np.flatnonzero(wrong).tolist())
    if not rows or wrong.all():
        return Wrong()
    sides = tuple(zip((Side.CANDIDATE, Side.REFERENCE), map(owners, reversed(batches)), strict=True))
    sides = tuple((side, owned) for side, owned in sides if len(owned) == wrong.size)
    for side, owned in sides:
        ranks = {rank for _, rank in owned}
        mine = {owned[row][1] for row in rows}
        if len(mine) < len(ranks) and rows == {row for row, (_, rank) in enumerate(owned) if rank in mine}:
            return Wrong(Rows.RANK, message("wrong_rows.of_rank", side=side, ranks=terms(sorted(mine))))
    for side, owned in sides:
        seen = {owned[row][0] for row in rows}
        first, last = min(seen), max(part for part, _ in owned)
        if rows != {row for row, (part, _) in enumerate(owned) if part in seen}:
            continue
        if first and seen == set(range(first, last + 1)):
            return Wrong(Rows.LATER, _later(side, first))
        if len(seen) == 1:
            return Wrong(Rows.MICRO_BATCH, message("wrong_rows.of_micro_batch", number=first, side=side))
    return some(wrong)


def _later(side: Side, first: int) -> Message:
    """That micro-batches differ from the ``first`` on."""
    if first == 1:
        return message("wrong_rows.after_the_first_micro_batch", side=side)
    return message("wrong_rows.after_micro_batches", side=side, last=first - 1)


def some(wrong: NDArray[np.bool_]) -> Wrong:
    """The numbers of the wrong rows, and nothing of what these have in common."""
    rows = np.flatnonzero(wrong)
    if not rows.size or wrong.all():
        return Wrong()
    shown = terms(rows[:SHOWN].tolist())
    return Wrong(Rows.SOME, message("wrong_rows.first" if len(rows) > SHOWN else "wrong_rows.some", rows=shown, count=wrong.size))


def owners(batch: Batch) -> list[tuple[int, int]]:
    """Micro-batch and data-parallel rank of every row of a batch: rows stand in the order micro-batch, rank, row."""
    found: list[tuple[int, int]] = []
    for part in range(max(map(len, batch.rows), default=0)):
        for rank, counts in enumerate(batch.rows):
            if part < len(counts):
                found += [(part, rank)] * counts[part]
    return found
