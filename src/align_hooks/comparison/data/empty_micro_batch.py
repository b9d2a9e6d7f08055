"""Recognise a loss that is divided by the number of tokens that count, where none does: one micro-batch makes the step not finite."""

from __future__ import annotations

import math
from collections.abc import Sequence

from align_hooks.comparison.context import ComparisonContext
from align_hooks.comparison.data.token_losses import owners
from align_hooks.comparison.finding import Finding, when
from align_hooks.messages import Message, Side, message


def divided_by_nothing(context: ComparisonContext, findings: Sequence[Finding]) -> Message | None:
    """Return the micro-batch without a token that counts, in the first of some losses that one side alone has not finite; None unless its
    tokens' own losses are finite, on weights that both have."""
    first = next((each for each in findings if each.limit_ratio > 1), None)
    if first is None or first.step is None or not context.pair.is_exact(first.step):
        return None
    lost = [isinstance(value, float) and not math.isfinite(value) for value in (first.reference, first.candidate)]
    if lost.count(True) != 1 or first.step not in context.pair.steps("batches"):
        return None
    index = lost.index(True)
    batch = context.batches(first.step)[index]
    counted: dict[tuple[int, int], float] = {}
    if batch.loss_mask is None or batch.token_losses is None or batch.loss_mask.shape != batch.token_losses.shape:
        return None
    for row, owner in enumerate(owners(batch)[: len(batch.loss_mask)]):
        counted[owner] = counted.get(owner, 0.0) + float(batch.loss_mask[row].sum())
        if not all(map(math.isfinite, batch.token_losses[row].ravel().tolist())):
            return None
    empty = next((owner for owner, count in counted.items() if count == 0), None)
    if empty is None:
        return None
    return message("later_losses.divided_by_nothing", side=[*Side][index], number=empty[0], rank=empty[1], step=when(first.step))
