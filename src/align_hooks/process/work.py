"""Work that is done piece by piece: what is said of it, and who does it.

A piece is a function of a module and what it needs to know, so that another process may do it. The workers are any
``concurrent.futures.Executor``: a pool of processes, or those of Dask and MPI (:mod:`align_hooks.process.executors`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TypeVar

from align_hooks.messages.progress import Progress, silent

TOGETHER = 1 << 26
"""Bytes that are worth a worker's while: smaller pieces go to it together."""
Piece = TypeVar("Piece")
Result = TypeVar("Result")


@dataclass(frozen=True)
class WorkPool:
    """``progress`` is told of each piece; ``executor`` does the pieces, this process where it is None, and where all of them together are
    fewer than ``least`` bytes."""

    progress: Progress = silent
    executor: Executor | None = None
    least: int = 0

    def is_shared(self, sizes: Sequence[int]) -> bool:
        """Whether the executor is given pieces of these sizes."""
        return self.executor is not None and sum(sizes) >= self.least

    def map(self, function: Callable[[Piece], Result], pieces: Sequence[Piece], sizes: Sequence[int]) -> Iterator[Result]:
        """The results of all pieces, in their order; ``sizes`` are the bytes that each reads. What a piece raises is raised here."""
        if self.executor is None or not self.is_shared(sizes):
            return map(function, pieces)
        return chain.from_iterable(self.executor.map(partial(_each, function), _together(pieces, sizes)))


ALONE = WorkPool()
"""This process, which says nothing."""


def _each(function: Callable[[Piece], Result], pieces: Sequence[Piece]) -> list[Result]:
    return [function(piece) for piece in pieces]


def _together(pieces: Sequence[Piece], sizes: Sequence[int]) -> list[list[Piece]]:
    """Pieces that stand next to each other, put together to :data:`TOGETHER` bytes."""
    groups: list[list[Piece]] = []
    room = 0
    for piece, size in zip(pieces, sizes, strict=True):
        if room < size or not groups:
            groups.append([])
            room = TOGETHER
        groups[-1].append(piece)
        room -= size
    return groups
