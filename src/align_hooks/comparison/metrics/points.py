"""Where the error of a forward or a backward pass comes about, from the errors at its points.

An error is handed on: behind the point that makes it every point is wrong, some more than the first. So size says little. What tells is a
jump. At each point the error is held against its limit, which where noise was measured is what the same point makes of weights moved by one
rounding step. Where a point is further beyond its limit than all that it is made from, the error came about there.

Both passes are walked in their own order: forward a point is made from what stands before it, backward its gradient is made from the
gradients of what uses it. Behind the first origin a jump may be the first one's echo, in a direction to which a point happens to be more
sensitive than to noise. Only where points are fed what the reference's were (:mod:`align_hooks.replay.teacher`) each jump is one of its
own.

Where all that is made from a point is right again, the point is the same function written otherwise, and no fault: queries and keys that
are turned by positions from 1 give the scores of those that are turned from 0."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from align_hooks.comparison.finding import Finding
from align_hooks.comparison.metrics.distances import error_of_sketches
from align_hooks.comparison.stage_result import ErrorOrigin
from align_hooks.names.points import GRADIENT, consumers, in_order, sources
from align_hooks.record.read.activations import Activations

JUMP = 3.0
"""Times the limit_ratio of all that a point is made from, by which its own is a jump; and what of its limit counts as nothing."""
QUIET = 1.0 / JUMP
HEALED = 10.0
"""Times by which a point that is written otherwise is further beyond its limit than all that is made from it: no fault fades so fast."""


def forward_order(names: Sequence[str]) -> tuple[list[str], dict[str, tuple[str, ...]]]:
    """The points in the order of a forward pass, and what each is made from."""
    return in_order(names), sources(names)


def backward_order(names: Sequence[str]) -> tuple[list[str], dict[str, tuple[str, ...]]]:
    """The points whose gradients are known in the order of a backward pass, and the points whose gradients each gradient is made from."""
    bare = [name.removesuffix(GRADIENT) for name in names]
    users = consumers(sources(bare))
    ordered = [name + GRADIENT for name in reversed(in_order(bare))]
    return ordered, {name + GRADIENT: tuple(user + GRADIENT for user in users[name]) for name in bare}


def origins(findings: Mapping[str, Finding], ordered: Sequence[str], made_from: Mapping[str, Sequence[str]]) -> list[ErrorOrigin]:
    """The points beyond their limits at which the error jumps, in the order of the pass; the first beyond its limit where none does."""
    found: list[ErrorOrigin] = []
    first: ErrorOrigin | None = None
    for name in ordered:
        finding = findings.get(name)
        if finding is None or finding.limit_ratio <= 1:
            continue
        read = tuple(made_from[name])
        inputs = max((findings[source].limit_ratio for source in read if source in findings), default=0.0)
        origin = ErrorOrigin(finding, read, inputs)
        first = first or origin
        if finding.limit_ratio >= JUMP * max(inputs, QUIET) and not (math.isinf(finding.limit_ratio) and math.isinf(inputs)):
            found.append(origin)
    return found or ([first] if first is not None else [])


def healed(limit_ratio: Mapping[str, float], ordered: Sequence[str], behind: Mapping[str, Sequence[str]]) -> list[str]:
    """The points, in the order of their pass, beyond their limits while all ``behind`` them is within, or is such a point itself.

    ``limit_ratio`` is the error of each point over its limit. Only what is known of the points behind can say so: the last of a pass is
    none."""
    found: set[str] = set()
    for name in reversed(ordered):
        if not (1 < limit_ratio[name] < math.inf and behind[name]):
            continue
        if all(user in found or limit_ratio[user] <= min(1.0, limit_ratio[name] / HEALED) for user in behind[name]):
            found.add(name)
    return [name for name in ordered if name in found]


def wrong_parts(ours: Activations, theirs: Activations, name: str, limit: float) -> tuple[list[tuple[int, int]], int]:
    """Micro-batches and data-parallel ranks in which a point is beyond its limit, and how many there are; none where the runs cut their
    batches otherwise."""
    mine, other = ours.by_micro_batch(name), theirs.by_micro_batch(name)
    if mine.keys() != other.keys() or any(mine[part].elements != other[part].elements for part in mine):
        return [], 0
    wrong = [part for part in mine if not error_of_sketches(mine[part].sketch, other[part].sketch) <= limit]
    return wrong, len(mine)


def without_gradient(ours: Activations, theirs: Activations) -> Iterator[tuple[str, bool]]:
    """The points to which one run hands back a gradient and the other, which has the point, none; and whether the first run has it."""
    for name in (*ours, *theirs):
        here, there = name in ours.names, name in theirs.names
        if name.endswith(GRADIENT) and here is not there:
            bare = name.removesuffix(GRADIENT)
            if bare in (theirs if here else ours).names:
                yield name, here
