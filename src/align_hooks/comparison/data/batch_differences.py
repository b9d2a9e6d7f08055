"""Find what differing batches have in common: how one side makes its labels, mask or positions from the same tokens.

Several descriptions fit the arrays of one step. Of those that fit all steps that differ the most specific is reported: a mask that leaves
out exactly the tokens of one id says more than a different mask. Where tokens differ too, one side may still cut the same text at other
places."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TypeAlias

import numpy as np

from align_hooks.messages import Message, Side, message
from align_hooks.record.format.layout import Array
from align_hooks.record.format.schema import Facts
from align_hooks.record.read.batch import Batch

MOST = 0.5
"""Part of the labels that count above which they must be the token so many places on."""
CUT = 4
"""Tokens by which a sample may begin later and still be recognised."""


class Made(Enum):
    """How one side makes an array differently, the most specific first; the value is a message's id."""

    BEGINS_LATER = "made.begins_later"
    LABELS_NOT_SHIFTED = "made.labels_not_shifted"
    LABELS_SHIFTED_TWICE = "made.labels_shifted_twice"
    LABELS_IGNORED = "made.labels_ignored"
    LABELS_AFTER_ID = "made.labels_after_id"
    LABELS_AT_END = "made.labels_at_end"
    LABELS = "made.labels"
    MASK_HIDES_PADDING = "made.mask_hides_padding"
    MASK_HIDES_DOCUMENTS_END = "made.mask_hides_documents_end"
    MASK_SCALED = "made.mask_scaled"
    MASK_LATER = "made.mask_later"
    MASK_HIDES_ID = "made.mask_hides_id"
    MASK_HIDES_LABEL = "made.mask_hides_label"
    MASK_HIDES_BEGINNING = "made.mask_hides_beginning"
    MASK_HIDES_END = "made.mask_hides_end"
    MASK_COUNTS_ALL = "made.mask_counts_all"
    MASK = "made.mask"
    POSITIONS_ANEW_AFTER = "made.positions_anew_after"
    POSITIONS_ANEW = "made.positions_anew"
    POSITIONS_FROM = "made.positions_from"
    POSITIONS = "made.positions"
    ATTENTION_OF_ITS_OWN = "made.attention_of_its_own"
    ATTENTION = "made.attention"


ORDER = {made: place for place, made in enumerate(Made)}
ARRAYS = ("tokens", "labels", "loss_mask", "position_ids", "attention_mask")
"""In the order in which they are made: the first that differs is reported."""


@dataclass(frozen=True, slots=True)
class BatchDifference:
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
        return message(self.made.value, **{name: value for name, value in known.items() if value is not None})


@dataclass(slots=True)
class Common:
    """What all steps with a differing array have in common."""

    ways: dict[str, set[BatchDifference]] = field(default_factory=dict)
    """Array to the ways that fit all its steps."""

    def add(self, name: str, ours: Batch, theirs: Batch) -> None:
        """Add a step at which the array ``name`` is the first to differ."""
        arrays = tuple(with_plain(batch) for batch in (ours, theirs))
        fitting = set(WAYS[name](*arrays) if name != "attention_mask" else attention(ours, theirs))
        self.ways[name] = self.ways[name] & fitting if name in self.ways else fitting

    def difference(self, name: str, facts: Mapping[Side, Facts]) -> BatchDifference | None:
        """Return the most specific way that fits all steps, with the setting that makes it; None where none does."""
        way = min(self.ways.get(name, ()), key=lambda way: (ORDER[way.made], way.number or 0), default=None)
        return None if way is None else by_setting(way, facts)


def with_plain(batch: Batch) -> dict[str, Array]:
    """Return the arrays of a batch; a loss mask and positions that were not recorded are the plain ones."""
    arrays = batch.arrays()
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
    """Yield the way of samples that are the other side's, cut some tokens later."""
    for side, own, other in both(ours, theirs):
        if own["tokens"].shape != other["tokens"].shape:
            return
        for places in range(1, min(CUT, own["tokens"].shape[1] // 2) + 1):
            if np.array_equal(own["tokens"][:, :-places], other["tokens"][:, places:]):
                yield BatchDifference(Made.BEGINS_LATER, side, places)


def labels(ours: Arrays, theirs: Arrays) -> Iterator[BatchDifference]:
    """Yield the ways of labels: not the next token, ignored on one side only, or different at certain places only."""
    yield BatchDifference(Made.LABELS)
    ids, counts = ours["tokens"], ours["loss_mask"] > 0
    if not ids.shape == ours["labels"].shape == theirs["labels"].shape == counts.shape:
        return
    wrong = (ours["labels"] != theirs["labels"]) & counts
    shifts = {side: shift_of(own, counts) for side, own, _ in both(ours, theirs)}
    for side in shifts if len({*shifts.values()}) > 1 else ():
        if shifts[side] == 0:
            yield BatchDifference(Made.LABELS_NOT_SHIFTED, side)
        if shifts[side] == 2:
            yield BatchDifference(Made.LABELS_SHIFTED_TWICE, side)
    for side, own, other in both(ours, theirs):
        if (own["labels"][wrong] < 0).all() and (other["labels"][wrong] >= 0).all():
            yield BatchDifference(Made.LABELS_IGNORED, side)
    if (only := alone(ids[wrong])) is not None:
        yield BatchDifference(Made.LABELS_AFTER_ID, number=only)
    if not wrong[:, :-1].any():
        yield BatchDifference(Made.LABELS_AT_END)


def shift_of(arrays: Arrays, counts: Array) -> int | None:
    """Return by how many places labels that count are shifted against the tokens, 0, 1 or 2; None where most fit none of these."""
    ids, given = arrays["tokens"], arrays["labels"]
    for shift in (1, 0, 2):
        length = ids.shape[1] - shift
        counted = counts[:, :length]
        fits = (given[:, :length] == ids[:, shift:]) & counted
        if length > 0 and counted.any() and fits.sum() > MOST * counted.sum():
            return shift
    return None


def masks(ours: Arrays, theirs: Arrays) -> Iterator[BatchDifference]:
    """Yield the ways of a mask: scaled, shifted, or leaving out what the other counts."""
    yield BatchDifference(Made.MASK)
    if not ours["loss_mask"].shape == theirs["loss_mask"].shape == ours["tokens"].shape:
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
        only = alone(own[name][wrong]) if name in own and own[name].shape == wrong.shape else None
        if only is not None and off[own[name] == only].all():
            yield BatchDifference(made, side, only)
    leading, trailing = np.logical_and.accumulate(off, axis=1), np.logical_and.accumulate(off[:, ::-1], axis=1)[:, ::-1]
    if leading[wrong].all():
        yield BatchDifference(Made.MASK_HIDES_BEGINNING, side)
    if trailing[wrong].all():
        yield BatchDifference(Made.MASK_HIDES_END, side)


def positions(ours: Arrays, theirs: Arrays) -> Iterator[BatchDifference]:
    """Yield the ways of positions: restarted within a sample, perhaps after one id, or begun elsewhere."""
    yield BatchDifference(Made.POSITIONS)
    if ours["position_ids"].shape != theirs["position_ids"].shape:
        return
    apart = theirs["position_ids"] - ours["position_ids"]
    if apart.size and (apart == apart.flat[0]).all():
        yield BatchDifference(Made.POSITIONS_FROM, Side.CANDIDATE, int(apart.flat[0]))
    for side, own, other in both(ours, theirs):
        if starts(own).any() and not starts(other).any():
            yield BatchDifference(Made.POSITIONS_ANEW, side)
            if "tokens" in own and (after := alone(own["tokens"][:, :-1][starts(own)])) is not None:
                yield BatchDifference(Made.POSITIONS_ANEW_AFTER, side, after)


def starts(arrays: Arrays) -> Array:
    """Return where positions go back, from the second place of each sample on, ``[rows, sequence - 1]``."""
    return np.asarray(np.diff(arrays["position_ids"].astype(np.int64), axis=1) <= 0)


def attention(ours: Batch, theirs: Batch) -> Iterator[BatchDifference]:
    """Yield the ways of an attention mask: its own on one side, such as one that separates documents."""
    yield BatchDifference(Made.ATTENTION)
    for side, own, other in ((Side.REFERENCE, ours, theirs), (Side.CANDIDATE, theirs, ours)):
        if other.causal and not own.causal:
            yield BatchDifference(Made.ATTENTION_OF_ITS_OWN, side)


WAYS: dict[str, Callable[[Arrays, Arrays], Iterator[BatchDifference]]] = {
    "tokens": tokens,
    "labels": labels,
    "loss_mask": masks,
    "position_ids": positions,
}
"""Array to the function that finds its ways, given the arrays of both sides."""


def alone(ids: Array) -> int | None:
    """Return the only id among some; None where there are others, or none."""
    return int(ids.flat[0]) if ids.size and (ids == ids.flat[0]).all() else None


@dataclass(frozen=True, slots=True)
class Hiding:
    """A framework's setting by which a mask leaves out one id (:attr:`Made.MASK_HIDES_ID`)."""

    framework: str
    key: str
    made: Made
    """The mask, by its setting."""
    value: str | None = None
    """What the setting has to be; None for the id itself."""
    default: str = ""
    """The setting where a record does not say."""


PAD_TOKEN_ID, PADDING = "model.model_config.pad_token_id", 0
"""MindFormers' setting of the id whose tokens do not count, and its default (``llama_config.py:146``, ``transformer_config.py:2020``)."""
HIDINGS = (
    Hiding("ms", PAD_TOKEN_ID, Made.MASK_HIDES_PADDING, default=str(PADDING)),
    Hiding("torch", "eod_mask_loss", Made.MASK_HIDES_DOCUMENTS_END, value="True"),
)
"""MindFormers 1.9: ``LlamaForCausalLM.construct`` and ``PreprocessLabelsAndMasks`` make the mask of ``pad_token_id`` where the data set has
no column ``loss_mask``. Megatron-LM 0.19: ``gpt_dataset.py:807`` leaves out the token that ends a document where ``--eod-mask-loss`` is
given."""


def by_setting(way: BatchDifference, facts: Mapping[Side, Facts]) -> BatchDifference:
    """Return a way as the setting of its side makes it; the way itself where no setting is known to."""
    if way.side is None or way.made is not Made.MASK_HIDES_ID:
        return way
    run = facts[way.side]
    for hiding in HIDINGS:
        said = str((run.arguments or {}).get(hiding.key))
        value = hiding.default if said == "None" else said
        if hiding.framework == run.side and value == (hiding.value or str(way.number)):
            return replace(way, made=hiding.made)
    return way
