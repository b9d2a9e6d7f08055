"""The objective that a step differentiates, from its record: its derivative by each token's loss, and its other terms.

The language model's part is the mean over all tokens that count, or over micro-batches and data-parallel ranks of their means. Each
predicting layer has the tokens one place further on (Megatron-LM, ``process_mtp_loss``). The term that balances experts is of a
micro-batch's routers (``switch_load_balancing_loss_func``). Settings that no ``config.json`` has are read from the run's arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from align_hooks.comparison.settings import arguments
from align_hooks.messages import Message, message
from align_hooks.record.format.layout import Array
from align_hooks.record.format.schema import Facts
from align_hooks.record.read.batch import Batch, sizes_of

WHOLE, SEQUENCE = "aux_loss", "seq_aux_loss"
"""Known ways of balancing: over the rows of a piece, and over each sequence."""


@dataclass(frozen=True, slots=True)
class Objective:
    """The function of token losses and router logits that a step differentiates."""

    tokens: Array
    """Its derivative by each token's loss, fp64 ``[rows, sequence]``."""
    predicted: tuple[Array, ...] = ()
    """Its derivative by each token's loss of each predicting layer."""
    pieces: tuple[slice, ...] = ()
    """The rows of each micro-batch on each data-parallel rank."""
    shares: tuple[float, ...] | None = None
    """Its derivative by the balancing term of each piece, coefficient included; None without the term."""
    by_sequence: bool = False
    """Whether the balancing term is a mean over sequences."""
    unknown: Message | None = None
    """A further term, of unknown form, because of which gradients are not judged; None without it."""

    def same(self, other: Objective) -> bool:
        """Return whether another objective is the same, whatever micro-batches make it up."""
        ours, theirs = (self.tokens, *self.predicted), (other.tokens, *other.predicted)
        if len(ours) != len(theirs) or not all(np.allclose(*pair, rtol=1e-12, atol=0) for pair in zip(ours, theirs, strict=True)):
            return False
        return self.shares == other.shares and (self.shares is None or self.pieces == other.pieces or self.by_sequence)


def objective(facts: Facts, batch: Batch) -> Objective:
    """Return the objective of a run with these facts on a batch that has tokens."""
    assert batch.tokens is not None
    mask = np.ones(batch.tokens.shape) if batch.loss_mask is None else batch.loss_mask.astype(np.float64)
    pieces, per_token = pieces_of(batch.rows), bool(facts.training.per_token_loss)
    tokens = mask / max(mask.sum(), 1) if per_token else by_pieces(mask, pieces)
    predicted, factor = [], arguments.prediction_loss(facts) if arguments.predicts(facts) else 0.0
    layers = facts.model.get("num_nextn_predict_layers")
    layers = layers if isinstance(layers, int) else 0
    for layer in range(layers if isinstance(factor, float) else 0):
        rolled = moved(mask, layer + 1)
        if not per_token:
            derivative = by_pieces(rolled, pieces)
        elif arguments.of_mindformers(facts):  # it divides by all tokens, those without one to predict too
            derivative = rolled / max(mask.sum(), 1)
        else:
            derivative = by_pieces(rolled, pieces, [mask[piece].sum() for piece in pieces])
        predicted.append(factor / layers * derivative)  # type: ignore[operator]
    weight, kind = (arguments.coefficient(facts), arguments.balancing(facts)) if arguments.has_experts(facts) else (0.0, None)
    shares = tuple(weight / len(pieces) for _ in pieces) if isinstance(weight, float) and weight else None
    return Objective(tokens, tuple(predicted), pieces, shares, kind == SEQUENCE, unknown(facts, factor, weight, kind))


def unknown(facts: Facts, factor: object, weight: object, kind: object) -> Message | None:
    """Return the part of the objective that is not known here; None where all parts are."""
    if not isinstance(factor, float):
        return message("arbitrate.unknown_prediction")
    if not arguments.has_experts(facts):
        return None
    if not isinstance(weight, float) or (weight and (kind not in (WHOLE, SEQUENCE) or facts.training.per_token_loss)):
        return message("arbitrate.unknown_balance", kind=str(kind))
    return message("arbitrate.unknown_logits_loss") if arguments.logits_loss(facts) != 0.0 else None


def pieces_of(rows: Sequence[tuple[int, ...]]) -> tuple[slice, ...]:
    """Return the rows of each micro-batch on each data-parallel rank, in the order of a batch, from their numbers by rank."""
    sizes = sizes_of(rows)
    return tuple(slice(stop - size, stop) for size, stop in zip(sizes, accumulate(sizes), strict=True))


def by_pieces(mask: Array, pieces: Sequence[slice], sizes: Sequence[float] | None = None) -> Array:
    """Return the derivative, by each token's loss, of the mean of the pieces' means, weighted by ``sizes`` where there are any."""
    derivative = np.zeros(mask.shape)
    for index, piece in enumerate(pieces):
        weight = 1 / len(pieces) if sizes is None else sizes[index] / max(sum(sizes), 1)
        derivative[piece] = weight * mask[piece] / max(mask[piece].sum(), 1)
    return derivative


def moved(array: Array, places: int) -> Array:
    """Return each row shifted by so many places towards its beginning; 0 fills its end."""
    rolled = np.zeros_like(array)
    rolled[:, : array.shape[1] - places] = array[:, places:]
    return rolled
