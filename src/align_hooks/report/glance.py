"""The loss at a glance: both losses and their difference as a small picture of the first screen.

It is drawn where the page is made, so it is there before a script runs, without one, and on paper.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import cast

import vl_convert

from align_hooks.comparison.verdict import Curve, Value
from align_hooks.record.schema import Table
from align_hooks.report import plots
from align_hooks.report.curve_plots import axis_of, curve_text, numbers, rounded, series_of
from align_hooks.report.thinned import drawn
from align_hooks.report.titles import TITLES

WIDTH, MOST = 440, 400
"""Of the picture, in pixels, and the most steps that it shows."""
DIGITS = 6
"""Significant digits of what it is drawn from."""


def glance(curves: Sequence[Curve]) -> Table | None:
    """The picture of the loss in English and in Chinese, as SVG, with what to say of it; None where there are no losses."""
    curve = next((curve for curve in curves if curve.name == "loss"), None)
    if curve is None or not numbers([*curve.reference, *curve.candidate]):
        return None
    kept = drawn(curve, MOST)
    series = series_of(curve, kept)
    steps = [curve.steps[index] for index in kept]
    ends = [steps[0], steps[-1]] if len(steps) > 1 else [steps[0] - 1, steps[0] + 1]
    signals = {**axis_of(series["d"], series["limit"]), "width": WIDTH, "extent": ends}
    spec = plots.steps(single=not curve.candidate, heights=plots.SMALL)
    rows = [row(step, {name: values[at] if values else None for name, values in series.items()}) for at, step in enumerate(steps)]
    english, chinese = (vl_convert.vega_to_svg(filled(spec, rows, {**signals, "zh": zh})) for zh in (False, True))
    return {"name": TITLES["loss"], "text": curve_text(curve), "english": english, "chinese": chinese, "single": not curve.candidate}


def row(step: int, values: Mapping[str, Value]) -> Table:
    """The row of a step, as :func:`.plots.steps` reads it; what is not finite leaves a gap."""
    known = {name: rounded(next(iter(numbers([value])), None), DIGITS) for name, value in values.items()}
    below, quiet = (None if known[name] is None else -cast(float, known[name]) for name in ("limit", "noise"))
    return {"x": step, **known, "below": below, "quiet": quiet}


def filled(spec: plots.Spec, rows: Sequence[Table], signals: Table) -> plots.Spec:
    """A specification with its rows and the values of its signals, on no screen."""
    own = json.loads(json.dumps(spec))
    own["data"][0]["values"] = rows
    for scale in own["scales"]:
        if "fields" in scale["domain"]:
            fields = [field for field in scale["domain"]["fields"] if any(row[field] is not None for row in rows)]
            scale["domain"] = {**scale["domain"], "fields": fields} if fields else [1, 10]
    known = [{"name": signal["name"], "value": signals[signal["name"]]} for signal in own["signals"] if signal["name"] in signals]
    others = [signal for signal in own["signals"] if signal["name"] not in signals]
    return {**own, "signals": [*known, *others]}
