"""Why parts of a batch were not recorded: each reason by its word under ``unseen`` in a row of scalars.

An array that was not observed is left out and never made up: a replay would train the other side on it.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from align_hooks.messages import Message, message


class MissingBatchReason(Enum):
    """Why a recorded batch has less than training used. The message of each names the way out."""

    LABELS = "labels"
    """The model was given no labels: no labels, no token losses and no loss mask are recorded."""
    PASSES = "passes"
    """One forward step called the model several times with gradients: the first call alone is recorded."""
    NO_GRADIENT = "no_gradient"
    """No gradient reached the model's output, so no loss mask is recorded."""
    NOT_A_NUMBER = "not_a_number"
    """The gradient of the model's output holds NaN, so no loss mask is recorded."""
    WEIGHTS = "weights"
    """Tokens have different weights that no mask of the batch explains, so no loss mask is recorded."""
    DOCUMENTS = "documents"
    """The samples are packed in a way that does not tell which tokens form a document, so no documents are recorded."""

    @property
    def words(self) -> Message:
        """The reason as a message."""
        return message(f"unseen.{self.value}")


NOT_REPLAYED = frozenset(MissingBatchReason) - {MissingBatchReason.PASSES}
"""The reasons for which a batch has no loss mask, or none of its documents."""


def known(values: Iterable[str]) -> list[MissingBatchReason]:
    """Return the reasons among the words of rows, in the order of the enumeration; unknown words are ignored."""
    words = set(values)
    return [reason for reason in MissingBatchReason if reason.value in words]
