"""The loss at a glance: both losses and their difference as a small picture of the first screen.

The picture is part of the page's file, and so needs no script, and is there on paper. It is drawn without a library: vl_convert,
which could draw the large plots here too, ends a process whose address space is limited (``ulimit -v``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import TypeAlias

from msgspec import Struct

from align_hooks.comparison.finding import Value
from align_hooks.comparison.verdict import Curve
from align_hooks.messages import Argument, Joined
from align_hooks.report.curve_plots import TITLES, axis_of, curve_text, numbers, series_of
from align_hooks.report.thinned import drawn

MOST = 400
"""The most steps of a curve that are shown."""
LEFT, RIGHT = 62, 434
"""The left and right ends of the panels in pixels, of a picture that is 440 wide in ``web/parts.html``."""
UPPER, LOWER = (8, 100), (130, 182)
"""Top and bottom of the panel of the losses, and of the panel of their difference, in pixels."""
SPACING = 11
"""The least number of pixels between two labels of an axis."""
Scale: TypeAlias = Callable[[float], float]
"""A function from a number to its place on an axis, in pixels."""
Ticks: TypeAlias = Sequence[tuple[float, str]]
"""Places on an axis, in pixels, and their labels."""


class Glance(Struct, frozen=True):
    """The picture as ticks and SVG paths; of a single run, what concerns differences is empty."""

    name: Argument
    text: Joined
    across: Ticks
    upper: Ticks
    lower: Ticks
    reference: str
    candidate: str
    difference: str
    band: str
    """The area within limits."""
    noise: str
    is_plain: bool
    """Whether the axis of differences is linear throughout."""


def glance(curves: Sequence[Curve]) -> Glance | None:
    """Return the picture of the loss; None where there are no losses."""
    curve = next((curve for curve in curves if curve.name == "loss"), None)
    losses = numbers([*curve.reference, *curve.candidate]) if curve else []
    if curve is None or not losses:
        return None
    kept = drawn(curve, MOST)
    series, steps = series_of(curve, kept), [curve.steps[index] for index in kept]
    axis = axis_of(series["d"], series["limit"])
    limits = numbers(series["limit"])
    bounds = [*numbers(series["d"]), *limits, *(-limit for limit in limits), 0.0]
    levels = nice(min(losses), max(losses), 3)
    x = linear(steps[0], steps[-1], LEFT, RIGHT)
    upper = linear(min(levels[0], *losses), max(levels[-1], *losses), UPPER[1], UPPER[0])
    lower = bent(min(bounds), max(bounds), axis.small)
    return Glance(
        TITLES["loss"],
        curve_text(curve),
        [(x(step), f"{step:.0f}") for step in nice(steps[0], steps[-1], 8, least=1)],
        [(upper(level), short(level)) for level in levels],
        spaced([(lower(tick), short(tick)) for tick in axis.ticks]) if curve.candidate else [],
        line(steps, series["a"], x, upper),
        line(steps, series["b"], x, upper),
        line(steps, series["d"], x, lower),
        area(steps, series["limit"], x, lower),
        area(steps, series["noise"], x, lower),
        axis.plain,
    )


def linear(low: float, high: float, first: float, last: float) -> Scale:
    """Return a linear scale; of a single number, or of a range that no float spans, a constant."""
    if low == high or not math.isfinite(high - low):
        return lambda value: (first + last) / 2
    return lambda value: first + (value - low) / (high - low) * (last - first)


def bent(low: float, high: float, small: float) -> Scale:
    """Return the scale of differences: linear up to ``small``, logarithmic above."""

    def log(value: float) -> float:
        return math.copysign(math.log1p(abs(value) / small), value)

    straight = linear(log(low), log(high), LOWER[1], LOWER[0])
    return lambda value: straight(log(value))


def nice(low: float, high: float, count: int, least: float = 0.0) -> list[float]:
    """Return about ``count`` round numbers in a range, no closer than ``least``; ``low`` where there is none."""
    if not math.isfinite(high - low) or low == high:
        return [low]
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = max(least, next((power * factor for factor in (1, 2, 5) if power * factor >= rough), power * 10))
    return [number * step for number in range(math.ceil(low / step), math.floor(high / step) + 1)] or [low]


def spaced(ticks: Ticks) -> list[tuple[float, str]]:
    """Return the ticks whose labels do not overlap earlier ones."""
    kept: list[tuple[float, str]] = []
    for place, label in ticks:
        if all(abs(place - other) >= SPACING for other, _ in kept):
            kept.append((place, label))
    return kept


def short(value: float) -> str:
    """Return the label of a number on an axis: ``0.05``, ``1.8e-5``."""
    if value < 0:
        return f"−{short(-value)}"
    if value == 0 or 1e-2 <= value < 1e4:
        return f"{value:.3g}" if value < 1e3 else f"{value:.0f}"
    digits, power = f"{value:.1e}".split("e")
    return f"{digits.removesuffix('.0')}e{int(power)}"


def line(steps: Sequence[int], values: Sequence[Value], x: Scale, y: Scale) -> str:
    """Return an SVG path through values, with a gap where a value is not finite; a value between two gaps is a dash."""
    return "".join("M" + "L".join(points) + ("m-4,0h8" if len(points) == 1 else "") for points in runs(steps, values, x, y))


def area(steps: Sequence[int], values: Sequence[Value], x: Scale, y: Scale) -> str:
    """Return the area between values and their negatives, as an SVG path."""
    sides = zip(runs(steps, values, x, y), runs(steps, values, x, lambda value: y(-value)), strict=True)
    return "".join("M" + "L".join([*above, *reversed(below)]) + "Z" for above, below in sides)


def runs(steps: Sequence[int], values: Sequence[Value], x: Scale, y: Scale) -> Iterator[list[str]]:
    """Yield the points of each run of neighbours that are finite numbers."""
    for is_known, part in groupby(zip(steps, values, strict=False), key=lambda pair: bool(numbers([pair[1]]))):
        if is_known:
            yield [f"{x(step):.1f},{y(*numbers([value])):.1f}" for step, value in part]
