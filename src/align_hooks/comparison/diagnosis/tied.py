"""Find which of the two gradients of a tied weight is off: the embedding's or the output layer's.

The embedding uses the rows of the tokens in a batch, and its gradient reaches no other row. The output layer's gradient has all rows, for
each logit contributes to every token's loss. So the rows of tokens that are not in the batch distinguish the two."""

from __future__ import annotations

import numpy as np

from align_hooks.comparison.context import ComparisonContext
from align_hooks.messages import Message, message
from align_hooks.names.points import EMBEDDING

WEIGHT = f"{EMBEDDING}.weight"
SMALL = 1e-3
"""Part of the largest row's difference up to which a row is off by rounding."""


def part_that_is_off(context: ComparisonContext) -> Message | None:
    """Name the part of the first step's gradient that is off; None where records are missing, or every row is used."""
    pair, first = context.pair, context.pair.first
    if first is None or first not in pair.steps("batches") or not pair.both_stored("gradients", first):
        return None
    tokens, gradients = context.first_batches[0].tokens, [run.gradients(first) for run in pair.runs]
    if tokens is None or any(WEIGHT not in of_run for of_run in gradients):
        return None
    ours, theirs = (of_run[WEIGHT] for of_run in gradients)
    if ours.shape != theirs.shape or not (np.isfinite(ours).all() and np.isfinite(theirs).all()):
        return None
    apart = np.linalg.norm(ours - theirs, axis=1)
    off = apart > SMALL * apart.max()
    looked_up = np.isin(np.arange(len(off)), tokens)
    if looked_up.all() or not off.any():
        return None
    counts = {"count": int(off.sum()), "all": len(off)}
    return message("tied.of_output" if (off & ~looked_up).any() else "tied.of_embedding", **counts)
