"""Find what differing batches have in common: how one side makes its labels, mask or positions from the same tokens.

Several descriptions fit the arrays of one step. Of those that fit all steps that differ the most specific is reported: a mask that leaves
out exactly the tokens of one id says more than a different mask. Where tokens differ too, one side may still cut the same text at other
places."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum
from typing import TypeAlias

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from align_hooks.configuration.pynative import recorded_arguments
from align_hooks.messages import Message, Side, message
from align_hooks.record.format.layout import Array
from align_hooks.record.format.schema import Facts
from align_hooks.record.read.batch import Batch, documents_of

MOST = 0.5
"""Part of the labels that count above which they must be the token so many places on."""
CUT = 4
"""Tokens by which a sample may begin later and still be recognised."""


Made = IntEnum(
    "Made",
    "ID_REPLACED BEGINS_LATER LABELS_NOT_SHIFTED LABELS_SHIFTED_TWICE LABELS_IGNORED LABELS_AFTER_ID LABELS_AT_END LABELS "
    "MASK_HIDES_PADDING MASK_HIDES_DOCUMENTS_END MASK_SCALED MASK_LATER "
    "MASK_HIDES_ID MASK_HIDES_LABEL MASK_HIDES_BEGINNING MASK_HIDES_END MASK_COUNTS_ALL MASK POSITIONS_ANEW_AFTER POSITIONS_ANEW "
    "DOCUMENTS_MEET DOCUMENTS_LATER DOCUMENTS POSITIONS_FROM POSITIONS ATTENTION_OF_ITS_OWN ATTENTION",
)
"""Differences in the making of an array, the most specific first; the name, in small letters, ends a message's id."""


class BatchDifference(Struct, frozen=True):
    """One way to make an array differently."""

    made: Made
    side: Side | None = None
    """The side that does it; None where unknown."""
    number: int | None = None
    """An id, or a count of places; None where there is none."""

    @property
    def words(self) -> Message:
        """Return the difference as a message."""
        known = {"side": self.side, "number": self.number}
        return message(f"batch_difference.{self.made.name.lower()}", **{name: value for name, value in known.items() if value is not None})


class Common(Struct):
    """What all steps with a differing array have in common."""

    ways: dict[str, set[BatchDifference]] = field(default_factory=dict)
    """Array to the ways that fit all its steps."""

    def add(self, name: str, ours: Batch, theirs: Batch) -> None:
        """Add a step at which the array ``name`` is the first to differ."""
        pair = [with_plain(batch) for batch in (ours, theirs)]
        for arrays, batch in zip(pair, (ours, theirs), strict=True):
            if name == "documents" and (known := documents_of(batch)) is not None:
                arrays[name] = known  # of a mask, where the samples are not packed
        fitting = set(WAYS[name](*pair))
        self.ways[name] = self.ways[name] & fitting if name in self.ways else fitting

    def difference(self, name: str, facts: Mapping[Side, Facts]) -> BatchDifference | None:
        """Return the most specific way that fits all steps, with the setting that makes it; None where none does."""
        way = min(self.ways.get(name, ()), key=lambda way: (way.made, way.number or 0), default=None)
        if way is None or way.made is not Made.MASK_HIDES_ID or way.side is None:
            return way
        return replace(way, made=hiding_setting(facts[way.side], way.number))


def with_plain(batch: Batch) -> dict[str, Array]:
    """Return the arrays of a batch with plain loss mask and positions where not recorded; a causal attention mask is left out."""
    arrays = {name: array for name, array in batch.arrays().items() if name != "attention_mask" or not batch.causal}
    if "tokens" in arrays:
        shape = arrays["tokens"].shape
        arrays.setdefault("loss_mask", np.ones(shape, np.float32))
        arrays.setdefault("position_ids", np.broadcast_to(np.arange(shape[1]), shape))
    return arrays


Arrays: TypeAlias = Mapping[str, Array]


def both(ours: Arrays, theirs: Arrays) -> tuple[tuple[Side, Arrays, Arrays], tuple[Side, Arrays, Arrays]]:
    """Return each side with its arrays and the other's."""
    return (Side.REFERENCE, ours, theirs), (Side.CANDIDATE, theirs, ours)


def tokens(ours: Arrays, theirs: Arrays) -> Iterator[BatchDifference]:
    """Yield the ways of samples that are the other side's, cut some tokens later, or with every token of one id replaced."""
    for side, own, other in both(ours, theirs):
        if own["tokens"].shape != other["tokens"].shape:
            return
        wrong = own["tokens"] != other["tokens"]
        of_own, of_other = (only_id(arrays["tokens"][wrong]) for arrays in (own, other))
        if of_own is not None and of_other is not None and not (other["tokens"] == of_own).any():
            yield BatchDifference(Made.ID_REPLACED, side, of_own)
        for places in range(1, min(CUT, own["tokens"].shape[1] // 2) + 1):
            if np.array_equal(own["tokens"][:, :-places], other["tokens"][:, places:]):
                yield BatchDifference(Made.BEGINS_LATER, side, places)


def labels(ours: Arrays, theirs: Arrays) -> Iterator[BatchDifference]:
    """Yield the ways of labels: not the next token, ignored on one side only, or different at certain places only."""
    yield BatchDifference(Made.LABELS)
    if not ("tokens" in ours and "tokens" in theirs):
        return
    ids, counts = ours["tokens"], ours["loss_mask"] > 0
    if not ids.shape == ours["labels"].shape == theirs["labels"].shape == counts.shape:
        return
    wrong = (ours["labels"] != theirs["labels"]) & counts
    shifts = [shift_of(arrays, counts) for arrays in (ours, theirs)]
    for (side, own, other), shift in zip(both(ours, theirs), shifts, strict=True):
        if shift in SHIFTED and shifts[0] != shifts[1]:
            yield BatchDifference(SHIFTED[shift], side)
        if (own["labels"][wrong] < 0).all() and (other["labels"][wrong] >= 0).all():
            yield BatchDifference(Made.LABELS_IGNORED, side)
    if (only := only_id(ids[wrong])) is not None:
        yield BatchDifference(Made.LABELS_AFTER_ID, number=only)
    if not wrong[:, :-1].any():
        yield BatchDifference(Made.LABELS_AT_END)


SHIFTED = {0: Made.LABELS_NOT_SHIFTED, 2: Made.LABELS_SHIFTED_TWICE}
"""Places by which labels are shifted against their tokens, other than 1."""


def shift_of(arrays: Arrays, counts: Array) -> int | None:
    """Return by how many places labels that count are shifted against the tokens, 0, 1 or 2; None where most fit none of these."""
    ids, given = arrays["tokens"], arrays["labels"]
    for shift in (1, 0, 2):
        length = max(ids.shape[1] - shift, 0)
        counted = counts[:, :length]
        fits = (given[:, :length] == ids[:, shift:]) & counted
        if fits.sum() > MOST * counted.sum():
            return shift
    return None


def masks(ours: Arrays, theirs: Arrays) -> Iterator[BatchDifference]:
    """Yield the ways of a mask: scaled, shifted, or leaving out what the other counts."""
    yield BatchDifference(Made.MASK)
    if not ours["loss_mask"].shape == theirs["loss_mask"].shape == ours.get("tokens", ours["loss_mask"]).shape:
        return
    wrong = ours["loss_mask"] != theirs["loss_mask"]
    if np.array_equal(ours["loss_mask"] > 0, theirs["loss_mask"] > 0):
        yield BatchDifference(Made.MASK_SCALED)
    for side, own, other in both(ours, theirs):
        mask = own["loss_mask"]
        if np.array_equal(mask[:, 1:], other["loss_mask"][:, :-1]):
            yield BatchDifference(Made.MASK_LATER, side, 1)
        if (mask > 0).all():
            yield BatchDifference(Made.MASK_COUNTS_ALL, side)
        if (mask[wrong] == 0).all():
            yield from hidden(side, own, wrong)


def hidden(side: Side, own: Arrays, wrong: Array) -> Iterator[BatchDifference]:
    """Yield what a side's mask leaves out where it is ``wrong``: one id, or the beginning or the end of samples."""
    off = own["loss_mask"] == 0
    for made, name in ((Made.MASK_HIDES_ID, "tokens"), (Made.MASK_HIDES_LABEL, "labels")):
        only = only_id(own[name][wrong]) if name in own and own[name].shape == wrong.shape else None
        if only is not None and off[own[name] == only].all():
            yield BatchDifference(made, side, only)
    if np.logical_and.accumulate(off, axis=1)[wrong].all():
        yield BatchDifference(Made.MASK_HIDES_BEGINNING, side)
    if np.logical_and.accumulate(off[:, ::-1], axis=1)[:, ::-1][wrong].all():
        yield BatchDifference(Made.MASK_HIDES_END, side)


def positions(ours: Arrays, theirs: Arrays) -> Iterator[BatchDifference]:
    """Yield the ways of positions: restarted within a sample, perhaps after one id, or begun elsewhere."""
    yield BatchDifference(Made.POSITIONS)
    if ours["position_ids"].shape != theirs["position_ids"].shape:
        return
    shift = theirs["position_ids"] - ours["position_ids"]
    if shift.size and (shift == shift.flat[0]).all():
        yield BatchDifference(Made.POSITIONS_FROM, Side.CANDIDATE, int(shift.flat[0]))
    for side, own, other in both(ours, theirs):
        if starts(own).any() and not starts(other).any():
            yield BatchDifference(Made.POSITIONS_ANEW, side)
            if "tokens" in own and (after := only_id(own["tokens"][:, :-1][starts(own)])) is not None:
                yield BatchDifference(Made.POSITIONS_ANEW_AFTER, side, after)


def starts(arrays: Arrays) -> Array:
    """Return where positions go back, from the second place of each sample on, ``[rows, sequence - 1]``."""
    return np.asarray(np.diff(arrays["position_ids"].astype(np.int64), axis=1) <= 0)


def documents(ours: Arrays, theirs: Arrays) -> Iterator[BatchDifference]:
    """Yield the ways of documents: one side's are its rows, or begin some places later."""
    yield BatchDifference(Made.DOCUMENTS)
    for side, own, other in both(ours, theirs):
        begins, before = (np.diff(arrays["documents"], axis=1) > 0 for arrays in (own, other))
        if not begins.any():
            yield BatchDifference(Made.DOCUMENTS_MEET, side)
        for places in range(1, min(CUT, begins.shape[1]) + 1 if begins.any() else 1):
            if np.array_equal(begins, np.pad(before, ((0, 0), (places, 0)))[:, :-places]):
                yield BatchDifference(Made.DOCUMENTS_LATER, side, places)


def attention(ours: Arrays, theirs: Arrays) -> Iterator[BatchDifference]:
    """Yield the ways of an attention mask: its own on one side, such as one that separates documents."""
    yield BatchDifference(Made.ATTENTION)
    for side, own, other in both(ours, theirs):
        if "attention_mask" in own and "attention_mask" not in other:
            yield BatchDifference(Made.ATTENTION_OF_ITS_OWN, side)


WAYS: dict[str, Callable[[Arrays, Arrays], Iterator[BatchDifference]]] = {
    "tokens": tokens,
    "labels": labels,
    "loss_mask": masks,
    "documents": documents,
    "position_ids": positions,
    "attention_mask": attention,
}
"""Array to the function that finds its ways, the arrays in the order in which they are made: the first that differs is reported."""
ARRAYS = tuple(WAYS)


def only_id(ids: Array) -> int | None:
    """Return the only id among some; None where there are others, or none."""
    return int(ids.flat[0]) if ids.size and (ids == ids.flat[0]).all() else None


PAD_TOKEN_ID, PADDING = "model.model_config.pad_token_id", 0
"""MindFormers' setting of the id whose tokens do not count, and its default (``llama_config.py:146``, ``transformer_config.py:2020``)."""


def hiding_setting(run: Facts, number: int | None) -> Made:
    """Return how a run's mask leaves out the id ``number``, by its setting where one is known."""
    arguments = recorded_arguments(run.arguments)
    # MindFormers 1.9: LlamaForCausalLM.construct and PreprocessLabelsAndMasks, where the data set has no column loss_mask
    if run.side == "ms":
        padding = str(arguments.get(PAD_TOKEN_ID))
        return Made.MASK_HIDES_PADDING if str(number) == (str(PADDING) if padding == "None" else padding) else Made.MASK_HIDES_ID
    # Megatron-LM 0.19, gpt_dataset.py:807: the token that ends a document
    ends = run.side == "torch" and str(arguments.get("eod_mask_loss")) == "True"
    return Made.MASK_HIDES_DOCUMENTS_END if ends else Made.MASK_HIDES_ID
