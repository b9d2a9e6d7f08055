"""Checks of a step's batch and scalars: equal batches, equal numbers on all ranks, and a loss that follows from its tokens."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from align_hooks.errors import RecordError
from align_hooks.record.check.contradictions import Contradiction, ContradictionKind, Statement, Weighing, Witness
from align_hooks.record.check.tolerances import MEAN, SAME, WEIGHT, relative_distance
from align_hooks.record.format import layout
from align_hooks.record.format.layout import Array
from align_hooks.record.format.rows import RankRow
from align_hooks.record.read.batch import Batch, read_batch, sizes_of
from align_hooks.record.read.loss_weights import counts_agree
from align_hooks.record.read.rank_rows import KNOWN, SKIPPED, SPREADS
from align_hooks.record.read.run_rows import RunRows

EQUAL = {"grad_norm": ContradictionKind.GRAD_NORM, "loss_scale": ContradictionKind.LOSS_SCALE, "skipped": ContradictionKind.SKIPPED}
"""Numbers of a step that are equal on every rank."""


def unequal_batches(run: RunRows, step: int) -> Iterator[Contradiction]:
    """Yield arrays of the batch that differ between ranks of one data- and context-parallel place, by their digests."""
    seen: dict[tuple[int, int, str], tuple[int, str]] = {}
    for rank, fed in run.batch_descriptions(step).items():
        place = run.manifests[rank].place
        digests = {name: stored.sha256 for name, stored in fed.arrays.items() if name in layout.INPUTS}
        digests |= {"attention_mask": "causal"} if fed.attention_mask == "causal" else {}
        for name, digest in digests.items():
            key = (0, 0, name) if fed.joined_first and fed.joined_first.whole else (place.get("dp", rank), place.get("cp", 0), name)
            first, expected = seen.setdefault(key, (rank, digest))
            if digest != expected:
                arrays = Statement(Witness.ARRAY, rank=first), Statement(Witness.OTHER_ARRAY, rank=rank)
                yield Contradiction(step, ContradictionKind.BATCH, *arrays, name=name, rank=rank, place=key[0])


def unequal_numbers(rows: Mapping[int, RankRow], step: int) -> Iterator[Contradiction]:
    """Yield the numbers of :data:`EQUAL` that differ between ranks, with the first rank that differs."""
    first, reference = next(iter(rows.items()))
    for key, kind in EQUAL.items():
        for rank, row in rows.items():
            expected, value = getattr(reference, key), getattr(row, key)
            if expected is not None and value is not None and relative_distance(float(expected), float(value)) > SAME:
                yield Contradiction(step, kind, Statement(Witness.RANK, expected, first), Statement(Witness.RANK, value, rank), rank=rank)
                break


def suspects(run: RunRows) -> list[int]:
    """Return the steps where :func:`unequal_numbers` or :func:`other_weights` may find anything, by columns."""
    columns = run.columns(run.steps)
    suspect = np.zeros(len(run.steps), bool)
    first, *others = columns.values()
    for of_rank in columns.values():
        suspect |= of_rank["kept"]
    for of_rank in others:
        for key in ("grad_norm", "loss_scale"):
            suspect |= _may_differ(first[key], of_rank[key])
        known = first["flags"] & of_rank["flags"] & KNOWN
        suspect |= (known > 0) & ((first["flags"] ^ of_rank["flags"]) & SKIPPED > 0)
    names = SPREADS[:2] if run.facts.training.per_token_loss else SPREADS[2:]
    least, most = (np.array([of_rank[name] for of_rank in columns.values()]) for name in names)
    lowest, highest = np.fmin.reduce(least), np.fmax.reduce(most)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        alike = np.isnan(highest) | ((lowest > 0) & np.isfinite(highest) & (highest / lowest - 1 <= WEIGHT / 2))
    return [run.steps[index] for index in np.flatnonzero(suspect | ~alike).tolist()]


def _may_differ(ours: Array, theirs: Array) -> Array:
    """Return where two numbers, both known, differ by more than half of the limit."""
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.abs(ours - theirs) > SAME / 2 * np.maximum(np.abs(ours), np.abs(theirs))
    return np.asarray(apart & ~np.isnan(ours) & ~np.isnan(theirs))


def other_means(run: RunRows, step: int) -> Iterator[Contradiction]:
    """Yield a contradiction where a step's loss is not the mean of its tokens' losses under the mask.

    Then the script weighs tokens otherwise, or adds a term that belongs to no token.
    """
    row, batch = run.row(step), _batch(run, step, "token_losses", "loss_mask")
    losses, mask = (None, None) if batch is None else (batch.token_losses, batch.loss_mask)
    loss = None if row is None else row.loss
    if row is None or batch is None or loss is None or not math.isfinite(loss):
        return
    if losses is None or mask is None or mask.shape != losses.shape:
        return
    weights = mask.astype(np.float64)
    weighted = np.where(weights > 0, losses, 0) * weights  # the loss of a token that does not count is arbitrary
    if row.valid_tokens is None:
        # a loss without a count is a mean of micro-batches' means; the divisors of context-parallel ranks are unknown
        means = [] if batch.slices else [_mean_of_micro_batches(weighted, weights, batch)]
    else:
        # Megatron counts a mask's weights in whole tokens
        means = [float(weighted.sum()) / float(count) for count in (weights.sum(), row.valid_tokens) if count]
    if means and all(relative_distance(mean, loss) > MEAN for mean in means):
        yield Contradiction(step, ContradictionKind.LOSS, Statement(Witness.RUN, loss), Statement(Witness.TOKEN_LOSSES, means[0]))


def _batch(run: RunRows, step: int, *names: str) -> Batch | None:
    """Return a step's batch; None where it cannot be read, which the reading of the batch reports."""
    try:
        return read_batch(run, step, names)
    except RecordError:
        return None


def _mean_of_micro_batches(weighted: Array, weights: Array, batch: Batch) -> float:
    """Return the mean over micro-batches of all data-parallel ranks of the mean over the tokens of each."""
    cuts = np.cumsum(sizes_of(batch.rows))[:-1]
    means = [float(of.sum()) / max(float(by.sum()), 1.0) for of, by in zip(np.split(weighted, cuts), np.split(weights, cuts), strict=True)]
    return sum(means) / len(means)


def other_counts(run: RunRows, step: int) -> Iterator[Contradiction]:
    """Yield a contradiction where a step's loss function counted other tokens than those of its mask.

    Then the loss function divides by another number, or another array was recorded for the mask.
    """
    row, batch = run.row(step), _batch(run, step, "loss_mask")
    count = None if row is None else row.valid_tokens
    if count is None or batch is None or batch.loss_mask is None or counts_agree(batch, count):
        return
    total = float(batch.loss_mask.sum(dtype=np.float64))
    yield Contradiction(step, ContradictionKind.COUNT, Statement(Witness.LOSS_FUNCTION, count), Statement(Witness.MASK, total))


def other_weights(run: RunRows, rows: Mapping[int, RankRow], step: int) -> Iterator[Contradiction]:
    """Yield a contradiction where the differentiated objective weighs tokens otherwise than the run's settings.

    A micro-batch's share of the objective over its sum of losses is the weight of each of its tokens: one weight for
    all with a per-token loss, one over the micro-batch's number of tokens without.
    """
    shares = [share for row in rows.values() for share in row.micro_batches]
    known = [
        (objective / loss, tokens)
        for loss, tokens, objective in shares
        if loss and tokens and objective is not None and math.isfinite(loss)
    ]
    by_count, by_micro_batch = _spread([weight for weight, _ in known]), _spread([weight * tokens for weight, tokens in known])
    per_token = bool(run.facts.training.per_token_loss)
    if (by_count if per_token else by_micro_batch) > WEIGHT:
        seen = Weighing.BY_MICRO_BATCH if by_micro_batch <= WEIGHT else Weighing.ALIKE if by_count <= WEIGHT else Weighing.NEITHER
        asked = Statement(Witness.SETTINGS, Weighing.ALIKE if per_token else Weighing.BY_MICRO_BATCH)
        yield Contradiction(step, ContradictionKind.WEIGHTS_OF_TOKENS, asked, Statement(Witness.DERIVATIVE, seen))


def _spread(values: Sequence[float]) -> float:
    """Return the relative distance of the extremes; infinite for a weight that is negative, 0 or not a number."""
    if not all(math.isfinite(value) and value > 0 for value in values):
        return math.inf
    return max(values) / min(values) - 1 if values else 0.0
