"""What a step differentiates, from its record: the derivative of the objective by each token's loss, and its other terms.

The language model's part is the mean over all tokens that count, or the mean over micro-batches and data-parallel ranks of their means. The
parts of predicting layers have the tokens one further on each (Megatron-LM, ``process_mtp_loss``). What balances experts is of a piece's
routers (``switch_load_balancing_loss_func``). Settings that ``config.json`` has no place for are read from the run's arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from align_hooks.comparison.settings.arguments import (
    balancing,
    coefficient,
    has_experts,
    logits_loss,
    of_mindformers,
    prediction_loss,
    predicts,
)
from align_hooks.messages import Message, message
from align_hooks.record.format.layout import Array
from align_hooks.record.format.schema import Facts
from align_hooks.record.read.batch import Batch, sizes_of

WHOLE, SEQUENCE = "aux_loss", "seq_aux_loss"
"""The ways of balancing whose terms are known here: over the rows of a piece, and over each sequence."""


@dataclass(frozen=True, slots=True)
class Objective:
    """What is differentiated. ``tokens`` is the derivative by each token's loss, fp64 ``[rows, sequence]``, ``predicted`` that by each
    token's loss of each predicting layer. ``pieces`` are the rows of a micro-batch on a data-parallel rank, and ``shares`` the derivative
    by each piece's term that balances experts, coefficient included; None where there is none. With ``by_sequence`` that term is a mean
    over sequences. ``unknown`` says what is differentiated besides, of which nothing is known here: then gradients are not judged."""

    tokens: Array
    predicted: tuple[Array, ...] = ()
    pieces: tuple[slice, ...] = ()
    shares: tuple[float, ...] | None = None
    by_sequence: bool = False
    unknown: Message | None = None

    def same(self, other: Objective) -> bool:
        """Whether another objective is the same, whatever micro-batches it is put together from."""
        ours, theirs = (self.tokens, *self.predicted), (other.tokens, *other.predicted)
        if len(ours) != len(theirs) or not all(np.allclose(*pair, rtol=1e-12, atol=0) for pair in zip(ours, theirs, strict=True)):
            return False
        alike = self.shares == other.shares and (self.pieces == other.pieces or self.by_sequence)
        return (self.shares is None and other.shares is None) or alike


def objective(facts: Facts, batch: Batch) -> Objective:
    """What a run of these facts differentiates of a batch that has tokens."""
    assert batch.tokens is not None
    mask = np.ones(batch.tokens.shape) if batch.loss_mask is None else batch.loss_mask.astype(np.float64)
    pieces, per_token = pieces_of(batch.rows), bool(facts.training.per_token_loss)
    tokens = mask / max(mask.sum(), 1) if per_token else by_pieces(mask, pieces)
    predicted, factor = [], prediction_loss(facts) if predicts(facts) else 0.0
    layers = facts.model.get("num_nextn_predict_layers")
    layers = layers if isinstance(layers, int) else 0
    for layer in range(layers if isinstance(factor, float) else 0):
        rolled = moved(mask, layer + 1)
        derivative = by_pieces(rolled, pieces)
        if per_token:
            alike = of_mindformers(facts)  # which divides by all tokens, those without one to predict too
            derivative = rolled / max(mask.sum(), 1) if alike else by_pieces(rolled, pieces, [mask[piece].sum() for piece in pieces])
        predicted.append(factor / layers * derivative)  # type: ignore[operator]
    weight, kind = (coefficient(facts), balancing(facts)) if has_experts(facts) else (0.0, None)
    shares = None
    if isinstance(weight, float) and weight:
        shares = tuple(weight / len(pieces) for _ in pieces)
    return Objective(tokens, tuple(predicted), pieces, shares, kind == SEQUENCE, unknown(facts, factor, weight, kind))


def unknown(facts: Facts, factor: object, weight: object, kind: object) -> Message | None:
    """What of the objective is not known here, None where all of it is."""
    if not isinstance(factor, float):
        return message("arbitrate.unknown_prediction")
    if has_experts(facts) and not isinstance(weight, float):
        return message("arbitrate.unknown_balance", kind=str(kind))
    if has_experts(facts) and weight and (kind not in (WHOLE, SEQUENCE) or facts.training.per_token_loss):
        return message("arbitrate.unknown_balance", kind=str(kind))
    if has_experts(facts) and logits_loss(facts) != 0.0:
        return message("arbitrate.unknown_logits_loss")
    return None


def pieces_of(rows: Sequence[tuple[int, ...]]) -> tuple[slice, ...]:
    """The rows of each micro-batch on each data-parallel rank, in the order of a batch; ``rows`` counts them, a rank at a time."""
    sizes = sizes_of(rows)
    return tuple(slice(stop - size, stop) for size, stop in zip(sizes, accumulate(sizes), strict=True))


def by_pieces(mask: Array, pieces: Sequence[slice], sizes: Sequence[float] | None = None) -> Array:
    """The derivative of the mean over pieces of their means, by each token's loss; with ``sizes`` of the mean over all tokens, where each
    piece counts as many tokens as that."""
    derivative = np.zeros(mask.shape)
    for index, piece in enumerate(pieces):
        weight = 1 / len(pieces) if sizes is None else sizes[index] / max(sum(sizes), 1)
        derivative[piece] = weight * mask[piece] / max(mask[piece].sum(), 1)
    return derivative


def moved(array: Array, places: int) -> Array:
    """Each row so many places on; at its end there is nothing, which is 0 and counts nowhere."""
    rolled = np.zeros_like(array)
    rolled[:, : array.shape[1] - places] = array[:, places:]
    return rolled
