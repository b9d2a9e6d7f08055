"""Rows or columns of a weight that get no gradient in one run and one in the other: what they stand for is not used there.

Such rows say more than any size of an error: keys of a group that no head attends with, a head whose output is dropped, one half of a gate.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from align_hooks.compare.places import place
from align_hooks.compare.verdict import Finding
from align_hooks.families.registry import end_kinds

SEARCHED, SHOWN = 24, 3
"""How many tensors are searched, those of the attention first, and how many are told of."""
LOOKED_UP = end_kinds()
"""Kinds of which rows are used or not by what tokens a batch has."""
AXES = ("rows", "columns")


def unused(tensors: Sequence[Mapping[str, Any]], findings: Sequence[Finding]) -> str:
    """What is used on one side only, of the tensors that differ, in words; ``tensors`` are the reference's and the candidate's gradients.

    Empty where there is no such thing.
    """
    wrong = [one.name for one in findings if one.excess > 1]
    names = sorted((name for name in wrong if place(name).kind not in LOOKED_UP), key=lambda name: (".self_attn." not in name, place(name)))
    told = [one for name in names[:SEARCHED] for one in sides(name, *(tensor[name] for tensor in tensors))]
    return "; ".join(told[:SHOWN]) + (f"; and so on in {len(told) - SHOWN} more" if len(told) > SHOWN else "")


def sides(name: str, ours: NDArray[Any], theirs: NDArray[Any]) -> Iterator[str]:
    """What one tensor has without a gradient on one side only."""
    if ours.ndim != 2 or ours.shape != theirs.shape:
        return
    for axis, what in enumerate(AXES):
        used = [tensor.any(axis=1 - axis) for tensor in (ours, theirs)]
        for side, without in (("candidate", used[0] & ~used[1]), ("reference", used[1] & ~used[0])):
            there = np.flatnonzero(without)
            if there.size and there.size < without.size and used[0].any() and used[1].any():
                yield f"{name}: {what} {spans(there)} have no gradient in the {side}"


def spans(places: NDArray[Any]) -> str:
    """Numbers in a row as ``first to last``, the first two such rows; one alone as itself."""
    runs = np.split(places, np.flatnonzero(np.diff(places) > 1) + 1)
    shown = (f"{one[0]} to {one[-1]}" if len(one) > 1 else str(one[0]) for one in runs[:2])
    return " and ".join(shown) + (" …" if len(runs) > 2 else "")
