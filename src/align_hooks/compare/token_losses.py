"""Each token's loss on both sides, before the mask and any sum: the nearest that a record comes to the forward pass alone.

The mean of a step's losses hides what this shows: losses that are too high cancel losses that are too low, and a mask or a number
of tokens that is counted otherwise moves the mean although every token is right. And where along the sequence losses part says what
kind of fault it is: the first token sees itself alone, whatever the attention does to scores, and the last one sees all that there is.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from align_hooks.compare.measures import distances, ratio, relative_difference
from align_hooks.compare.verdict import Finding, when

MOST = 0.9
"""The part of positions that must be wrong for a pattern to be told."""


FEWEST = 3
"""And how many at least."""


class Where(Enum):
    """Which positions of the sequence have wrong losses; the value is what it means."""

    NOWHERE = ""
    EVERYWHERE = "at every position: what a token goes through by itself"
    AFTER_THE_FIRST = "at every position but the first, which attends to itself alone: scores of the attention"
    FROM_ONE_ON = "from position {} on: what early tokens do not need, as a window of the attention or far positions"
    HERE_AND_THERE = "at some positions"


def compared(ours: Any, theirs: Any) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """The losses of two batches, ``[rows, sequence]`` each, 0 where a mask lets a token not count: frameworks leave anything there.

    None where one recorded none or of other tokens.
    """
    one, other = ours.token_losses, theirs.token_losses
    if one is None or other is None or one.shape != other.shape:
        return None
    counts = np.ones(one.shape, bool)
    for mask in (ours.loss_mask, theirs.loss_mask):
        if mask is not None and mask.shape == one.shape:
            counts &= mask > 0
    return np.where(counts, one, 0), np.where(counts, other, 0)


def finding(losses: tuple[NDArray[Any], NDArray[Any]], step: int, limit: float) -> tuple[Finding, Where]:
    """Their relative distance, and where they part, if they do."""
    distance, size, _ = distances(*losses)
    where, first = (Where.NOWHERE, 0) if ratio(distance, size) <= limit else positions(losses, limit)
    told = f", {where.value.format(first)}" if where.value else ""
    counted = max(int(counts(losses).sum()), 1)
    mean = [f"mean {array.sum(dtype=np.float64) / counted:.9g}" if np.isfinite(array).all() else "nan" for array in losses]
    return Finding(f"token losses of {when(step)}{told}", mean[0], mean[1], ratio(distance, size), limit), where


def mean(losses: tuple[NDArray[Any], NDArray[Any]], step: int, limit: float) -> Finding:
    """Their means over the tokens that count, which is what a loss is before anything is reduced: one that a whole batch moves alike is
    seen here first, and a loss that differs where this agrees was normalised otherwise."""
    ours, theirs = (float(array.sum(dtype=np.float64)) / max(int(counts(losses).sum()), 1) for array in losses)
    return Finding(f"mean of the token losses of {when(step)}", f"{ours:.9g}", f"{theirs:.9g}", relative_difference(ours, theirs), limit)


def counts(losses: tuple[NDArray[Any], NDArray[Any]]) -> NDArray[Any]:
    """Which tokens count, ``[rows, sequence]``: no cross entropy of a token that does is 0 on both sides."""
    found: NDArray[Any] = (losses[0] != 0) | (losses[1] != 0)
    return found


def positions(losses: tuple[NDArray[Any], NDArray[Any]], limit: float) -> tuple[Where, int]:
    """The pattern of positions whose losses are beyond ``limit``, relative to a mean loss, and the first of these."""
    one, other = (array.astype(np.float64) for array in losses)
    there = counts(losses)
    rows = np.maximum(there.sum(axis=0), 1)
    size = np.sqrt(np.nansum(np.square(one)) / max(int(there.sum()), 1))
    wrong = ~(np.sqrt(np.square(other - one).sum(axis=0) / rows) <= limit * size)
    first = int(np.argmax(wrong))
    if not wrong.any():
        return Where.NOWHERE, 0
    columns = there.any(axis=0)
    columns[:first] = False
    if wrong[columns].mean() < MOST or wrong.sum() < FEWEST:
        return Where.HERE_AND_THERE, first
    return {0: Where.EVERYWHERE, 1: Where.AFTER_THE_FIRST}.get(first, Where.FROM_ONE_ON), first
