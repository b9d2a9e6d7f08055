"""The inputs of a recorded step: its weights, its batch, and the objective that it differentiates.

The language model's part is the mean over all tokens that count, or over micro-batches and data-parallel ranks of their means. Each
predicting layer has the tokens one place further on (Megatron-LM, ``process_mtp_loss``). The term that balances experts is of a
micro-batch's routers (``switch_load_balancing_loss_func``). Settings that no ``config.json`` has are read from the run's arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, chain
from typing import Any

import numpy as np
from msgspec import Struct

from align_hooks.comparison.settings import arguments
from align_hooks.errors import RecordError
from align_hooks.messages import Message, rendered
from align_hooks.quantities.routing import ROUTING
from align_hooks.quantities.weights import UNKNOWN
from align_hooks.record.check.gaps import why_not_replayed
from align_hooks.record.format.documents import mask_of, starts_of
from align_hooks.record.format.layout import Array
from align_hooks.record.format.schema import Facts, Table
from align_hooks.record.read.batch import Batch, documents_of, sizes_of
from align_hooks.record.read.tensors import Tensors
from align_hooks.record.reader import Run
from align_hooks.settings import PREFIX


class Objective(Struct, frozen=True):
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
    logits_shares: tuple[float, ...] | None = None
    """Its derivative by the z-loss of each piece, coefficient included; None without that term."""
    unknown: Message | None = None
    """A further term, of unknown form, because of which gradients are not judged; None without it."""

    def same(self, other: Objective) -> bool:
        """Return whether another objective is the same, whatever micro-batches make it up."""
        ours, theirs = (self.tokens, *self.predicted), (other.tokens, *other.predicted)
        if len(ours) != len(theirs) or not all(np.allclose(*pair, rtol=1e-12, atol=0) for pair in zip(ours, theirs, strict=True)):
            return False
        if (self.shares, self.logits_shares) != (other.shares, other.logits_shares):
            return False
        whole = self.shares is None or self.by_sequence
        return self.pieces == other.pieces or (whole and self.logits_shares is None)


def objective(facts: Facts, batch: Batch) -> Objective:
    """Return the objective of a run with these facts on a batch that has tokens."""
    assert batch.tokens is not None
    mask = np.ones(batch.tokens.shape) if batch.loss_mask is None else batch.loss_mask.astype(np.float64)
    pieces, per_token = pieces_of(batch.rows), bool(facts.training.per_token_loss)
    tokens = mask / max(mask.sum(), 1) if per_token else by_pieces(mask, pieces)
    predicted, factor = [], arguments.prediction_loss(facts) if arguments.predicts(facts) else 0.0
    layers = size(facts.model, "num_nextn_predict_layers")
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
    of_logits = arguments.logits_loss(facts) if arguments.has_experts(facts) else 0.0
    shares, logits_shares = (
        tuple(term / len(pieces) for _ in pieces) if isinstance(term, float) and term else None for term in (weight, of_logits)
    )
    by_sequence, further = kind == arguments.BY_SEQUENCE, arguments.unknown_term(facts)
    return Objective(tokens, tuple(predicted), pieces, shares, by_sequence, logits_shares, further)


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


HALF = ("bfloat16", "float16")
"""Compute types to which weights are rounded before use."""
LONGEST = 1 << 16
"""Positions of the longest sequence for which a mask is made."""
KNOWN = ("llama", "qwen2", "qwen3", "qwen3_moe", "deepseek_v3", "glm4_moe", "gpt_oss")
"""Hugging Face's ``model_type`` of the models whose layers :mod:`.points` knows."""


class Inputs(Struct, frozen=True):
    """A step's weights, batch and objective."""

    facts: Facts
    """The run's own facts."""
    weights: Tensors
    batch: Batch
    objective: Objective
    choices: Mapping[str, Array] | None = None
    """Router name to the experts of each token; None where not on record."""

    @property
    def compute_type(self) -> str:
        """The type in which the run computes; fp32 where its record does not say."""
        return self.facts.training.compute_type or "float32"

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and positions of the batch."""
        assert self.batch.tokens is not None
        return self.batch.tokens.shape[0], self.batch.tokens.shape[1]

    def hidden(self, row: int) -> Array:
        """Return the positions that each position of ``row`` may not attend to, bool ``[1, 1, sequence, sequence]``."""
        mask, documents, sequence = self.batch.attention_mask, self.batch.documents, self.shape[1]
        if documents is not None:
            return mask_of(documents[row : row + 1])
        if mask is None:
            return ~np.tri(sequence, dtype=bool)[None, None]
        return mask[row : row + 1] if len(mask) > 1 else mask

    def positions(self) -> Array:
        """Return the positions by which queries and keys are rotated, ``[1 or rows, sequence]``: those in documents of packed samples."""
        of_row, documents = np.arange(self.shape[1])[None], self.batch.documents
        return of_row if documents is None else of_row - np.maximum(starts_of(documents), 0)

    def rounded(self, name: str) -> str | None:
        """Return the type to which the run rounds a weight before use; None where it computes with the recorded weight."""
        if self.compute_type not in HALF or name.endswith("e_score_correction_bias"):
            return None
        # Megatron-LM keeps all of a model in its half type; MindFormers casts the factors of products only, so no norms
        casts = self.facts.side != "ms" or len(self.weights.shape(name)) > 1
        return self.compute_type if casts else None


def steps_of(run: Run) -> list[int]:
    """Return the steps whose weights and batch are recorded."""
    return sorted(set(run.weight_steps()) & set(run.batch_steps()))


def inputs(run: Run, step: int, judged_by: Facts) -> Inputs:
    """Return the inputs of a run's ``step``, with the objective by ``judged_by``; raises RecordError where none can compute it again."""
    if (products := run.facts.training.products) is not None and products.format:
        raise RecordError(f"{run.path} multiplies matrices in {products}, which no third implementation does; arbitrate a run without")
    for kind, there in (("weights", run.weight_steps()), ("batches", run.batch_steps())):
        if step not in there:
            raise RecordError(f"{run.path} has no {kind} of step {step}; record the run with {PREFIX}{kind.upper()}={step}")
    if run.facts.training.draws:
        raise RecordError(f"{run.path}: the model draws random numbers, which nobody can draw again; record the run without dropout")
    if arguments.drops_tokens(run.facts):
        raise RecordError(f"{run.path}: experts drop tokens (moe_expert_capacity_factor), which no third implementation does")
    if reason := why_not_replayed(run, step):
        raise RecordError(f"{run.path}: step {step}: {rendered(reason.words)}")
    batch = run.batch(step)
    if batch.tokens is None or batch.labels is None:
        raise RecordError(f"{run.path}: the batch of step {step} has no tokens or no labels; record every rank")
    if batch.tokens.shape[1] > LONGEST:
        raise RecordError(f"{run.path}: sequences of {batch.tokens.shape[1]} positions are longer than any that is judged, {LONGEST}")
    weights = run.weights(step)
    refuse_unknown(judged_by.model, weights)
    refuse_odd(batch, judged_by, str(run.path))
    choices = run.routing(step) if step in run.steps_of(ROUTING.name) else None
    return Inputs(run.facts, weights, batch, objective(judged_by, batch), choices)


def refuse_unknown(configuration: Table, weights: Tensors) -> None:
    """Raise RecordError, before the model is built, for an unknown family and for other numbers of layers than the weights have."""
    kind = configuration.get("model_type")
    if kind not in KNOWN:
        raise RecordError(f"{kind or 'a model without a family'} is not judged; the models that are: {', '.join(KNOWN)}")
    if UNKNOWN in configuration:
        raise RecordError(f"the record does not tell {configuration[UNKNOWN]} of its model, which cannot be built without; record it again")
    experts = max(size(configuration, key) for key in ("num_experts", "num_local_experts", "n_routed_experts"))
    layers = size(configuration, "num_hidden_layers") + size(configuration, "num_nextn_predict_layers")
    there = {name.split(".")[2] for name in weights if name.startswith("model.layers.")}
    if layers != len(there) or experts > len(weights):
        raise RecordError(f"the record's config.json is of {layers} layers and {experts} experts, and its weights are of others")


def refuse_odd(batch: Batch, facts: Facts, where: str) -> None:
    """Raise RecordError where arrays of a batch differ in shape, or hold ids outside the vocabulary."""
    assert batch.tokens is not None
    assert batch.labels is not None
    vocabulary, shape = max(size(facts.model, "vocab_size"), facts.padded_vocabulary or 0), batch.tokens.shape
    mask = np.ones(shape) if batch.loss_mask is None else batch.loss_mask
    if batch.labels.shape != shape or mask.shape != shape or sum(map(sum, batch.rows)) != len(batch.tokens):
        raise RecordError(f"{where}: tokens, labels and loss mask of the batch have different shapes; record the step again")
    counted = batch.labels[mask > 0]
    for name, ids in (("tokens", batch.tokens), ("labels", counted)):
        if ids.size and (ids.min() < 0 or ids.max() >= vocabulary):
            raise RecordError(f"{where}: {name} of the batch are no ids of a vocabulary of {vocabulary}")


def size(configuration: Mapping[str, object], key: str) -> int:
    """Return a size in a ``config.json``, 0 where it has none."""
    value = configuration.get(key)
    return value if isinstance(value, int) else 0


def visible(batch: Batch) -> Array | None:
    """Return the documents of a batch, or the attention mask that separates none."""
    documents = documents_of(batch)
    return batch.attention_mask if documents is None else documents


def alike(ours: Inputs, theirs: Inputs) -> bool:
    """Return whether two steps have the same weights, rounding, batch, packing and choices of experts, to the bit."""
    if (ours.batch.documents is None) is not (theirs.batch.documents is None):
        return False
    if not ours.objective.same(theirs.objective) or set(ours.weights) != set(theirs.weights) or ours.compute_type != theirs.compute_type:
        return False
    pairs: list[tuple[Any, Any]] = [(getattr(ours.batch, name), getattr(theirs.batch, name)) for name in ("tokens", "labels", "loss_mask")]
    masks = (visible(each.batch) for each in (ours, theirs))
    chosen, other = ours.choices or {}, theirs.choices or {}
    if set(chosen) != set(other) or any(ours.rounded(name) != theirs.rounded(name) for name in ours.weights):
        return False
    pairs += [(next(masks), next(masks)), *((chosen[name], other[name]) for name in chosen)]
    of_weights = ((ours.weights[name], theirs.weights[name]) for name in ours.weights)
    return all(np.array_equal(*pair) for pair in chain(pairs, of_weights))  # two missing arrays are equal too
