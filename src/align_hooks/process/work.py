"""Work in pieces, with a report of progress, on any ``concurrent.futures.Executor`` (:mod:`align_hooks.process.executors`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from functools import partial
from itertools import chain
from typing import TypeVar

from msgspec import Struct

from align_hooks.messages.progress import Progress, silent

TOGETHER = 1 << 26
"""Bytes that are worth sending to a worker; smaller pieces are sent together."""
Piece = TypeVar("Piece")
Result = TypeVar("Result")


class WorkPool(Struct, frozen=True):
    """The workers of long readings."""

    progress: Progress = silent
    """Called before each piece."""
    executor: Executor | None = None
    """None for this process."""
    least: int = 0
    """Bytes of all pieces from which on the executor is used."""

    def is_shared(self, sizes: Sequence[int]) -> bool:
        """Return whether the executor gets pieces of these ``sizes`` in bytes."""
        return self.executor is not None and sum(sizes) >= self.least

    def map(self, function: Callable[[Piece], Result], pieces: Sequence[Piece], sizes: Sequence[int]) -> Iterator[Result]:
        """Return the results in the order of ``pieces``, which read ``sizes`` bytes each; ``function`` must be one that can be pickled."""
        if self.executor is None or not self.is_shared(sizes):
            return map(function, pieces)
        return chain.from_iterable(self.executor.map(partial(_each, function), _together(pieces, sizes)))


ALONE = WorkPool()
"""This process, without reports."""


def _each(function: Callable[[Piece], Result], pieces: Sequence[Piece]) -> list[Result]:
    return [function(piece) for piece in pieces]


def _together(pieces: Sequence[Piece], sizes: Sequence[int]) -> list[list[Piece]]:
    """Group adjacent pieces up to :data:`TOGETHER` bytes."""
    groups: list[list[Piece]] = []
    left = 0
    for piece, size in zip(pieces, sizes, strict=True):
        if left < size or not groups:
            groups.append([])
            left = TOGETHER
        groups[-1].append(piece)
        left -= size
    return groups
