"""Find where the error of a forward or a backward pass arises, from the errors at its points.

An error is passed on: behind its origin every point is wrong, some more than the first. It arose at a jump: a point that exceeds its limit
by more than all of its sources, which backward are the gradients of its users. Behind the first origin a jump may be an echo, in a
direction to which a point is more sensitive than to noise; only where points are given the reference's inputs
(:mod:`align_hooks.replay.teacher`) is each jump an origin.

Where everything made from a point is right again, the point is the same function written otherwise, and no fault: queries and keys
rotated by positions from 1 give the scores of positions from 0."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from align_hooks.comparison.distances import error_of_sketches
from align_hooks.comparison.finding import Finding
from align_hooks.comparison.stage_result import ErrorOrigin
from align_hooks.names.points import GRADIENT, consumers, in_order, sources
from align_hooks.record.read.activations import Activations

JUMP = 3.0
"""Times the limit ratio of all its sources at which a point jumps."""
QUIET = 1.0 / JUMP
"""Limit ratio below which a source counts as right."""
HEALED = 10.0
"""Times the limit ratio of everything made from it that a healed point has: no fault fades so fast."""


def pass_order(names: Sequence[str], *, backward: bool) -> tuple[list[str], dict[str, tuple[str, ...]]]:
    """Return points in the order of a forward pass, or gradients of points in that of a backward pass, and each one's sources."""
    if not backward:
        return in_order(names), sources(names)
    bare = [name.removesuffix(GRADIENT) for name in names]
    users = consumers(sources(bare))
    ordered = [name + GRADIENT for name in reversed(in_order(bare))]
    return ordered, {name + GRADIENT: tuple(user + GRADIENT for user in users[name]) for name in bare}


def origins(findings: Mapping[str, Finding], ordered: Sequence[str], made_from: Mapping[str, Sequence[str]]) -> list[ErrorOrigin]:
    """Return the points over their limits at which the error jumps, in the order of the pass; the first violation where none does."""
    wrong, jumps = [], []
    for name in ordered:
        if name in findings and (ratio := findings[name].limit_ratio) > 1:
            inputs = max((findings[source].limit_ratio for source in made_from[name] if source in findings), default=0.0)
            wrong.append(ErrorOrigin(findings[name], tuple(made_from[name]), inputs))
            jumps += wrong[-1:] if ratio >= JUMP * max(inputs, QUIET) and not math.isinf(inputs) else []
    return jumps or wrong[:1]


def healed(limit_ratio: Mapping[str, float], ordered: Sequence[str], behind: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the points over their limits while all points ``behind`` them are within, or are healed themselves.

    The last point of a pass has none behind it and is never healed."""
    found: set[str] = set()
    for name in reversed(ordered):
        right = min(1.0, limit_ratio[name] / HEALED)
        if 1 < limit_ratio[name] < math.inf and behind[name] and all(user in found or limit_ratio[user] <= right for user in behind[name]):
            found.add(name)
    return [name for name in ordered if name in found]


def wrong_parts(ours: Activations, theirs: Activations, name: str, limit: float) -> tuple[list[tuple[int, int]], int]:
    """Return micro-batch and data-parallel rank of each part in which a point exceeds its limit, and the number of parts.

    An empty list and 0 where the runs cut their batches otherwise."""
    mine, other = ours.by_micro_batch(name), theirs.by_micro_batch(name)
    if mine.keys() != other.keys() or any(mine[part].elements != other[part].elements for part in mine):
        return [], 0
    wrong = [part for part in mine if not error_of_sketches(mine[part].sketch, other[part].sketch) <= limit]
    return wrong, len(mine)


def without_gradient(ours: Activations, theirs: Activations) -> Iterator[tuple[str, bool]]:
    """Yield the points to which only one of both runs passes a gradient, and whether it is the first run."""
    for name in (*ours, *theirs):
        here, there = name in ours.names, name in theirs.names
        if name.endswith(GRADIENT) and here is not there and name.removesuffix(GRADIENT) in (theirs if here else ours).names:
            yield name, here
