"""The guide's acceptance standard (MindFormers r2.6, "large model migration accuracy standard"), reported as such.

It is coarse: on a small Llama it passed seven of nine planted faults. The verdict does not depend on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from align_hooks.compare.measures import relative_difference
from align_hooks.compare.verdict import Criterion
from align_hooks.messages import Message, message
from align_hooks.record.schema import Row

FIRST_ABSOLUTE, FIRST_RELATIVE = 0.005, 0.005
MEAN_ABSOLUTE, MEAN_RELATIVE = 0.01, 0.01
GLOBAL_NORM = 0.10


def acceptance(rows: Sequence[tuple[Row, Row]]) -> tuple[Criterion, ...]:
    """The three criteria, over the steps that both runs completed."""
    losses = [(ours.loss, theirs.loss) for ours, theirs in rows if ours.loss is not None and theirs.loss is not None]
    norms = [(ours.grad_norm, theirs.grad_norm) for ours, theirs in rows if ours.grad_norm is not None and theirs.grad_norm is not None]
    norm = fmean(relative_difference(*pair) for pair in norms) if norms else None
    return (
        Criterion(
            message("acceptance.first_loss", absolute=FIRST_ABSOLUTE, percent=100 * FIRST_RELATIVE),
            *_of_losses(losses[:1], FIRST_ABSOLUTE, FIRST_RELATIVE),
        ),
        Criterion(
            message("acceptance.mean_loss", absolute=MEAN_ABSOLUTE, percent=100 * MEAN_RELATIVE),
            *_of_losses(losses, MEAN_ABSOLUTE, MEAN_RELATIVE),
        ),
        Criterion(
            message("acceptance.mean_norm", percent=100 * GLOBAL_NORM),
            None if norm is None else norm <= GLOBAL_NORM,
            message("acceptance.no_norm") if norm is None else message("acceptance.of_norm", relative=norm),
        ),
    )


def _of_losses(pairs: Sequence[tuple[float, float]], absolute: float, relative: float) -> tuple[bool | None, Message]:
    """Whether the mean difference is below either limit; None without a loss."""
    if not pairs:
        return None, message("acceptance.no_loss")
    gap, part = fmean(abs(theirs - ours) for ours, theirs in pairs), fmean(relative_difference(*pair) for pair in pairs)
    return gap < absolute or part < relative, message("acceptance.of_losses", absolute=gap, relative=part)
