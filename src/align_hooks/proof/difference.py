"""What differs between two trainings of the same job, in the order in which a step makes it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TypeAlias

from msgspec import Struct

from align_hooks.comparison.verdict import relative
from align_hooks.job.witness import Witnessed


class DifferenceKind(Enum):
    """In what a training differs."""

    INITIAL = "initial"
    GRAPH = "graph"
    RANDOM = "random"
    LOSS = "loss"
    FINAL = "final"


class Difference(Struct, frozen=True):
    """The first difference of a kind."""

    kind: DifferenceKind
    what: str
    """Parameter, generator or kind of node; empty of a loss."""
    rank: int
    step: int | None
    """None of parameters."""
    count: int
    """How many parameters, generators, nodes or losses differ, over all ranks and steps."""
    of: int
    """How many were compared."""
    relative: float | None = None
    """Largest relative difference of losses; None of anything else."""


def differences(plain: Sequence[Witnessed], other: Sequence[Witnessed]) -> list[Difference]:
    """Return the differences of two trainings, one of each kind; none where they are equal to the bit."""
    pairs = list(zip(plain, other, strict=True))
    initial = [(one.rank, one.initial, other.initial) for one, other in pairs]
    final = [(one.rank, one.final, other.final) for one, other in pairs if one.final and other.final]
    begun, ended = _parameters(DifferenceKind.INITIAL, initial), _parameters(DifferenceKind.FINAL, final)
    return [each for each in (begun, _graph(pairs), _losses(pairs), _random(pairs), ended) if each is not None]


Pairs: TypeAlias = Sequence[tuple[Witnessed, Witnessed]]


def _parameters(kind: DifferenceKind, tables: Sequence[tuple[int, Mapping[str, str], Mapping[str, str]]]) -> Difference | None:
    # what hooks add to a training cell has no counterpart without them
    unequal = [(rank, name) for rank, one, other in tables for name in one if other.get(name) != one[name]]
    if not unequal:
        return None
    return Difference(kind, unequal[0][1], unequal[0][0], None, len(unequal), sum(len(one) for _, one, _ in tables))


def _graph(pairs: Pairs) -> Difference | None:
    more: Counter[str] = Counter()
    first: int | None = None
    for one, other in pairs:
        for kind in one.nodes.keys() | other.nodes.keys():
            if change := other.nodes.get(kind, 0) - one.nodes.get(kind, 0):
                first = one.rank if first is None else first
                more[kind] += change
    if first is None:
        return None
    kind, _ = max(more.items(), key=lambda item: (abs(item[1]), item[0]))
    total = sum(sum(one.nodes.values()) for one, _ in pairs)
    return Difference(DifferenceKind.GRAPH, kind, first, None, sum(map(abs, more.values())), total)


def _losses(pairs: Pairs) -> Difference | None:
    unequal, compared, largest = [], 0, 0.0
    for one, other in pairs:
        for left, right in zip(one.steps, other.steps, strict=False):
            compared += len(left.losses)
            if left.losses != right.losses:
                unequal.append((left.step, one.rank))
                largest = max([largest, *map(_relative, left.losses, right.losses)])
    if not unequal:
        return None
    step, rank = min(unequal)
    return Difference(DifferenceKind.LOSS, "", rank, step, len(unequal), compared, largest)


def _relative(left: str, right: str) -> float:
    """Return the relative difference of two losses in ``float.hex``; infinite where only one is a number."""
    one, other = float.fromhex(left), float.fromhex(right)
    if not (math.isfinite(one) and math.isfinite(other)):
        return 0.0 if left == right else math.inf
    return abs(relative(one, other))


def _random(pairs: Pairs) -> Difference | None:
    unequal = [
        (left.step, one.rank, name)
        for one, other in pairs
        for left, right in zip(one.steps, other.steps, strict=False)
        for name, value in left.generators.items()
        if right.generators.get(name) != value
    ]
    if not unequal:
        return None
    step, rank, name = min(unequal)
    compared = sum(len(each.generators) for one, _ in pairs for each in one.steps)
    return Difference(DifferenceKind.RANDOM, name, rank, step, len(unequal), compared)
