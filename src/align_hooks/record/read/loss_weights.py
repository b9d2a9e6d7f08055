"""What each token weighs in the objective of a step, and how many tokens count."""

from __future__ import annotations

import numpy as np

from align_hooks.record.format.layout import Array
from align_hooks.record.format.schema import Training
from align_hooks.record.read.batch import Batch, sizes_of

SLACK = 1e-6
"""How far two sums of one mask may be apart, relative: both are fp32."""


def weights_of_tokens(batch: Batch, training: Training) -> Array | None:
    """How much each token weighs in the objective where it counts, ``[rows, sequence]``; None without tokens.

    With a per-token loss all valid tokens of the step weigh alike. Without it each micro-batch of each data- and context-parallel rank has
    a mean of its own, and the objective is the mean of those (Megatron's ``forward_step_calc_loss``); up to 0.12 the ranks of a sequence
    have one mean.
    """
    if batch.loss_mask is None and batch.tokens is None:
        return None
    mask = np.ones_like(batch.tokens) if batch.loss_mask is None else batch.loss_mask
    counts = mask.astype(np.float64)
    if training.per_token_loss:
        return np.full(counts.shape, 1.0 / max(float(counts.sum()), 1.0)) * (counts > 0)
    sizes = sizes_of(batch.rows)
    cuts = () if training.mean_over_sequence else batch.slices
    columns = [np.concatenate([np.arange(*bounds) for bounds in cut]) for cut in cuts] or [np.arange(counts.shape[1])]
    weights = np.zeros(counts.shape)
    for rows in np.split(np.arange(len(counts)), np.cumsum(sizes)[:-1]):
        for positions in columns:
            place = np.ix_(rows, positions)
            weights[place] = 1.0 / max(float(counts[place].sum()), 1.0) / (len(sizes) * len(columns))
    return weights * (counts > 0)


def counts_agree(batch: Batch, count: float) -> bool:
    """Whether the number of tokens that a loss function counted is that of a batch's loss mask, which is not None: its sum, or how many
    tokens it counts. Megatron-LM takes the sum of each micro-batch on each rank in whole numbers."""
    mask = np.asarray(batch.loss_mask, np.float64)
    if not np.isfinite(mask).all() or (mask < 0).any():
        return False
    total, parts = float(mask.sum()), sum(map(len, batch.rows)) * max(len(batch.slices), 1)
    whole = bool((mask == np.floor(mask)).all())
    least = total if whole else total - parts
    return count == np.count_nonzero(mask) or least - SLACK * total <= count <= total * (1 + SLACK)
