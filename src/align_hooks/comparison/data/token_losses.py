"""Compare each token's loss before the mask and any sum: the closest that a record comes to the forward pass.

Positions indicate the kind of fault: the first token attends only to itself, the last to all. Every token off by one number is no fault
of the model: a constant was added, or the softmax summed over too much. Rows are independent in a forward pass: an error in the rows of
one data-parallel rank comes from something that only this rank has, one from the second micro-batch on from something left by the first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum
from typing import TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from align_hooks.comparison.finding import Finding, Metric, Words, when
from align_hooks.comparison.metrics.measures import distances, ratio, relative_difference, root_mean_square
from align_hooks.messages import Message, Side, message, sentences, terms
from align_hooks.record.format.documents import PADDING, starts_of
from align_hooks.record.format.layout import Array
from align_hooks.record.read.batch import Batch, documents_of
from align_hooks.record.reader import Run

MOST, FEWEST = 0.9, 3
"""The smallest part of positions that makes a pattern, and the fewest positions."""
BEGINNING = 2
"""First tokens of a row: the second one attends to the first."""
EVEN = 1e-2
"""How far the tokens' differences may be spread, of their mean, where one number is added to all."""
FEWEST_OF_TYPE = 16
"""Fewest losses whose numbers tell a type: of fp32 one in 65,000 is a number of bf16."""
SHOWN = 5
"""Rows that are listed."""
Losses: TypeAlias = tuple[Array, Array]
"""Token losses of the reference and of the candidate, ``[rows, sequence]`` each."""
Flags: TypeAlias = NDArray[np.bool_]


class Where(Enum):
    """Positions of the sequence with wrong losses; the name, in small letters, ends messages' ids."""

    NOWHERE, EVERYWHERE, AFTER_THE_FIRST, FROM_ONE_ON, HERE_AND_THERE = range(5)


AffectedRows = Enum("AffectedRows", "ALL RANK LATER MICRO_BATCH SOME DOCUMENTS")
"""Rows with wrong losses: of a data-parallel rank, of all later micro-batches, of one, some, or those of several documents."""


class Wrong(Struct, frozen=True):
    """Which rows are wrong."""

    rows: AffectedRows = AffectedRows.ALL
    words: Message | None = None
    """None where all are."""


class LossDivergence(Struct, frozen=True):
    """How the token losses of two runs differ."""

    step: int | None = None
    """The first step; None where they never differ."""
    where: Where = Where.NOWHERE
    rows: Wrong = Wrong()
    shift: float | None = None
    """The number by which every token is off; None where that is not one number."""
    later: bool = False
    """Whether an earlier step on equal weights agrees."""
    begun: float = 0.0
    """Part of the rows whose first tokens agree."""
    documents: Message | None = None
    """How many documents differ, and which first; None without the same several documents on both sides."""
    half: tuple[Side, str] | None = None
    """The side whose losses are all numbers of a half type, and the type; None of neither or both."""

    def words(self, runs: Sequence[Run]) -> Words | None:
        """Return all but the positions in words; None where there is no pattern. ``runs``: reference and candidate."""
        parts = [words for words in (self.rows.words, self.documents) if words is not None]
        if self.half is not None:
            parts.append(message("token_losses.in_half", side=self.half[0], type=self.half[1]))
        if self.shift is not None and (summed := logarithm(self.shift, runs)):
            parts.append(message("token_losses.shifted_by_logarithm", shift=self.shift, side=summed[0], ranks=summed[1]))
        elif self.shift is not None:
            parts.append(message("token_losses.shifted", shift=self.shift))
        if self.later:
            parts.append(message("token_losses.earlier_steps_agree"))
        return sentences(*parts) if parts else None


EARLY, MANY = 0.125, 0.25
"""The latest begin of an error, and the fewest positions with it, as parts of the sequence, where its rows indicate a cause."""


def divergence(losses: Losses, batches: Sequence[Batch], step: int, limit: float, *, later: bool) -> LossDivergence:
    """Return the divergence of token losses at one step; ``batches`` are the reference's and the candidate's."""
    (where, _), (ours, theirs) = positions(losses, limit), losses
    begun = 1.0 - float(exceeding((ours[:, :BEGINNING], theirs[:, :BEGINNING]), limit, axis=1).mean())
    found = LossDivergence(step, where, begun=begun, documents=by_document(losses, batches, limit))
    if (known := behind_boundaries(losses, batches, limit)) is not None:
        return replace(found, rows=known)
    if not are_most_kept(losses, batches[0]):
        return found
    wrong, columns = exceeding(losses, limit, axis=1), exceeding(losses, limit, axis=0)
    # a fault of far positions (a window of the attention) or single tokens is in the rows that happen to have these
    if np.argmax(columns) > EARLY * columns.size or columns.mean() < MANY:
        return replace(found, rows=some(wrong), shift=shift(losses, limit))
    return replace(found, rows=pattern(wrong, batches), shift=shift(losses, limit), later=later)


def half_type(losses: Losses) -> tuple[Side, str] | None:
    """Return the side on which all losses are numbers of a half type, as a cross entropy in that type makes them, and the type.

    Limits of a half type allow its rounding of a loss, which has no rounding of its own elsewhere."""
    ours, theirs = map(_half_type, losses)
    if (ours is None) == (theirs is None):
        return None
    return (Side.REFERENCE, ours) if ours is not None else (Side.CANDIDATE, str(theirs))


def _half_type(losses: Array) -> str | None:
    known = losses[(losses != 0) & np.isfinite(losses)].astype(np.float32)
    if known.size < FEWEST_OF_TYPE:
        return None
    if not (known.view(np.uint32) & 0xFFFF).any():
        return "bfloat16"
    with np.errstate(over="ignore"):
        return "float16" if np.array_equal(known.astype(np.float16), known) else None


def by_document(losses: Losses, batches: Sequence[Batch], limit: float) -> Message | None:
    """Say in how many documents token losses differ, and which is first; None unless a side packs the same documents as the other has."""
    known = [documents_of(batch) for batch in batches] if any(batch.documents is not None for batch in batches) else [None, None]
    ours, theirs = known
    if ours is None or theirs is None or not ours.any() or not np.array_equal(starts_of(ours), starts_of(theirs)):
        return None
    here, counted, (left, right) = ours != PADDING, counts(losses), (array.astype(np.float64) for array in losses)
    begins = here & (np.diff(ours, axis=1, prepend=PADDING) != 0)
    of_token = (np.cumsum(begins) - 1)[here.ravel()]
    squares, tokens = (np.bincount(of_token, weights=array[here]) for array in (np.square(right - left), counted))
    size = np.sqrt(np.nansum(np.square(left)) / max(int(counted.sum()), 1))
    wrong = ~(np.sqrt(squares / np.maximum(tokens, 1)) <= limit * size)
    if not wrong.any():
        return None
    row, token = np.argwhere(begins)[np.argmax(wrong)].tolist()
    place = {"document": int(ours[row, token]), "row": row, "token": token}
    return message("token_losses.by_document", count=int(wrong.sum()), all=wrong.size, **place)


def are_most_kept(losses: Losses, batch: Batch) -> bool:
    """Return whether of each row's tokens enough are compared to say that it agrees, and not left out for their other experts."""
    mask, kept = batch.loss_mask, counts(losses).sum(axis=1)
    counted = losses[0].shape[1] if mask is None or mask.shape != losses[0].shape else (mask > 0).sum(axis=1)
    return bool((kept >= MANY * counted).all())


def shift(losses: Losses, limit: float) -> float | None:
    """Return the one number by which every token that counts is off; None where there is none."""
    ours, theirs = (array[counts(losses)].astype(np.float64) for array in losses)
    with np.errstate(invalid="ignore"):
        differences = theirs - ours
    if differences.size < FEWEST or not np.isfinite(differences).all():
        return None
    size, middle, spread = root_mean_square(ours), float(differences.mean()), float(differences.std())
    return middle if abs(middle) > limit * size and spread <= EVEN * abs(middle) else None


def logarithm(number: float, runs: Sequence[Run]) -> tuple[Side, int] | None:
    """Return the side, and its number of tensor-parallel ranks, whose logarithm a shift is; None where none is."""
    for side, run, value in ((Side.CANDIDATE, runs[1], number), (Side.REFERENCE, runs[0], -number)):
        ranks = max((manifest.size("tp") for manifest in run.manifests.values()), default=1)
        if ranks > 1 and abs(value - math.log(ranks)) <= EVEN * math.log(ranks):
            return side, ranks
    return None


def compared(ours: Batch, theirs: Batch, apart: Flags | None = None) -> Losses | None:
    """Return the losses of two batches; None where a batch has none, or has those of other tokens.

    Tokens that a mask leaves out are 0, for frameworks leave anything there, and so are those that ``apart`` says had other experts."""
    reference, candidate = ours.token_losses, theirs.token_losses
    if reference is None or candidate is None or reference.shape != candidate.shape:
        return None
    counted = np.ones(reference.shape, bool)
    for mask in (ours.loss_mask, theirs.loss_mask, None if apart is None else ~apart):
        if mask is not None and mask.shape == reference.shape:
            counted &= mask > 0
    return np.where(counted, reference, 0), np.where(counted, candidate, 0)


def finding(losses: Losses, step: int, limit: float) -> Finding:
    """Return the relative distance, and where losses differ."""
    distance, size, _ = distances(*losses)
    error, subject = ratio(distance, size), message("token_losses.of", step=when(step))
    where, first = (Where.NOWHERE, 0) if error <= limit else positions(losses, limit)
    if where is not Where.NOWHERE:
        position = {"position": first} if where is Where.FROM_ONE_ON else {}
        subject = message(f"token_losses.{where.name.lower()}", what=subject, **position)
    ours, theirs = (message("token_losses.mean", mean=mean) if math.isfinite(mean) else math.nan for mean in means(losses))
    return Finding(subject, ours, theirs, error, limit, step=step, quantity=Metric.TOKEN_LOSSES)


def finding_of_type(half: tuple[Side, str], step: int) -> Finding:
    """Return the difference of the types in which both sides made their losses, from :func:`half_type`."""
    ours, theirs = (half[1] if side is half[0] else message("token_losses.no_half") for side in (Side.REFERENCE, Side.CANDIDATE))
    return Finding(message("token_losses.type", step=when(step)), ours, theirs, step=step, quantity=Metric.TOKEN_LOSSES)


def mean(losses: Losses, step: int, limit: float) -> Finding:
    """Return the difference of the means over the tokens that count: an error of the whole batch shows here first."""
    ours, theirs = means(losses)
    subject = message("token_losses.mean_of", step=when(step))
    return Finding(subject, ours, theirs, relative_difference(ours, theirs), limit, step=step, quantity=Metric.TOKEN_LOSSES)


def means(losses: Losses) -> list[float]:
    """Return each side's mean over the tokens that count."""
    counted = max(int(counts(losses).sum()), 1)
    return [float(array.sum(dtype=np.float64)) / counted for array in losses]


def positions(losses: Losses, limit: float) -> tuple[Where, int]:
    """Return the pattern of positions whose losses exceed ``limit``, relative to a mean loss, and the first of these."""
    wrong = exceeding(losses, limit, axis=0)
    if not wrong.any():
        return Where.NOWHERE, 0
    first, columns = int(np.argmax(wrong)), counts(losses).any(axis=0)
    columns[:first] = False
    if wrong[columns].mean() < MOST or wrong.sum() < FEWEST:
        return Where.HERE_AND_THERE, first
    return {0: Where.EVERYWHERE, 1: Where.AFTER_THE_FIRST}.get(first, Where.FROM_ONE_ON), first


def counts(losses: Losses) -> Flags:
    """Return which tokens count, ``[rows, sequence]``: no cross entropy of a token that does is 0 on both sides."""
    counted: Flags = (losses[0] != 0) | (losses[1] != 0)
    return counted


def exceeding(losses: Losses, limit: float, axis: int) -> Flags:
    """Return which rows (``axis`` 1) or positions (``axis`` 0) differ by more than ``limit`` times a mean loss, or are not finite."""
    ours, theirs = (array.astype(np.float64) for array in losses)
    counted = counts(losses)
    size = np.sqrt(np.nansum(np.square(ours)) / max(int(counted.sum()), 1))
    tokens = np.maximum(counted.sum(axis=axis), 1)
    with np.errstate(invalid="ignore"):
        wrong: Flags = ~(np.sqrt(np.square(theirs - ours).sum(axis=axis) / tokens) <= limit * size)
    return wrong


def behind_boundaries(losses: Losses, batches: Sequence[Batch], limit: float) -> Wrong | None:
    """Return the rows of several documents where exactly the tokens behind their first documents differ, else None."""
    later = next((flags for batch in batches if (flags := behind_first_document(batch)) is not None), None)
    if later is None or later.shape != losses[0].shape or later.all(axis=1).any():
        return None
    ours, theirs = losses
    inside, outside = (exceeding((np.where(flags, ours, 0), np.where(flags, theirs, 0)), limit, axis=1) for flags in (later, ~later))
    rows = later.any(axis=1)
    if outside.any() or not inside.any() or inside[rows].mean() < MOST:
        return None
    return Wrong(AffectedRows.DOCUMENTS, message("wrong_rows.behind_documents", count=int(rows.sum()), all=rows.size))


def behind_first_document(batch: Batch) -> Flags | None:
    """Return which positions are behind the first document of their row, ``[rows, sequence]``; None where no array shows any."""
    flags: list[Flags] = []
    if batch.documents is not None:
        flags.append(batch.documents > 0)
    if batch.position_ids is not None:
        flags.append(np.maximum.accumulate(np.diff(batch.position_ids, axis=1, prepend=-1) <= 0, axis=1))  # positions restart
    if batch.attention_mask is not None and not batch.causal and batch.tokens is not None:
        mask = batch.attention_mask.reshape(-1, *batch.attention_mask.shape[-2:])[:, :, 0]  # hides the row's first token
        flags.append(np.broadcast_to(mask.astype(bool), batch.tokens.shape))
    return next((each for each in flags if each.any()), None)


def pattern(wrong: Flags, batches: Sequence[Batch]) -> Wrong:
    """Return what the wrong rows have in common; ``batches`` are the reference's and the candidate's, whose rows these are."""
    rows = set(np.flatnonzero(wrong).tolist())
    if not 0 < len(rows) < wrong.size:
        return Wrong()
    reference, candidate = map(owners, batches)
    sides = [pair for pair in ((Side.CANDIDATE, candidate), (Side.REFERENCE, reference)) if len(pair[1]) == wrong.size]
    for side, owned in sides:
        ranks, guilty = {rank for _, rank in owned}, {owned[row][1] for row in rows}
        if len(guilty) < len(ranks) and rows == {row for row, (_, rank) in enumerate(owned) if rank in guilty}:
            return Wrong(AffectedRows.RANK, message("wrong_rows.of_rank", side=side, ranks=terms(sorted(guilty))))
    for side, owned in sides:
        parts = {owned[row][0] for row in rows}
        first, last = min(parts), max(part for part, _ in owned)
        if rows != {row for row, (part, _) in enumerate(owned) if part in parts}:
            continue
        if first and parts == set(range(first, last + 1)):
            after_first = message("wrong_rows.after_the_first_micro_batch", side=side)
            after_several = message("wrong_rows.after_micro_batches", side=side, last=first - 1)
            return Wrong(AffectedRows.LATER, after_first if first == 1 else after_several)
        if len(parts) == 1:
            return Wrong(AffectedRows.MICRO_BATCH, message("wrong_rows.of_micro_batch", number=first, side=side))
    return some(wrong)


def some(wrong: Flags) -> Wrong:
    """Return the numbers of the wrong rows without a pattern."""
    rows = np.flatnonzero(wrong)
    id, shown = "wrong_rows.first" if len(rows) > SHOWN else "wrong_rows.some", terms(rows[:SHOWN].tolist())
    return Wrong(AffectedRows.SOME, message(id, rows=shown, count=wrong.size)) if 0 < rows.size < wrong.size else Wrong()


def owners(batch: Batch) -> list[tuple[int, int]]:
    """Return micro-batch and data-parallel rank of every row, in the order micro-batch, rank, row."""
    parts = range(max(map(len, batch.rows), default=0))
    return [(part, rank) for part in parts for rank, sizes in enumerate(batch.rows) if part < len(sizes) for _ in range(sizes[part])]
