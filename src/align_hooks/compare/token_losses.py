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

from align_hooks.compare.findings import when
from align_hooks.compare.measures import distances, ratio
from align_hooks.compare.verdict import Finding

MOST = 0.9
"""The part of positions that must be wrong for a pattern to be told."""


class Where(Enum):
    """Which positions of the sequence have wrong losses; the value is what it means."""

    NOWHERE = ""
    EVERYWHERE = "at every position: what a token goes through by itself"
    AFTER_THE_FIRST = "at every position but the first, which attends to itself alone: scores of the attention"
    FROM_ONE_ON = "from position {} on: what early tokens do not need, as a window of the attention or far positions"
    HERE_AND_THERE = "at some positions"


def compared(ours: Any, theirs: Any) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """The losses of two batches, ``[rows, sequence]`` each; None where one recorded none or of other tokens."""
    one, other = ours.token_losses, theirs.token_losses
    return None if one is None or other is None or one.shape != other.shape else (one, other)


def finding(losses: tuple[NDArray[Any], NDArray[Any]], step: int, limit: float) -> tuple[Finding, Where]:
    """Their relative distance, and where they part, if they do."""
    distance, size, _ = distances(*losses)
    where, first = (Where.NOWHERE, 0) if ratio(distance, size) <= limit else positions(losses, limit)
    told = f", {where.value.format(first)}" if where.value else ""
    mean = [f"mean {array.mean(dtype=np.float64):.9g}" if np.isfinite(array).all() else "nan" for array in losses]
    return Finding(f"token losses of {when(step)}{told}", mean[0], mean[1], ratio(distance, size), limit), where


def positions(losses: tuple[NDArray[Any], NDArray[Any]], limit: float) -> tuple[Where, int]:
    """The pattern of positions whose losses are beyond ``limit``, relative to a mean loss, and the first of these."""
    one, other = (array.astype(np.float64) for array in losses)
    size = np.sqrt(np.square(one).mean())
    wrong = ~(np.sqrt(np.square(other - one).mean(axis=0)) <= limit * size)
    first = int(np.argmax(wrong))
    if not wrong.any():
        return Where.NOWHERE, 0
    if wrong[first:].mean() < MOST:
        return Where.HERE_AND_THERE, first
    return {0: Where.EVERYWHERE, 1: Where.AFTER_THE_FIRST}.get(first, Where.FROM_ONE_ON), first
