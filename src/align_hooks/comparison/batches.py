"""Two recorded batches of one step against each other, element by element."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from align_hooks.comparison.pair import Pair
from align_hooks.comparison.verdict import Finding, Quantity, Value, Words
from align_hooks.messages import message
from align_hooks.record.batch import Batch
from align_hooks.record.batch_digests import digests_of
from align_hooks.record.layout import Array


def differences(ours: Batch, theirs: Batch, step: int) -> tuple[list[Finding], list[str]]:
    """What differs, and the names of the arrays that one side alone holds, which cannot be compared. A side that recorded no loss mask or
    position ids had the plain ones: every token counts, positions run from 0. A label that does not count may be anything."""
    reference, candidate = ours.arrays(), theirs.arrays()
    alone = [name for name in ("tokens", "labels") if (name in reference) != (name in candidate)]
    findings = _attention(ours, theirs, step)
    mask = _or_plain(reference, "loss_mask")
    for name in ("tokens", "labels", "loss_mask", "position_ids"):
        left, right = _or_plain(reference, name), _or_plain(candidate, name)
        if left is None or right is None:
            continue
        if left.shape != right.shape:
            findings.append(_shapes(name, name, step, left, right))
            continue
        wrong = left != right
        if name == "labels" and mask is not None and mask.shape == wrong.shape:
            wrong = wrong & (mask > 0)
        if wrong.any():
            place = tuple(int(index) for index in np.argwhere(wrong)[0])
            count, position = int(wrong.sum()), str(list(place))
            subject = message("batches.differ_first", what=name, step=step, iteration=step + 1, count=count, all=wrong.size, place=position)
            findings.append(_finding(subject, name, step, left[place].item(), right[place].item()))
    return findings, alone


def differing_digests(pair: Pair) -> tuple[list[int], list[Finding]]:
    """The common steps whose batches are compared by their digests, because a distilled record left one of the two out, and the arrays that
    are not the same there."""
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
            found += [
                _finding(message("batches.differ_by_digest", what=name, step=step, iteration=step + 1), name, step) for name in unlike
            ]
    return steps, found


def weights_of_tokens(batch: Batch, per_token: bool) -> Array | None:
    """How much each token weighs in the objective where it counts, ``[rows, sequence]``; None without tokens.

    With a per-token loss all valid tokens of the step weigh alike. Without it each micro-batch of each data- and context-parallel rank has
    a mean of its own, and the objective is the mean of those (Megatron's ``forward_step_calc_loss``).
    """
    mask = _or_plain(batch.arrays(), "loss_mask")
    if mask is None:
        return None
    counts = mask.astype(np.float64)
    if per_token:
        return np.full(counts.shape, 1.0 / max(float(counts.sum()), 1.0)) * (counts > 0)
    sizes = [rows[index] for index in range(max(map(len, batch.rows))) for rows in batch.rows if index < len(rows)]
    columns = [np.concatenate([np.arange(*bounds) for bounds in cut]) for cut in batch.slices] or [np.arange(counts.shape[1])]
    weights = np.zeros(counts.shape)
    for rows in np.split(np.arange(len(counts)), np.cumsum(sizes)[:-1]):
        for positions in columns:
            place = np.ix_(rows, positions)
            weights[place] = 1.0 / max(float(counts[place].sum()), 1.0) / (len(sizes) * len(columns))
    return weights * (counts > 0)


def _or_plain(arrays: Mapping[str, Array], name: str) -> Array | None:
    if name in arrays or "tokens" not in arrays:
        return arrays.get(name)
    shape = arrays["tokens"].shape
    return {"loss_mask": np.ones(shape, np.float32), "position_ids": np.broadcast_to(np.arange(shape[1]), shape)}.get(name)


def _attention(ours: Batch, theirs: Batch, step: int) -> list[Finding]:
    """A causal mask is the same whether it was written or made by a kernel."""
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
    return _finding(message("batches.shape", what=subject, step=step, iteration=step + 1), name, step, *shapes)


def _finding(subject: Words, name: str, step: int, reference: Value = "", candidate: Value = "") -> Finding:
    return Finding(subject, reference, candidate, name=name, step=step, quantity=Quantity.BATCHES)
