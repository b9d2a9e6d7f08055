"""Curves and norms as plots: what a page's script draws, and what is said beside it, where it cannot be seen."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from align_hooks.comparison.finding import Finding, Metric, Value, at_step, when
from align_hooks.comparison.metrics.limits import SETTING
from align_hooks.comparison.metrics.model_positions import place
from align_hooks.comparison.stages.local_norms import local_norms
from align_hooks.comparison.verdict import ComparisonResult, Curve
from align_hooks.messages import Argument, Joined, Message, message, sentences
from align_hooks.record.format.schema import Table
from align_hooks.report.console import plain
from align_hooks.report.text import shown
from align_hooks.report.thinned import drawn

TITLES: dict[str, Argument] = {
    "loss": Metric.LOSS,
    "grad_norm": message("page.global_gradient_norm"),
    "learning_rate": Metric.LEARNING_RATE,
}
"""Names of the curves, on pages and on a terminal."""
DIGITS = {"a": 9, "b": 9, "d": 4, "limit": 4, "noise": 4}
"""Significant digits of each series of a plot."""
PLAIN = 10
"""How many times its limit a difference may be on a linear axis; what is further out would flatten the limit to a line."""


class Axis(NamedTuple):
    """The axis of differences, as signals of :func:`.plots.steps`: whether it is ``plain``, else beyond ``small`` logarithmic, and its
    ``ticks``: the ends, the limit, zero."""

    plain: bool
    small: float
    ticks: list[float]


def curve_plot(curve: Curve) -> Table:
    """A number of every step, or of a long run of the steps that show most, with what to say of it where it cannot be seen."""
    kept, name = drawn(curve), TITLES.get(curve.name, curve.name)
    series = series_of(curve, kept)
    thinned = message("page.thinned", count=len(kept)) if len(kept) < len(curve.steps) else None
    said = sentences(curve_text(curve), thinned)
    return {
        **plot(f"plot-{curve.name}", "steps", name, said, [curve.steps[index] for index in kept], series),
        "single": not curve.candidate,
        "axis": axis_of(series["d"], series["limit"])._asdict(),
    }


def series_of(curve: Curve, kept: Sequence[int]) -> dict[str, list[Value]]:
    """The series of a curve at the indices ``kept``; a series that it lacks is empty."""
    whole = {"a": curve.reference, "b": curve.candidate, "d": curve.differences, "limit": curve.limits, "noise": curve.noise}
    return {key: [values[index] for index in kept] if values else [] for key, values in whole.items()}


def axis_of(differences: Sequence[Value], limits: Sequence[Value]) -> Axis:
    """The axis on which some differences are seen beside their limits."""
    known, bounds = numbers(differences), [value for value in numbers(limits) if value > 0]
    low, high, limit = min([0.0, *known]), max([0.0, *known]), max(bounds, default=0.0)
    furthest = max(-low, high)
    is_plain = furthest <= PLAIN * limit or not limit
    ends = [end for end in (low, high) if abs(end) > 3 * limit]
    small = 1e3 * (furthest or limit or 1e-6) if is_plain else limit
    return Axis(is_plain, small, [float(f"{tick:.4g}") for tick in (*ends, -limit, 0.0, limit)])


def numbers(values: Sequence[Value]) -> list[float]:
    """What is a finite number."""
    return [value for value in values if isinstance(value, int | float) and math.isfinite(value)]


def is_constant(curve: Curve) -> bool:
    """Whether a curve is one number on both sides, of which a sentence says all. A rate in fp32 and one in fp64 are one number: an axis of
    how far they are apart shows nothing else."""
    values = [*curve.reference, *curve.candidate]
    known = numbers(values)
    return bool(curve.candidate) and len(known) == len(values) and max(known) - min(known) <= SETTING * max(map(abs, known))


def plot(id: str, spec: str, title: Argument, text: Argument, x: Sequence[int], series: Mapping[str, Sequence[Value]]) -> Table:
    """A plot of a specification (``spec``): its address, what the template writes beside it, and its rows column by column."""
    columns = {name: [rounded(value, DIGITS[name]) for value in values] for name, values in series.items()}
    return {"id": id, "spec": spec, "title": title, "text": text, "x": list(x), **columns}


def rounded(value: Value, digits: int) -> float | None:
    """A number to so many significant digits, which is what a page shows; None of what is no number."""
    return float(f"{value:.{digits}g}") if isinstance(value, int | float) else None


# ---- what is said of a curve


def curve_text(curve: Curve) -> Joined:
    """What there is to say of a curve: how far it is apart where there are two sides, else where it leads."""
    lost = sum(value is None or not math.isfinite(value) for value in (*curve.reference, *curve.candidate))
    gaps = message("page.values_missing", count=lost) if lost else None
    known = [(abs(value), step) for value, step in zip(curve.differences, curve.steps, strict=False) if value is not None]
    counted = message("steps.count", count=len(curve.steps))
    if not known:
        return sentences(counted, range_of(curve), gaps)
    largest, step = max(known, key=lambda pair: (math.inf if math.isnan(pair[0]) else pair[0], -pair[1]))
    return sentences(counted, message("page.largest_difference", difference=largest, step=when(step)), beyond_limits(curve), gaps)


def range_of(curve: Curve) -> Message | None:
    """Where the curve of a reference begins and ends, and between which values it lies."""
    values = [value for value in curve.reference if value is not None and math.isfinite(value)]
    return message("page.range", first=values[0], last=values[-1], lowest=min(values), highest=max(values)) if values else None


def beyond_limits(curve: Curve) -> Message | None:
    """At how many steps a curve is beyond its limit."""
    rows = zip(curve.differences, curve.steps, curve.limits, strict=False)
    beyond = [step for value, step, limit in rows if value is not None and not abs(value) <= limit]
    return message("page.beyond_at", count=len(beyond), step=when(beyond[0])) if beyond else None


# ---- norms


def norms_plot(comparison: ComparisonResult) -> Table | None:
    """Local norms of the first common step, in the model's order; None where none were compared."""
    norms = [
        finding
        for result in comparison.stages
        if result.stage is local_norms
        for finding in result.findings
        if finding.name and finding.step is not None
    ]
    if not norms:
        return None
    first = min(finding.step or 0 for finding in norms)
    norms = sorted((finding for finding in norms if finding.step == first), key=lambda finding: place(finding.name))
    layers = [place(finding.name).column for finding in norms]
    starts = [index for index, layer in enumerate(layers) if index == 0 or layers[index - 1] != layer]
    furthest = max(norms, key=lambda finding: finding.limit_ratio)
    series: dict[str, list[Value]] = {
        "a": [finding.reference for finding in norms],
        "b": [finding.candidate for finding in norms],
        "d": [finding.error for finding in norms],
        "limit": [finding.limit for finding in norms],
        "noise": [],
    }
    text = sentences(message("page.tensors_counted", count=len(norms)), furthest_norm(furthest))
    return {
        **plot("plot-norms", "tensors", at_step(message("stage.local_norms"), first), text, range(len(norms)), series),
        "names": [plain(finding.name) for finding in norms],
        "starts": starts,
        "labels": [layers[index] for index in starts],
    }


def furthest_norm(finding: Finding) -> Message:
    """What is said of the norm that is furthest from the other side's."""
    if not finding.error:
        return message("page.all_equal")
    return message(
        "page.norm_furthest_beyond" if finding.limit_ratio > 1 else "page.norm_closest",
        name=finding.name,
        reference=shown(finding.reference),
        candidate=shown(finding.candidate),
    )
