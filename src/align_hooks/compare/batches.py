"""Two recorded batches of one step against each other, element by element."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from align_hooks.compare.verdict import Finding, Quantity, Value, Words
from align_hooks.messages import message
from align_hooks.record.batch import Batch


def differences(ours: Batch, theirs: Batch, step: int) -> tuple[list[Finding], list[str]]:
    """What differs, and the names of what only one of the two holds and so cannot be compared.

    A side that recorded no loss mask or position ids had the plain ones: every token counts, positions run from 0. A
    label that does not count may be anything.
    """
    one, other = ours.arrays(), theirs.arrays()
    alone = [name for name in ("tokens", "labels") if (name in one) != (name in other)]
    findings = _attention(ours, theirs, step)
    for name in ("tokens", "labels", "loss_mask", "position_ids"):
        left, right = _or_plain(one, name), _or_plain(other, name)
        if left is None or right is None:
            continue
        if left.shape != right.shape:
            findings.append(_shapes(name, name, step, left, right))
            continue
        wrong = left != right
        if name == "labels" and (mask := _or_plain(one, "loss_mask")) is not None and mask.shape == wrong.shape:
            wrong = wrong & (mask > 0)
        if wrong.any():
            place = tuple(int(index) for index in np.argwhere(wrong)[0])
            count, at = int(wrong.sum()), str(list(place))
            what = message("batches.differ_first", what=name, step=step, iteration=step + 1, count=count, all=wrong.size, place=at)
            findings.append(_finding(what, name, step, left[place].item(), right[place].item()))
    return findings, alone


def weights_of_tokens(batch: Any, per_token: bool) -> NDArray[Any] | None:
    """How much each token weighs in the objective where it counts, ``[rows, sequence]``; None without tokens.

    With a per-token loss all valid tokens of the step weigh alike; without, each micro-batch of each data- and context-parallel
    rank is a mean of its own and the objective is the mean of those (Megatron's ``forward_step_calc_loss``).
    """
    arrays = batch.arrays()
    mask = _or_plain(arrays, "loss_mask")
    if mask is None:
        return None
    counts = mask.astype(np.float64)
    if per_token:
        return np.full(counts.shape, 1.0 / max(float(counts.sum()), 1.0)) * (counts > 0)
    sizes = [rows[index] for index in range(max(map(len, batch.rows))) for rows in batch.rows if index < len(rows)]
    columns = [np.concatenate([np.arange(*bounds) for bounds in one]) for one in batch.slices] or [np.arange(counts.shape[1])]
    weights = np.zeros(counts.shape)
    for rows in np.split(np.arange(len(counts)), np.cumsum(sizes)[:-1]):
        for positions in columns:
            place = np.ix_(rows, positions)
            weights[place] = 1.0 / max(float(counts[place].sum()), 1.0) / (len(sizes) * len(columns))
    return weights * (counts > 0)


def _or_plain(arrays: dict[str, NDArray[Any]], name: str) -> NDArray[Any] | None:
    if name in arrays or "tokens" not in arrays:
        return arrays.get(name)
    shape = arrays["tokens"].shape
    return {"loss_mask": np.ones(shape, np.float32), "position_ids": np.broadcast_to(np.arange(shape[1]), shape)}.get(name)


def _attention(ours: Batch, theirs: Batch, step: int) -> list[Finding]:
    """A causal mask is the same whether it was written or made by a kernel."""
    if ours.causal and theirs.causal:
        return []
    name, mask = "attention_mask", message("batches.attention_mask")
    if ours.causal != theirs.causal:
        left, right = (message("batches.causal" if one.causal else "batches.its_own") for one in (ours, theirs))
        return [_finding(message("batches.of_step", what=mask, step=step, iteration=step + 1), name, step, left, right)]
    one, other = ours.attention_mask, theirs.attention_mask
    if one is None or other is None:
        return []
    if one.shape[1:] != other.shape[1:]:
        return [_shapes(mask, name, step, one, other)]
    wrong, size = int(np.not_equal(one, other).sum()), max(one.size, other.size)
    what = message("batches.differ", what=mask, step=step, iteration=step + 1, count=wrong, all=size)
    return [_finding(what, name, step)] if wrong else []


def _shapes(what: Words | str, name: str, step: int, ours: NDArray[Any], theirs: NDArray[Any]) -> Finding:
    """Two shapes of one array."""
    shapes = (str(list(array.shape)) for array in (ours, theirs))
    return _finding(message("batches.shape", what=what, step=step, iteration=step + 1), name, step, *shapes)


def _finding(what: Words, name: str, step: int, reference: Value = "", candidate: Value = "") -> Finding:
    return Finding(what, reference, candidate, name=name, step=step, quantity=Quantity.BATCHES)
