"""The loss at a glance: both losses and their difference as a small picture of the first screen.

It is drawn where the page is made, so it is there before a script runs, without one, and on paper. It is a few lines, which need no
library: the one that draws the large plots in a browser ends a process whose address space is limited (``ulimit -v``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypeAlias

from align_hooks.comparison.finding import Value
from align_hooks.comparison.verdict import Curve
from align_hooks.messages import Argument, Joined
from align_hooks.report.curve_plots import TITLES, axis_of, curve_text, numbers, series_of
from align_hooks.report.thinned import drawn

MOST = 400
"""Steps that are shown of a long curve."""
WIDTH, LEFT, RIGHT = 440, 62, 434
"""Of the picture, and where its panels begin and end, in pixels."""
UPPER, LOWER = (8, 100), (130, 182)
"""Where the panels of the losses and of their difference begin and end, from above."""
APART = 11
"""Pixels between two labels of an axis that are told apart."""
Scale: TypeAlias = Callable[[float], float]
"""A number to its place on an axis, in pixels."""
Ticks: TypeAlias = Sequence[tuple[float, str]]
"""Places on an axis, in pixels, and their labels."""


@dataclass(frozen=True, slots=True)
class Glance:
    """The picture as paths and ticks, with what to say of it. ``difference``, ``band``, ``noise`` and ``lower`` are empty of a run alone;
    ``is_plain`` says that the axis of differences is linear throughout."""

    name: Argument
    text: Joined
    across: Ticks
    upper: Ticks
    lower: Ticks
    reference: str
    candidate: str
    difference: str
    band: str
    noise: str
    is_plain: bool


def glance(curves: Sequence[Curve]) -> Glance | None:
    """The picture of the loss; None where there are no losses."""
    curve = next((curve for curve in curves if curve.name == "loss"), None)
    losses = numbers([*curve.reference, *curve.candidate]) if curve else []
    if curve is None or not losses:
        return None
    kept = drawn(curve, MOST)
    series, steps = series_of(curve, kept), [curve.steps[index] for index in kept]
    axis = axis_of(series["d"], series["limit"])
    bounds = [*numbers(series["d"]), *numbers(series["limit"]), *(-limit for limit in numbers(series["limit"])), 0.0]
    rungs = nice(min(losses), max(losses), 3)
    x = linear(steps[0], steps[-1], LEFT, RIGHT)
    upper = linear(min(rungs[0], *losses), max(rungs[-1], *losses), UPPER[1], UPPER[0])
    lower = bent(min(bounds), max(bounds), axis.small)
    return Glance(
        TITLES["loss"],
        curve_text(curve),
        [(x(step), f"{step:.0f}") for step in nice(steps[0], steps[-1], 8, least=1)],
        [(upper(rung), short(rung)) for rung in rungs],
        apart([(lower(tick), short(tick)) for tick in axis.ticks]) if curve.candidate else [],
        line(steps, series["a"], x, upper),
        line(steps, series["b"], x, upper),
        line(steps, series["d"], x, lower),
        area(steps, series["limit"], x, lower),
        area(steps, series["noise"], x, lower),
        axis.plain,
    )


# ---- axes


def linear(low: float, high: float, first: float, last: float) -> Scale:
    """A linear scale; of one number alone, or of what no float spans, its middle."""
    if low == high or not math.isfinite(high - low):
        return lambda value: (first + last) / 2
    return lambda value: first + (value - low) / (high - low) * (last - first)


def bent(low: float, high: float, small: float) -> Scale:
    """The scale of differences: linear up to ``small`` and logarithmic beyond."""

    def log(value: float) -> float:
        return math.copysign(math.log1p(abs(value) / small), value)

    straight = linear(log(low), log(high), LOWER[1], LOWER[0])
    return lambda value: straight(log(value))


def nice(low: float, high: float, count: int, least: float = 0.0) -> list[float]:
    """Round numbers between two others, about ``count`` of them and no closer than ``least``; the lower one where there is none."""
    if not math.isfinite(high - low) or low == high:
        return [low]
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = max(least, next((power * factor for factor in (1, 2, 5) if power * factor >= rough), power * 10))
    return [number * step for number in range(math.ceil(low / step), math.floor(high / step) + 1)] or [low]


def apart(ticks: Ticks) -> list[tuple[float, str]]:
    """Ticks whose labels do not run into those before them."""
    kept: list[tuple[float, str]] = []
    for place, label in ticks:
        if all(abs(place - other) >= APART for other, _ in kept):
            kept.append((place, label))
    return kept


def short(value: float) -> str:
    """A number as an axis has it: ``0.05``, ``1.8e-5``."""
    if value < 0:
        return f"−{short(-value)}"
    if value == 0 or 1e-2 <= value < 1e4:
        return f"{value:.3g}" if value < 1e3 else f"{value:.0f}"
    digits, power = f"{value:.1e}".split("e")
    return f"{digits.removesuffix('.0')}e{int(power)}"


# ---- lines


def line(steps: Sequence[int], values: Sequence[Value], x: Scale, y: Scale) -> str:
    """A line through values, as the path of an SVG; what is no finite number leaves a gap, and a value between two gaps is a dash."""
    parts = stretches(steps, values, lambda step, value: at(x(step), y(value)))
    return "".join("M" + "L".join(points) + ("m-4,0h8" if len(points) == 1 else "") for points in parts)


def area(steps: Sequence[int], values: Sequence[Value], x: Scale, y: Scale) -> str:
    """The area between values and their negatives, as the path of an SVG."""
    sides = zip(
        stretches(steps, values, lambda step, value: at(x(step), y(value))),
        stretches(steps, values, lambda step, value: at(x(step), y(-value))),
        strict=True,
    )
    return "".join("M" + "L".join([*above, *reversed(below)]) + "Z" for above, below in sides)


def stretches(steps: Sequence[int], values: Sequence[Value], point: Callable[[int, float], str]) -> Iterator[list[str]]:
    """The points of each stretch of neighbours that are finite numbers."""
    for is_known, part in groupby(zip(steps, values, strict=False), key=lambda pair: bool(numbers([pair[1]]))):
        if is_known:
            yield [point(step, *numbers([value])) for step, value in part]


def at(x: float, y: float) -> str:
    """A point of a path."""
    return f"{x:.1f},{y:.1f}"
