"""What a run did with a batch and no recorder could see: each reason by the word that stands in a row of scalars, under ``unseen``.

A batch without an array says nothing of why. An array that was not seen is left out and never made up: a replay would train the other side
on it.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from align_hooks.messages import Message, message


class Unseen(Enum):
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
    """Tokens count for different weights, and no mask that was handed over says so: no loss mask is recorded."""

    @property
    def words(self) -> Message:
        """The reason in words."""
        return message(f"unseen.{self.value}")


NO_MASK = frozenset((Unseen.LABELS, Unseen.NO_GRADIENT, Unseen.NOT_A_NUMBER, Unseen.WEIGHTS))
"""The reasons for which a batch has no loss mask."""


def known(values: Iterable[str]) -> list[Unseen]:
    """The reasons among the words of rows, in the order of the enumeration; a later version may write others."""
    words = set(values)
    return [reason for reason in Unseen if reason.value in words]
