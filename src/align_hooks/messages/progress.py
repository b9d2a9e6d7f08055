"""Reports of the progress of a long reading."""

from __future__ import annotations

from typing import Protocol

from align_hooks.messages import Argument


class Progress(Protocol):
    """Called before each piece of work; ``total`` is 0 where it is not known."""

    def __call__(self, message: Argument, done: int = 0, total: int = 0) -> None:
        """Report what is read next."""


def silent(message: Argument, done: int = 0, total: int = 0) -> None:
    """Report nothing."""
