"""Which of two sides is right, as data: each point's distance from the truth on either side, and what follows from all of them.

The truth is the same model on the same weights and batch in fp64 (``oracle``). Distances are relative to its norm. What an honest run is
off by is measured, not guessed: the same model in the run's own compute type is the ``honest`` distance of each point. A side leaves the
truth where it is further away than that many times and than ``compare`` lets two honest runs be apart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from align_hooks.comparison.finding import Finding, Named, Words
from align_hooks.comparison.metrics.limits import SKETCHED, limits_for
from align_hooks.comparison.metrics.points import healed
from align_hooks.comparison.verdict import Judgement, RunSummary
from align_hooks.messages import Side
from align_hooks.names.points import consumers, sources

MARGIN = 8.0
"""Times the honest distance of a point that a side may be away. Honest fp32 runs of Megatron-LM are at most 1.9 away
(``tests/real/test_arbitrate.py``), of MindFormers more: its kernels of exp and softmax on a CPU are approximations."""
SIDES = (Side.REFERENCE, Side.CANDIDATE)


class PointKind(Named):
    """What is measured at a point. The choice is of a router: the share of tokens that it gives to other experts. A parameter's gradient is
    of all rows together."""

    VALUE = "value"
    CHOICE = "choice"
    TERM = "term"
    GRADIENT = "gradient"
    PARAMETER = "parameter_gradient"


ALWAYS = 2.5
"""Tokens that a router may give to other experts however few there are (:mod:`align_hooks.comparison.data.routing`)."""


class Ruling(Judgement):
    """Who is right, in words and with the exit code of the contract."""

    BOTH_RIGHT = ("both right", 0)
    REFERENCE_WRONG = ("reference wrong", 1)
    CANDIDATE_WRONG = ("candidate wrong", 1)
    NEITHER_RIGHT = ("neither right", 1)
    UNDECIDED = ("undecided", 4)


RULINGS = {
    (True, True): Ruling.BOTH_RIGHT,
    (False, True): Ruling.REFERENCE_WRONG,
    (True, False): Ruling.CANDIDATE_WRONG,
    (False, False): Ruling.NEITHER_RIGHT,
}
"""Whether the reference is right, and the candidate, to what that makes of both."""


@dataclass(frozen=True, slots=True)
class TruthDistance:
    """How far a side is from the truth at a point: ``error`` is relative to the ``norm`` of the truth, as is ``honest``, which the same
    model in the side's compute type is away; ``eps`` is that of the type. ``estimated`` says that the error is one of sketches."""

    error: float
    norm: float
    honest: float
    eps: float
    limit: float
    estimated: bool = False

    @property
    def roundings(self) -> float:
        """The error in roundings of the compute type."""
        return self.error / self.eps

    @property
    def limit_ratio(self) -> float:
        """The error over its limit; NaN is infinitely far."""
        return self.error / self.limit if math.isfinite(self.error) else math.inf

    @property
    def right(self) -> bool:
        """Whether the side is no further away than an honest one may be. NaN is wrong."""
        return self.error <= self.limit


def distance(
    kind: PointKind, point: str, error: float, norm: float, honest: float, *, compute_type: str, layers: int, estimated: bool = False
) -> TruthDistance:
    """A side's distance with the limit that it has: what ``compare`` lets honest runs of the type be apart in a model of so many layers, or
    :data:`MARGIN` times what the honest model is away, whichever is more; wider where the error is ``estimated`` from sketches."""
    _, limits = limits_for(compute_type)
    deep = limits.deep(layers)
    usual = deep.tokens if kind is PointKind.VALUE and point == "token_losses" else deep.gradient
    measured = MARGIN * honest if math.isfinite(honest) else 0.0
    limit = max(usual, measured) * (SKETCHED if estimated else 1.0)
    return TruthDistance(error, norm, honest, limits.eps, limit, estimated)


def choice(others: float, tokens: int, honest: float, *, compute_type: str) -> TruthDistance:
    """A side's distance at a router: the share of its ``tokens`` that it gave to ``others`` than the truth would have, on the way that
    these tokens came; ``honest`` is how many the same model gives to others in the side's compute type. A rounding is one token."""
    _, limits = limits_for(compute_type)
    size = max(tokens, 1)
    return TruthDistance(others / size, size, honest / size, 1 / size, max(limits.ties, ALWAYS / size, MARGIN * honest / size))


@dataclass(frozen=True, slots=True)
class JudgedPoint:
    """One point: the distances of the sides that recorded it, and how far these are ``apart``, None where that is not known."""

    point: str
    kind: PointKind
    distances: Mapping[Side, TruthDistance]
    apart: float | None = None

    def right(self, side: Side) -> bool:
        """Whether a side is right, as far as is known."""
        return side not in self.distances or self.distances[side].right

    @property
    def ruling(self) -> Ruling:
        """Who is right at this point."""
        return RULINGS[self.right(Side.REFERENCE), self.right(Side.CANDIDATE)]

    @property
    def closer(self) -> Side | None:
        """The side that is closer to the truth, None where both are as close or one did not record the point."""
        if len(self.distances) < len(SIDES):
            return None
        ours, theirs = (self.distances[side].error for side in SIDES)
        if ours == theirs or (math.isnan(ours) and math.isnan(theirs)):
            return None
        return Side.REFERENCE if ours < theirs or math.isnan(theirs) else Side.CANDIDATE

    @property
    def worst(self) -> float:
        """The error of the side that is further away, over its limit; NaN and infinity are infinitely far."""
        return max((each.limit_ratio for each in self.distances.values()), default=0.0)


@dataclass(frozen=True, slots=True)
class Arbitration:
    """Everything that a report needs. ``points`` are in the order of execution, forward and then backward. ``alike`` says whether both
    sides stand on the same weights and batch; else each is held against the truth of its own. ``settings`` are what differs in what the
    truth is made of, which is the reference's. ``doubts`` are why nothing can be said of a side that seems wrong, ``notes`` what a reader
    should know.
    """

    step: int
    points: tuple[JudgedPoint, ...]
    alike: bool
    compute_types: Mapping[Side, str]
    settings: tuple[Finding, ...] = ()
    doubts: tuple[Words, ...] = ()
    notes: tuple[Words, ...] = ()
    sides: tuple[RunSummary, ...] = ()

    @property
    def ruling(self) -> Ruling:
        """Who is right. Nothing compared is never right, nor are sides that stand on different weights and each do right by their own."""
        recorded = [side for side in SIDES if any(side in judged.distances for judged in self.points)]
        if len(recorded) < len(SIDES):
            return Ruling.UNDECIDED
        ruling = RULINGS[self.right(Side.REFERENCE), self.right(Side.CANDIDATE)]
        open_ended = bool(self.doubts) if ruling is not Ruling.BOTH_RIGHT else not self.alike
        return Ruling.UNDECIDED if open_ended else ruling

    @property
    def exit_code(self) -> int:
        """As scripts read it."""
        return self.ruling.exit_code

    def right(self, side: Side) -> bool:
        """Whether a side is right at every point, but for those behind which all is right."""
        return self.first(side) is None

    def first(self, side: Side) -> JudgedPoint | None:
        """The first point at which a side leaves the truth, None where all that it leaves comes back to it."""
        wrong = [judged for judged in self.points if not judged.right(side)]
        return wrong[0] if len(wrong) > len(self.healed(side)) else None

    def healed(self, side: Side) -> list[JudgedPoint]:
        """Points at which a side is off and all that is made from them is right, as where positions begin at 1: the same function, written
        otherwise. Only what is recorded behind a point can say so. A gradient is handed back to what its point is made from."""
        found: list[JudgedPoint] = []
        for kind in (PointKind.VALUE, PointKind.GRADIENT):
            of_kind = {judged.point: judged for judged in self.points if side in judged.distances and judged.kind is kind}
            made_from = sources(of_kind)
            behind = consumers(made_from) if kind is PointKind.VALUE else made_from
            limit_ratio = {name: judged.distances[side].limit_ratio for name, judged in of_kind.items()}
            found += [of_kind[name] for name in healed(limit_ratio, list(of_kind), behind)]
        return found

    @property
    def first_wrong(self) -> JudgedPoint | None:
        """The first point at which a side that is wrong leaves the truth."""
        firsts = [first for side in SIDES if (first := self.first(side)) is not None]
        return min(firsts, key=self.points.index, default=None)

    @property
    def agreed(self) -> bool:
        """Whether both leave the truth at the same point, and agree there with each other."""
        first = self.first_wrong
        if first is None or first.ruling is not Ruling.NEITHER_RIGHT or first.apart is None:
            return False
        return first.apart <= max(each.limit for each in first.distances.values())
