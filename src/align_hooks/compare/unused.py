"""Rows or columns of a weight that get no gradient in one run and one in the other: what they stand for is not used there.

Such rows say more than any size of an error: keys of a group that no head attends with, a head whose output is dropped, one half of a gate.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from align_hooks.compare.places import place
from align_hooks.compare.verdict import Finding, Words
from align_hooks.families.registry import end_kinds
from align_hooks.messages import Argument, Message, Side, all_of, message, sentences
from align_hooks.record.tensors import Tensors

SEARCHED, SHOWN = 24, 3
"""How many tensors are searched, those of the attention first, and how many are told of."""
LOOKED_UP = end_kinds()
"""Kinds of which rows are used or not by what tokens a batch has."""


def unused(tensors: Sequence[Tensors], findings: Sequence[Finding]) -> Words | None:
    """What is used on one side only, of the tensors that differ; ``tensors`` are the reference's and the candidate's gradients.

    None where there is no such thing.
    """
    wrong = [one.name for one in findings if one.excess > 1]
    names = sorted((name for name in wrong if place(name).kind not in LOOKED_UP), key=lambda name: (".self_attn." not in name, place(name)))
    parts = [part for name in names[:SEARCHED] for part in sides(name, *(tensor[name] for tensor in tensors))]
    more = len(parts) - SHOWN
    return sentences(*parts[:SHOWN], message("unused.and_so_on", count=more) if more > 0 else None) if parts else None


def sides(name: str, ours: NDArray[Any], theirs: NDArray[Any]) -> Iterator[Message]:
    """What one tensor has without a gradient on one side only."""
    if ours.ndim != 2 or ours.shape != theirs.shape:
        return
    for axis in range(2):
        used = [tensor.any(axis=1 - axis) for tensor in (ours, theirs)]
        for side, without in ((Side.CANDIDATE, used[0] & ~used[1]), (Side.REFERENCE, used[1] & ~used[0])):
            there = np.flatnonzero(without)
            if there.size and there.size < without.size and used[0].any() and used[1].any():
                yield message("unused.columns" if axis else "unused.rows", name=name, places=spans(there), side=side)


def spans(places: NDArray[Any]) -> Words:
    """Numbers in a row as their first and last, the first two such rows; one alone as itself."""
    runs = np.split(places, np.flatnonzero(np.diff(places) > 1) + 1)
    shown = all_of(*(_span(int(run[0]), int(run[-1])) for run in runs[:2]))
    return message("unused.and_further", places=shown) if len(runs) > 2 else shown


def _span(first: int, last: int) -> Argument:
    return message("unused.span", first=first, last=last) if last > first else first
