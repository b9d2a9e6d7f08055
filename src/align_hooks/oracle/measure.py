"""The distance of each side from the truth at every point, as sums of squares over rows, added up while both passes run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import lru_cache

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from align_hooks.comparison.arbitration import SIDES, JudgedPoint, PointKind, TruthDistance, choice, distance
from align_hooks.comparison.distances import error_of_sketches
from align_hooks.comparison.metrics.measures import ratio
from align_hooks.messages import Side, message
from align_hooks.messages.progress import Progress, silent
from align_hooks.oracle.inputs import Inputs, size
from align_hooks.oracle.model import TRUTH
from align_hooks.oracle.passes import Pass
from align_hooks.oracle.points import PointRows, Recorded
from align_hooks.record.format.layout import Array
from align_hooks.record.format.schema import Table
from align_hooks.record.format.shard import Shard
from align_hooks.record.format.sketch import PROJECTIONS, sketch
from align_hooks.record.read.activations import SQUARES, column_signs, row_signs
from align_hooks.record.read.activations import measured as of_tokens

COLUMNS = lru_cache(maxsize=64)(column_signs)
"""The signs of a point's columns, kept for its other rows."""


class Sums(Struct):
    """Squared sums of a point over the rows seen so far."""

    truth: float = 0.0
    honest: float = 0.0
    """Of the honest model's distance from the truth."""
    truths: dict[Side, float] = field(default_factory=dict)
    """Of the truth, by the factor of the side."""
    errors: dict[Side, float] = field(default_factory=dict)
    """Of the side's distance from the truth."""
    between: float | None = None
    """Of the distance between the sides; None where one has no tensor."""
    sketches: dict[Side, tuple[float, NDArray[np.float64]]] = field(default_factory=dict)
    """Factor of the truth, and the side's sketch of all rows."""
    numbers: NDArray[np.float64] | None = None
    """The truth's sketch; None where no side has one."""

    def add(self, part: PointRows, beside: PointRows, sides: Mapping[Side, Recorded], sequence: int) -> None:
        """Add some rows of the truth, and the honest model's ``beside``, where a side recorded them."""
        pairs = {side: pair for side, recorded in sides.items() if (pair := recorded.pair(part)) is not None}
        sketches = {side: found for side, recorded in sides.items() if (found := recorded.sketch(part)) is not None}
        if not (pairs or sketches):
            return
        self.truth += squared(part.array)
        with np.errstate(invalid="ignore", over="ignore"):
            self.honest += distance_squared(beside.array, part.array)
            for side, (ours, theirs) in pairs.items():
                self.truths[side] = self.truths.get(side, 0.0) + squared(ours)
                self.errors[side] = self.errors.get(side, 0.0) + distance_squared(theirs, ours)
            if len(pairs) > 1:
                (_, first), (_, second) = pairs.values()
                self.between = (self.between or 0.0) + distance_squared(second, first)
        if sketches:
            numbers = truth_sketch(part, sequence)
            self.numbers = numbers if self.numbers is None else self.numbers + numbers  # sketches of rows add up
            self.sketches |= {side: (sides[side].factor(part), found) for side, found in sketches.items()}

    def sketched(self) -> dict[Side, float]:
        """Return the error of each side that has a sketch."""
        if self.numbers is None:
            return {}
        square, sums = self.numbers[:1], self.numbers[1:]
        return {
            side: error_of_sketches(np.concatenate([square * factor**2, sums * factor]), found)
            for side, (factor, found) in self.sketches.items()
        }


class RouterChoices(Struct):
    """How many of a router's tokens go to other experts than the truth chooses."""

    tokens: int = 0
    honest: int = 0
    """Tokens that the honest model gives to other experts."""
    others: dict[Side, float] = field(default_factory=dict)
    """Tokens that a side gives to other experts; of a side with counts alone, at least so many."""
    counts: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    """The truth's tokens of each expert."""

    def add(self, part: PointRows, beside: PointRows, sides: Mapping[Side, Recorded], sequence: int) -> None:
        """Add some rows of the truth, and the same rows of the honest model, ``beside``."""
        rows, width = slice(part.first, part.first + len(part.array)), part.array.shape[-1]
        self.tokens += part.array.size // width
        self.honest += others(part.array, beside.array)
        experts = max(len(side.counts.get(part.point, ())) for side in sides.values())
        self.counts = summed(self.counts, np.bincount(part.array.reshape(-1), minlength=experts))
        for side, recorded in sides.items():
            if part.point in recorded.choices:
                self.others[side] = self.others.get(side, 0) + others(part.array, recorded.choices[part.point][rows])
            elif part.point in recorded.counts:
                self.others[side] = float(np.abs(summed(self.counts, -recorded.counts[part.point])).sum()) / 2


PassSums = dict[tuple[str, PointKind], Sums | RouterChoices]


def summed(ours: Array, theirs: Array) -> Array:
    """Return the sum of two counts by expert; the shorter one lacks the last experts."""
    total = np.zeros(max(len(ours), len(theirs)), np.int64)
    total[: len(ours)] += ours
    total[: len(theirs)] += theirs
    return total


def others(ours: Array, theirs: Array) -> int:
    """Return how many tokens have other experts, from ``[rows, sequence, chosen]``; all where the shapes differ."""
    return int((ours != theirs).any(axis=-1).sum()) if ours.shape == theirs.shape else ours.size // ours.shape[-1]


def measured(configuration: Table, inputs: Inputs, sides: Mapping[Side, Recorded], progress: Progress = silent) -> Iterator[JudgedPoint]:
    """Yield every point that a side recorded, judged by the model of ``configuration`` on ``inputs``, in the order of execution."""
    truth, honest = Pass(configuration, inputs, TRUTH), Pass(configuration, inputs, inputs.compute_type)

    def sums_of(true: Iterator[PointRows], beside: Iterator[PointRows]) -> PassSums:
        sums: PassSums = {}
        for part, honest_part in zip(true, beside, strict=True):
            progress(message("arbitrate.point", name=part.point))
            made: Sums | RouterChoices = RouterChoices() if part.kind is PointKind.CHOICE else Sums()
            sums.setdefault((part.point, part.kind), made).add(part, honest_part, sides, inputs.shape[1])
        return sums

    yield from _judged(sums_of(truth.values(), honest.values()), inputs)
    if any(side.holds_gradients for side in sides.values()):
        yield from _judged(sums_of(truth.gradients(), honest.gradients()), inputs)


def truth_sketch(part: PointRows, sequence: int) -> NDArray[np.float64]:
    """Return the sketch of some rows of the truth, with the signs that records use."""
    if part.kind is PointKind.PARAMETER:
        return sketch(part.array, Shard(part.point, part.array.shape, part.point, "float64"))
    tokens = part.array.reshape(-1, part.array.shape[-1] if part.array.ndim == 3 or part.tokens is not None else 1)
    first = part.first * sequence
    rows = row_signs(None, len(tokens)) if part.tokens is not None else row_signs(np.arange(first, first + len(tokens)))
    numbers = of_tokens(tokens, rows, COLUMNS((0, tokens.shape[1])))
    return np.concatenate([[numbers[SQUARES]], numbers[-PROJECTIONS:]])


def squared(array: Array) -> float:
    """Return the sum of an array's squares, fp64."""
    flat = array.reshape(-1)
    return float(flat @ flat)


def distance_squared(ours: Array, theirs: Array) -> float:
    """Return the squared distance of two arrays; NaN where their shapes differ."""
    return squared(ours - theirs) if ours.shape == theirs.shape else math.nan


def _judged(sums: PassSums, inputs: Inputs) -> Iterator[JudgedPoint]:
    deep = size(inputs.facts.model, "num_hidden_layers") or 1
    for (point, kind), of_point in sums.items():
        if isinstance(of_point, RouterChoices):
            if of_point.others:
                wrong = of_point.others.items()
                found = {side: choice(n, of_point.tokens, of_point.honest, compute_type=inputs.compute_type) for side, n in wrong}
                yield JudgedPoint(point, kind, found)
            continue
        honest = ratio(math.sqrt(of_point.honest), math.sqrt(of_point.truth))
        distances: dict[Side, TruthDistance] = {}
        sketched = of_point.sketched()
        for side in (*of_point.errors, *sketched):
            known = side in of_point.errors
            norm = math.sqrt(of_point.truths[side] if known else of_point.truth)
            error = ratio(math.sqrt(of_point.errors[side]), norm) if known else sketched[side]
            distances[side] = distance(kind, point, error, norm, honest, compute_type=inputs.compute_type, layers=deep, estimated=not known)
        between = None if of_point.between is None else ratio(math.sqrt(of_point.between), math.sqrt(of_point.truth))
        if len(of_point.sketches) == len(SIDES):
            between = error_of_sketches(*(found for _, found in of_point.sketches.values()))
        if distances:
            yield JudgedPoint(point, kind, distances, between)
