"""Curves and norms as plots for a page's script, with a text for readers who cannot see them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from align_hooks.comparison.finding import Finding, Metric, Value, at_step, when
from align_hooks.comparison.metrics.limits import SETTING
from align_hooks.comparison.metrics.model_positions import place
from align_hooks.comparison.verdict import ComparisonResult, Curve
from align_hooks.messages import Argument, Joined, Message, message, sentences
from align_hooks.record.format.schema import Table
from align_hooks.report.console import plain
from align_hooks.report.findings import shown
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
"""How many times its limit a difference may be on a linear axis; a larger one would flatten the limit to a line."""


class Axis(NamedTuple):
    """The axis of differences, as signals of :func:`.plots.steps`."""

    plain: bool
    """Whether the axis is linear throughout."""
    small: float
    """The difference above which the axis is logarithmic, unless ``plain``."""
    ticks: list[float]
    """The ends, the limit on both sides, zero."""


def curve_plot(curve: Curve) -> Table:
    """Return the plot of a number at every step, or of a long run at the steps that show most."""
    kept, name = drawn(curve), TITLES.get(curve.name, curve.name)
    series = series_of(curve, kept)
    thinned = message("page.thinned", count=len(kept)) if len(kept) < len(curve.steps) else None
    text = sentences(curve_text(curve), thinned)
    return {
        **plot(f"plot-{curve.name}", "steps", name, text, [curve.steps[index] for index in kept], series),
        "single": not curve.candidate,
        "axis": axis_of(series["d"], series["limit"])._asdict(),
    }


def series_of(curve: Curve, kept: Sequence[int]) -> dict[str, list[Value]]:
    """Return the series of a curve at the indices ``kept``; a series that the curve lacks is empty."""
    series = {"a": curve.reference, "b": curve.candidate, "d": curve.differences, "limit": curve.limits, "noise": curve.noise}
    return {key: [values[index] for index in kept] if values else [] for key, values in series.items()}


def axis_of(differences: Sequence[Value], limits: Sequence[Value]) -> Axis:
    """Return an axis on which differences are visible beside their limits."""
    known, bounds = numbers(differences), [value for value in numbers(limits) if value > 0]
    low, high, limit = min([0.0, *known]), max([0.0, *known]), max(bounds, default=0.0)
    furthest = max(-low, high)
    is_plain = furthest <= PLAIN * limit or not limit
    ends = [end for end in (low, high) if abs(end) > 3 * limit]
    small = 1e3 * (furthest or limit or 1e-6) if is_plain else limit
    return Axis(is_plain, small, [float(f"{tick:.4g}") for tick in (*ends, -limit, 0.0, limit)])


def numbers(values: Sequence[Value]) -> list[float]:
    """Return the finite numbers of some values."""
    return [value for value in values if isinstance(value, int | float) and math.isfinite(value)]


def is_constant(curve: Curve) -> bool:
    """Return whether a curve is one number on both sides, which a sentence describes better than a plot."""
    values = [*curve.reference, *curve.candidate]
    known = numbers(values)
    # a rate in fp32 and the same in fp64 are one number
    return bool(curve.candidate) and len(known) == len(values) and max(known) - min(known) <= SETTING * max(map(abs, known))


def plot(id: str, spec: str, title: Argument, text: Argument, x: Sequence[int], series: Mapping[str, Sequence[Value]]) -> Table:
    """Return a plot by the specification ``spec``: its address, title and text, and its rows column by column."""
    columns = {name: [rounded(value, DIGITS[name]) for value in values] for name, values in series.items()}
    return {"id": id, "spec": spec, "title": title, "text": text, "x": list(x), **columns}


def rounded(value: Value, digits: int) -> float | None:
    """Return a number to the significant digits that a page shows; None of what is no number."""
    return float(f"{value:.{digits}g}") if isinstance(value, int | float) else None


def curve_text(curve: Curve) -> Joined:
    """Return a description of a curve: its largest difference, or the range of a single run."""
    lost = sum(value is None or not math.isfinite(value) for value in (*curve.reference, *curve.candidate))
    gaps = message("page.values_missing", count=lost) if lost else None
    known = [(abs(value), step) for value, step in zip(curve.differences, curve.steps, strict=False) if value is not None]
    counted = message("steps.count", count=len(curve.steps))
    if not known:
        values = numbers(curve.reference)
        span = message("page.range", first=values[0], last=values[-1], lowest=min(values), highest=max(values)) if values else None
        return sentences(counted, span, gaps)
    largest, step = max(known, key=lambda pair: (math.inf if math.isnan(pair[0]) else pair[0], -pair[1]))
    most = message("page.largest_difference", difference=largest, step=when(step))
    rows = zip(curve.differences, curve.steps, curve.limits, strict=False)
    violations = [step for value, step, limit in rows if value is not None and not abs(value) <= limit]
    beyond = message("page.beyond_at", count=len(violations), step=when(violations[0])) if violations else None
    return sentences(counted, most, beyond, gaps)


def norms_plot(comparison: ComparisonResult) -> Table | None:
    """Return the plot of local norms of the first common step, in the model's order; None where none were compared."""
    compared = next((result.findings for result in comparison.stages if result.name == "local norms"), ())
    norms = [finding for finding in compared if finding.name and finding.step is not None]
    if not norms:
        return None
    first = min(finding.step or 0 for finding in norms)
    norms = sorted((finding for finding in norms if finding.step == first), key=lambda finding: place(finding.name))
    layers = [place(finding.name).column for finding in norms]
    starts = [index for index, layer in enumerate(layers) if index == 0 or layers[index - 1] != layer]
    furthest = max(norms, key=lambda finding: finding.limit_ratio)
    fields = {"a": "reference", "b": "candidate", "d": "error", "limit": "limit"}
    series = {key: [getattr(finding, name) for finding in norms] for key, name in fields.items()} | {"noise": []}
    text = sentences(message("page.tensors_counted", count=len(norms)), furthest_norm(furthest))
    return {
        **plot("plot-norms", "tensors", at_step(message("stage.local_norms"), first), text, range(len(norms)), series),
        "names": [plain(finding.name) for finding in norms],
        "starts": starts,
        "labels": [layers[index] for index in starts],
    }


def furthest_norm(finding: Finding) -> Message:
    """Return a description of the norm that is furthest from the other side's."""
    if not finding.error:
        return message("page.all_equal")
    return message(
        "page.norm_furthest_beyond" if finding.limit_ratio > 1 else "page.norm_closest",
        name=finding.name,
        reference=shown(finding.reference),
        candidate=shown(finding.candidate),
    )
