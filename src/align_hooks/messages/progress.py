"""How a long look says where it is: a message, and how much of how much is done, where that is known."""

from __future__ import annotations

from typing import Protocol

from align_hooks.messages import Argument


class Progress(Protocol):
    """Told before each piece of work; ``total`` is 0 where nobody knows it."""

    def __call__(self, message: Argument, done: int = 0, total: int = 0) -> None:
        """Say what is looked at now."""


def silent(message: Argument, done: int = 0, total: int = 0) -> None:
    """Tell nobody."""
