"""Compare two recorded batches of one step, element by element."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from enum import Enum

import numpy as np
from msgspec import Struct, field

from align_hooks.comparison.data.batch_differences import with_plain
from align_hooks.comparison.finding import Finding, Metric, Value, Words
from align_hooks.comparison.pair import Pair
from align_hooks.messages import Argument, Message, Side, message
from align_hooks.record.batch_statistics import BatchStatistics, SampleRelation
from align_hooks.record.format.documents import PADDING, starts_of
from align_hooks.record.format.layout import Array
from align_hooks.record.read.batch import Batch, documents_of
from align_hooks.record.read.batch_digests import digests_of
from align_hooks.record.read.loss_weights import counts_agree

OTHER = SampleRelation.OTHER_SAMPLES


class BatchEvidence(Struct, frozen=True):
    """What the recorded batches of both sides show beside where they differ."""

    statistics: dict[Side, BatchStatistics] = field(default_factory=dict)
    """Statistics of each side's batches; empty where none are compared."""
    affected_tokens: Counter[tuple[Side, str]] = field(default_factory=Counter)
    """How many tokens of a side an overridden setting is about."""


def differences(
    ours: Batch, theirs: Batch, step: int, *, mask_is_known: bool = True, documents_are_known: bool = True
) -> tuple[list[Finding], list[str]]:
    """Return the arrays that differ, and the names of those that only one side recorded; loss masks and documents are compared where known
    of both."""
    reference, candidate = with_plain(ours), with_plain(theirs)
    findings, mask = _attention(ours, theirs, step) if documents_are_known else [], reference.get("loss_mask")
    for name in ("tokens", "labels", "loss_mask", "position_ids"):
        if name not in reference or name not in candidate or (name == "loss_mask" and not mask_is_known):
            continue
        left, right = reference[name], candidate[name]
        if left.shape != right.shape:
            findings.append(_finding("batches.shape", name, step, *map(_shape, (left, right)), pattern=OTHER))
            continue
        wrong = left != right
        if name == "labels" and mask is not None and mask.shape == wrong.shape:
            wrong = wrong & (mask > 0)  # a label that does not count may be anything
        if wrong.any():
            place, *_ = np.argwhere(wrong).tolist()
            values = (array[tuple(place)].item() for array in (left, right))
            numbers = {"count": int(wrong.sum()), "all": wrong.size, "place": str(place)}
            findings.append(_finding("batches.differ_first", name, step, *values, **numbers))
    return findings, [name for name in ("tokens", "labels") if (getattr(ours, name) is None) != (getattr(theirs, name) is None)]


def differing_digests(pair: Pair) -> tuple[list[int], list[Finding]]:
    """Return the steps whose batches are compared by digests, because a distilled record left one out, and the arrays that differ."""
    left_out = [run.facts.distilled.batches if run.facts.distilled is not None else {} for run in pair.runs]
    findings: list[Finding] = []
    steps: list[int] = []
    for step in sorted(row.step for row, _ in pair.rows if any(str(row.step) in batches for batches in left_out)):
        ours, theirs = (
            batches.get(str(step)) or (digests_of(run.batch(step)) if run.has("batches", step) else {})
            for run, batches in zip(pair.runs, left_out, strict=True)
        )
        if shared := [name for name in ours if name in theirs]:
            steps.append(step)
            findings += [_finding("batches.differ_by_digest", name, step, pattern=OTHER) for name in shared if ours[name] != theirs[name]]
    return steps, findings


def differing_tokens(pair: Pair, without: Collection[int]) -> tuple[list[int], list[Finding]]:
    """Return the steps, ``without`` some, whose tokens are compared by each row's digest, and where they differ."""
    # only runs of one framework, layout and size of micro-batches give a rank the same rows
    if not pair.has_one_layout or len({run.facts.training.micro_batch_size for run in pair.runs}) > 1:
        return [], []
    known, differing = pair.tokens()
    findings = [_finding("batches.differ_by_digest", "tokens", step, pattern=OTHER) for step in differing if step not in without]
    return [step for step in known if step not in without], findings


def unseen_mask(side: Side, own: Batch, other: Batch, count: float | None) -> Message | None:
    """Say why a side's recorded mask is not the one of its loss; None where nothing contradicts it.

    ``count`` is how many tokens the side's loss function counted; None where unknown. Either no mask is on record, and not all tokens
    were counted; or the mask contradicts the count and the other side's mask agrees with it: then something else was taken for the mask."""
    if count is None or own.tokens is None:
        return None
    size, at_step = own.tokens.size, {"step": own.step, "iteration": own.step + 1}
    if own.loss_mask is None:
        return message("batches.mask_unseen", side=side, count=count, all=size, **at_step) if count != size else None
    if other.loss_mask is None or counts_agree(own, count) or not counts_agree(other, count):
        return None
    return message("batches.not_the_mask", side=side, count=count, sum=float(own.loss_mask.sum(dtype=np.float64)), **at_step)


def _attention(ours: Batch, theirs: Batch, step: int) -> list[Finding]:
    """Return how attention masks differ, or documents where a side packs samples; None instead of a mask is causal."""
    name, subject = "attention_mask", message("batches.attention_mask")
    left, right = ours.attention_mask, theirs.attention_mask
    if ours.documents is not None or theirs.documents is not None:
        known = [documents_of(batch) for batch in (ours, theirs)]
        if known[0] is not None and known[1] is not None:
            return _documents(known[0], known[1], step)
        of_side = (message("batches.its_own" if documents is None else "batches.of_documents") for documents in known)
        return [_finding("batches.of_step", name, step, *of_side, what=subject)]
    if ours.causal != theirs.causal:
        values = (message("batches.causal" if batch.causal else "batches.its_own") for batch in (ours, theirs))
        return [_finding("batches.of_step", name, step, *values, what=subject)]
    if ours.causal or left is None or right is None:
        return []
    if left.shape[1:] != right.shape[1:]:
        return [_finding("batches.shape", name, step, *map(_shape, (left, right)), what=subject, pattern=OTHER)]
    wrong, size = int(np.not_equal(left, right).sum()), max(left.size, right.size)
    return [_finding("batches.differ", name, step, what=subject, count=wrong, all=size)] if wrong else []


def _documents(ours: Array, theirs: Array, step: int) -> list[Finding]:
    """Return how documents differ, tokens of none left out."""
    if ours.shape != theirs.shape:
        return [_finding("batches.shape", "documents", step, _shape(ours), _shape(theirs), pattern=OTHER)]
    wrong = (starts_of(ours) != starts_of(theirs)) & (ours != PADDING) & (theirs != PADDING)
    if not wrong.any():
        return []
    row, token = np.argwhere(wrong)[0].tolist()
    counts = (message("batches.documents", count=int(documents[row].max()) + 1) for documents in (ours, theirs))
    rows = int(wrong.any(axis=1).sum())
    return [_finding("batches.documents_differ", "documents", step, *counts, row=row, token=token, count=rows, all=len(wrong))]


def _shape(array: Array) -> str:
    return str(list(array.shape))


def _finding(
    id: str, name: str, step: int, *values: Value, what: Words | None = None, pattern: Enum | None = None, **numbers: Argument
) -> Finding:
    """Return a finding whose values are empty, or the reference's and the candidate's; ``what`` is the subject, the name where None."""
    ours, theirs = values or ("", "")
    subject = message(id, what=what or name, step=step, iteration=step + 1, **numbers)
    return Finding(subject, ours, theirs, name=name, step=step, quantity=Metric.BATCHES, pattern=pattern)
