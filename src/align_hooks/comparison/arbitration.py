"""Decide which of two sides is right, from each point's distance to the truth.

The truth is the same model on the same weights and batch in fp64 (``oracle``), and distances are relative to its norm. The ``honest``
distance of a point is measured: that of the same model in the run's compute type. A side is wrong where it is further away than
:data:`MARGIN` times that, and than ``compare`` lets two honest runs be."""

from __future__ import annotations

import math
from collections.abc import Mapping

from msgspec import Struct

from align_hooks.comparison.data.routing import ALWAYS
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
    """What is measured at a point."""

    VALUE = "value"
    CHOICE = "choice"
    """The share of tokens that a router gives to other experts."""
    TERM = "term"
    GRADIENT = "gradient"
    PARAMETER = "parameter_gradient"
    """The gradient of a parameter, of all rows together."""


class Ruling(Judgement):
    """Who is right, with the exit code of the contract."""

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
"""Whether reference and candidate are right, to the ruling."""


class TruthDistance(Struct, frozen=True):
    """The distance of a side from the truth at a point."""

    error: float
    """Relative to ``norm``."""
    norm: float
    """Of the truth."""
    honest: float
    """Relative distance of the same model in the side's compute type."""
    eps: float
    limit: float
    estimated: bool = False
    """Whether the error is estimated from sketches."""

    @property
    def roundings(self) -> float:
        """Return the error in roundings of the compute type."""
        return self.error / self.eps

    @property
    def limit_ratio(self) -> float:
        """Return the error over its limit; infinite for NaN."""
        return self.error / self.limit if math.isfinite(self.error) else math.inf

    @property
    def right(self) -> bool:
        """Return whether the side is within its limit. NaN is wrong."""
        return self.error <= self.limit


def distance(
    kind: PointKind, point: str, error: float, norm: float, honest: float, *, compute_type: str, layers: int, estimated: bool = False
) -> TruthDistance:
    """Return a side's distance; the limit is ``compare``'s for ``layers``, or :data:`MARGIN` times ``honest`` where that is more."""
    limits = limits_for(compute_type)[1].deep(layers)
    usual = limits.tokens if kind is PointKind.VALUE and point == "token_losses" else limits.gradient
    limit = max(usual, MARGIN * honest if math.isfinite(honest) else 0.0)
    return TruthDistance(error, norm, honest, limits.eps, limit * (SKETCHED if estimated else 1.0), estimated)


def choice(others: float, tokens: int, honest: float, *, compute_type: str) -> TruthDistance:
    """Return a side's distance at a router: the share of ``tokens`` that it gave to ``others`` than the truth would, on the same inputs.

    ``honest`` is the number that the same model moves in the side's compute type. A rounding is one token."""
    ties, size = limits_for(compute_type)[1].ties, max(tokens, 1)
    return TruthDistance(others / size, size, honest / size, 1 / size, max(ties, ALWAYS / size, MARGIN * honest / size))


class JudgedPoint(Struct, frozen=True):
    """One point."""

    point: str
    kind: PointKind
    distances: Mapping[Side, TruthDistance]
    """Of the sides that recorded the point."""
    apart: float | None = None
    """Distance of the sides from each other, relative; None where unknown."""

    def right(self, side: Side) -> bool:
        """Return whether a side is right, as far as is known."""
        return side not in self.distances or self.distances[side].right

    @property
    def ruling(self) -> Ruling:
        """Return who is right at this point."""
        return RULINGS[self.right(Side.REFERENCE), self.right(Side.CANDIDATE)]

    @property
    def closer(self) -> Side | None:
        """Return the side closer to the truth; None where both are as close, or one did not record the point."""
        errors = {side: each.error if not math.isnan(each.error) else math.inf for side, each in self.distances.items()}
        return min(errors, key=errors.__getitem__) if len({*errors.values()}) == len(SIDES) else None

    @property
    def worst(self) -> float:
        """Return the limit ratio of the side further away."""
        return max((each.limit_ratio for each in self.distances.values()), default=0.0)


class Arbitration(Struct, frozen=True):
    """The points of one step, and the ruling on them."""

    step: int
    points: tuple[JudgedPoint, ...]
    """In the order of execution, forward and then backward."""
    alike: bool
    """Whether both sides have the same weights and batch; else each is compared with its own truth."""
    compute_types: Mapping[Side, str]
    settings: tuple[Finding, ...] = ()
    """Differing settings; the truth has the reference's."""
    doubts: tuple[Words, ...] = ()
    """Reasons not to rule against a side that seems wrong."""
    notes: tuple[Words, ...] = ()
    sides: tuple[RunSummary, ...] = ()

    @property
    def ruling(self) -> Ruling:
        """Return who is right; undecided where nothing was compared, or sides of different weights are each right by their own."""
        recorded = {side for judged in self.points for side in judged.distances}
        ruling = RULINGS[self.right(Side.REFERENCE), self.right(Side.CANDIDATE)]
        undecided = bool(self.doubts) if ruling is not Ruling.BOTH_RIGHT else not self.alike
        return Ruling.UNDECIDED if undecided or len(recorded) < len(SIDES) else ruling

    def right(self, side: Side) -> bool:
        """Return whether a side is right at every point, but for healed ones."""
        return self.first(side) is None

    def first(self, side: Side) -> JudgedPoint | None:
        """Return the first point at which a side leaves the truth; None where all its errors heal."""
        wrong = [judged for judged in self.points if not judged.right(side)]
        return wrong[0] if len(wrong) > len(self.healed(side)) else None

    def healed(self, side: Side) -> list[JudgedPoint]:
        """Return wrong points of a side from which only right points are made: the same function written otherwise."""
        found: list[JudgedPoint] = []
        for kind in (PointKind.VALUE, PointKind.GRADIENT):
            of_kind = {judged.point: judged for judged in self.points if side in judged.distances and judged.kind is kind}
            made_from = sources(of_kind)
            behind = consumers(made_from) if kind is PointKind.VALUE else made_from  # gradients go back to the sources
            limit_ratio = {name: judged.distances[side].limit_ratio for name, judged in of_kind.items()}
            found += [of_kind[name] for name in healed(limit_ratio, list(of_kind), behind)]
        return found

    @property
    def first_wrong(self) -> JudgedPoint | None:
        """Return the first point at which a wrong side leaves the truth."""
        firsts = [first for side in SIDES if (first := self.first(side)) is not None]
        return min(firsts, key=self.points.index, default=None)

    @property
    def agreed(self) -> bool:
        """Return whether both leave the truth at the same point, and agree there with each other."""
        first = self.first_wrong
        if first is None or first.ruling is not Ruling.NEITHER_RIGHT or first.apart is None:
            return False
        return first.apart <= max(each.limit for each in first.distances.values())
