"""Each token's loss on both sides, before the mask and any sum: the nearest that a record comes to the forward pass alone.

The mean of a step's losses hides what this shows: losses that are too high cancel losses that are too low, and a mask or a number
of tokens that is counted otherwise moves the mean although every token is right. And where along the sequence losses part says what
kind of fault it is: the first token sees itself alone, whatever the attention does to scores, and the last one sees all that there is.
Every token off by one and the same number is no fault of the model: a constant was added, or the softmax summed over too much.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from align_hooks.compare.measures import distances, ratio, relative_difference
from align_hooks.compare.rows import Wrong, beyond, counts, pattern, some, wrong_rows
from align_hooks.compare.verdict import Finding, Quantity, Value, Words, when
from align_hooks.messages import Message, Side, message, sentences
from align_hooks.record.batch import Batch
from align_hooks.record.reader import Run

MOST = 0.9
"""The part of positions that must be wrong for a pattern to be told."""


FEWEST = 3
"""And how many at least."""


class Where(Enum):
    """Which positions of the sequence have wrong losses."""

    NOWHERE = "nowhere"
    EVERYWHERE = "everywhere"
    AFTER_THE_FIRST = "after the first"
    FROM_ONE_ON = "from one on"
    HERE_AND_THERE = "here and there"


EVEN = 1e-2
"""How far the tokens' differences may be spread, of their mean, where one number is added to all of them."""


@dataclass(frozen=True, slots=True)
class Parted:
    """How the token losses of two runs part: at which ``step`` first, None where they never do, at which positions, in which rows, and by
    how much every token, None where that is not one number. ``later`` where an earlier step on equal weights agrees."""

    step: int | None = None
    where: Where = Where.NOWHERE
    rows: Wrong = Wrong()
    shift: float | None = None
    later: bool = False

    def told(self, runs: Sequence[Run]) -> Words | None:
        """The same in words, but for the positions; ``runs`` are the reference and the candidate. None where there is no pattern."""
        carried = message("token_losses.earlier_steps_agree") if self.later else None
        parts = [part for part in (self.rows.told, self._shifted(runs), carried) if part is not None]
        return sentences(*parts) if parts else None

    def _shifted(self, runs: Sequence[Run]) -> Message | None:
        """By how much every token is off, and whose number of ranks that comes from."""
        if self.shift is None:
            return None
        summed = logarithm(self.shift, runs)
        if summed is None:
            return message("token_losses.shifted", shift=self.shift)
        return message("token_losses.shifted_by_logarithm", shift=self.shift, side=summed[0], ranks=summed[1])


EARLY, MANY = 0.125, 0.25
"""Where in the sequence an error begins, and the part of positions that it reaches, at the most and at the least, where rows are wrong as
such. A fault of far positions, as a window of the attention, or of single tokens is in the rows that happen to have these, and says nothing
of the ranks, micro-batches and steps that they stand in."""


def parted(losses: tuple[NDArray[Any], NDArray[Any]], batches: Sequence[Batch], step: int, limit: float, *, later: bool) -> Parted:
    """How token losses that differ part, at one step; ``batches`` are those that they are of."""
    where, _ = positions(losses, limit)
    wrong, columns = wrong_rows(losses, limit), wrong_positions(losses, limit)
    if np.argmax(columns) > EARLY * columns.size or columns.mean() < MANY:
        return Parted(step, where, some(wrong), shift(losses, limit))
    return Parted(step, where, pattern(wrong, batches), shift(losses, limit), later)


def shift(losses: tuple[NDArray[Any], NDArray[Any]], limit: float) -> float | None:
    """The one number by which every token that counts is off, None where they are off by different ones."""
    there = counts(losses)
    with np.errstate(invalid="ignore"):
        apart = (losses[1].astype(np.float64) - losses[0])[there]
    size = float(np.sqrt(np.square(losses[0][there], dtype=np.float64).mean())) if apart.size else 0.0
    if apart.size < FEWEST or not np.isfinite(apart).all():
        return None
    middle, spread = float(apart.mean()), float(apart.std())
    return middle if abs(middle) > limit * size and spread <= EVEN * abs(middle) else None


def logarithm(number: float, runs: Sequence[Run]) -> tuple[Side, int] | None:
    """Of whose number of tensor-parallel ranks a shift is the logarithm, and that number; None where of none."""
    for side, run, value in ((Side.CANDIDATE, runs[1], number), (Side.REFERENCE, runs[0], -number)):
        ranks = max((manifest.size("tp") for manifest in run.manifests.values()), default=1)
        if ranks > 1 and abs(value - math.log(ranks)) <= EVEN * math.log(ranks):
            return side, ranks
    return None


def compared(ours: Batch, theirs: Batch) -> tuple[NDArray[Any], NDArray[Any]] | None:
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
    what = _parting(message("token_losses.of", step=when(step)), where, first)
    ours, theirs = (_shown(number) for number in means(losses))
    return Finding(what, ours, theirs, ratio(distance, size), limit, step=step, quantity=Quantity.TOKEN_LOSSES), where


def mean(losses: tuple[NDArray[Any], NDArray[Any]], step: int, limit: float) -> Finding:
    """Their means over the tokens that count, which is what a loss is before anything is reduced: one that a whole batch moves alike is
    seen here first, and a loss that differs where this agrees was normalised otherwise."""
    ours, theirs = means(losses)
    what = message("token_losses.mean_of", step=when(step))
    return Finding(what, ours, theirs, relative_difference(ours, theirs), limit, step=step, quantity=Quantity.TOKEN_LOSSES)


def means(losses: tuple[NDArray[Any], NDArray[Any]]) -> list[float]:
    """Of both sides the mean over the tokens that count."""
    counted = max(int(counts(losses).sum()), 1)
    return [float(array.sum(dtype=np.float64)) / counted for array in losses]


def _shown(mean: float) -> Value:
    """What is shown beside a distance of all tokens: their mean, or that it is not finite."""
    return message("token_losses.mean", mean=mean) if math.isfinite(mean) else math.nan


def _parting(what: Message, where: Where, first: int) -> Message:
    """Token losses of a step with where they part, from position ``first`` on, and what that means."""
    match where:
        case Where.NOWHERE:
            return what
        case Where.EVERYWHERE:
            return message("token_losses.everywhere", what=what)
        case Where.AFTER_THE_FIRST:
            return message("token_losses.after_the_first", what=what)
        case Where.FROM_ONE_ON:
            return message("token_losses.from_one_on", what=what, position=first)
        case Where.HERE_AND_THERE:
            return message("token_losses.here_and_there", what=what)


def positions(losses: tuple[NDArray[Any], NDArray[Any]], limit: float) -> tuple[Where, int]:
    """The pattern of positions whose losses are beyond ``limit``, relative to a mean loss, and the first of these."""
    there, wrong = counts(losses), wrong_positions(losses, limit)
    first = int(np.argmax(wrong))
    if not wrong.any():
        return Where.NOWHERE, 0
    columns = there.any(axis=0)
    columns[:first] = False
    if wrong[columns].mean() < MOST or wrong.sum() < FEWEST:
        return Where.HERE_AND_THERE, first
    return {0: Where.EVERYWHERE, 1: Where.AFTER_THE_FIRST}.get(first, Where.FROM_ONE_ON), first


def wrong_positions(losses: tuple[NDArray[Any], NDArray[Any]], limit: float) -> NDArray[np.bool_]:
    """Which positions of the sequence have losses further apart than ``limit`` times a mean loss."""
    return beyond(losses, limit, axis=0)
