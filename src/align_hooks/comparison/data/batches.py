"""Compare two recorded batches of one step, element by element."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field, replace

import numpy as np

from align_hooks.comparison.data.batch_differences import with_plain
from align_hooks.comparison.finding import Finding, Metric, Value, Words
from align_hooks.comparison.pair import Pair
from align_hooks.messages import Message, Side, message
from align_hooks.record.batch_statistics import BatchStatistics, SampleRelation
from align_hooks.record.format.layout import Array
from align_hooks.record.read.batch import Batch
from align_hooks.record.read.batch_digests import digests_of
from align_hooks.record.read.loss_weights import counts_agree


@dataclass(frozen=True, slots=True)
class BatchEvidence:
    """What the recorded batches of both sides show beside where they differ."""

    statistics: dict[Side, BatchStatistics] = field(default_factory=dict)
    """Statistics of each side's batches; empty where none are compared."""
    affected_tokens: Counter[tuple[Side, str]] = field(default_factory=Counter)
    """How many tokens of a side an overridden setting is about."""


def differences(ours: Batch, theirs: Batch, step: int, *, mask_is_known: bool = True) -> tuple[list[Finding], list[str]]:
    """Return what differs, and the arrays that only one side holds, which cannot be compared.

    A side without loss mask or position ids had the plain ones: every token counts, positions run from 0. ``mask_is_known`` is False
    where a side's mask is unknown, so that masks are not compared."""
    alone = [name for name in ("tokens", "labels") if (getattr(ours, name) is None) != (getattr(theirs, name) is None)]
    reference, candidate = with_plain(ours), with_plain(theirs)
    findings = _attention(ours, theirs, step)
    mask = reference.get("loss_mask")
    for name in ("tokens", "labels", "loss_mask", "position_ids"):
        left, right = reference.get(name), candidate.get(name)
        if left is None or right is None or (name == "loss_mask" and not mask_is_known):
            continue
        if left.shape != right.shape:
            findings.append(_shapes(name, name, step, left, right))
            continue
        wrong = left != right
        if name == "labels" and mask is not None and mask.shape == wrong.shape:
            wrong = wrong & (mask > 0)  # a label that does not count may be anything
        if wrong.any():
            place = tuple(int(index) for index in np.argwhere(wrong)[0])
            count, position = int(wrong.sum()), str(list(place))
            subject = message("batches.differ_first", what=name, step=step, iteration=step + 1, count=count, all=wrong.size, place=position)
            findings.append(_finding(subject, name, step, left[place].item(), right[place].item()))
    return findings, alone


def differing_digests(pair: Pair) -> tuple[list[int], list[Finding]]:
    """Return the steps whose batches are compared by digests, because a distilled record left one out, and the arrays that differ."""
    left_out = [run.facts.distilled.batches if run.facts.distilled is not None else {} for run in pair.runs]
    found: list[Finding] = []
    steps: list[int] = []
    for step in sorted(ours.step for ours, _ in pair.rows if any(str(ours.step) in of_run for of_run in left_out)):
        known = [
            of_run.get(str(step)) or (digests_of(run.batch(step)) if run.has("batches", step) else {})
            for run, of_run in zip(pair.runs, left_out, strict=True)
        ]
        if shared := [name for name in known[0] if name in known[1]]:
            steps.append(step)
            unlike = [name for name in shared if known[0][name] != known[1][name]]
            found += [_by_digest(name, step) for name in unlike]
    return steps, found


def differing_tokens(pair: Pair, without: Collection[int]) -> tuple[list[int], list[Finding]]:
    """Return the steps, ``without`` some, whose tokens are compared by each row's digest, and where they differ."""
    # only runs of one framework, layout and size of micro-batches give a rank the same rows
    of_one_size = len({run.facts.training.micro_batch_size for run in pair.runs}) == 1
    known, apart = pair.tokens() if pair.has_one_layout and of_one_size else ([], [])
    return [step for step in known if step not in without], [_by_digest("tokens", step) for step in apart if step not in without]


def unseen_mask(side: Side, own: Batch, other: Batch, count: float | None) -> Message | None:
    """Say why a side's recorded mask is not the one of its loss; None where nothing contradicts it.

    ``count`` is how many tokens the side's loss function counted; None where unknown. Either no mask is on record, and not all tokens
    were counted; or the mask contradicts the count and the other side's mask agrees with it: then something else was taken for the mask."""
    if count is None or own.tokens is None:
        return None
    size, step_of = own.tokens.size, {"step": own.step, "iteration": own.step + 1}
    if own.loss_mask is None:
        return message("batches.mask_unseen", side=side, count=count, all=size, **step_of) if count != size else None
    total = float(own.loss_mask.sum(dtype=np.float64))
    if other.loss_mask is None or counts_agree(own, count) or not counts_agree(other, count):
        return None
    return message("batches.not_the_mask", side=side, count=count, sum=total, **step_of)


def _by_digest(name: str, step: int) -> Finding:
    """Return a finding for an array whose digests differ."""
    subject = message("batches.differ_by_digest", what=name, step=step, iteration=step + 1)
    return replace(_finding(subject, name, step), pattern=SampleRelation.OTHER_SAMPLES)


def _attention(ours: Batch, theirs: Batch, step: int) -> list[Finding]:
    """Compare attention masks: a causal one is the same whether it was written or made by a kernel."""
    name, subject = "attention_mask", message("batches.attention_mask")
    left, right = ours.attention_mask, theirs.attention_mask
    if ours.causal != theirs.causal:
        values = (message("batches.causal" if batch.causal else "batches.its_own") for batch in (ours, theirs))
        return [_finding(message("batches.of_step", what=subject, step=step, iteration=step + 1), name, step, *values)]
    if ours.causal or left is None or right is None:
        return []
    if left.shape[1:] != right.shape[1:]:
        return [_shapes(subject, name, step, left, right)]
    wrong, size = int(np.not_equal(left, right).sum()), max(left.size, right.size)
    subject = message("batches.differ", what=subject, step=step, iteration=step + 1, count=wrong, all=size)
    return [_finding(subject, name, step)] if wrong else []


def _shapes(subject: Words | str, name: str, step: int, ours: Array, theirs: Array) -> Finding:
    shapes = (str(list(array.shape)) for array in (ours, theirs))
    of_two = message("batches.shape", what=subject, step=step, iteration=step + 1)
    return replace(_finding(of_two, name, step, *shapes), pattern=SampleRelation.OTHER_SAMPLES)


def _finding(subject: Words, name: str, step: int, reference: Value = "", candidate: Value = "") -> Finding:
    return Finding(subject, reference, candidate, name=name, step=step, quantity=Metric.BATCHES)
