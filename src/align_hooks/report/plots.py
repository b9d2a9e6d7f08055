"""The page's plots, as Vega specifications: plain data, to which the page adds rows.

Colours are the style sheet's variables: a plot is dark where the page is, and light on paper. The signal ``zh`` chooses the
language. Vega interprets expressions by their syntax tree, as the content-security policy forbids to evaluate strings.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from align_hooks.messages import Message, message, rendered
from align_hooks.messages.catalogue import CHINESE, ENGLISH

Spec: TypeAlias = dict[str, object]
"""A specification of Vega, or a part of one."""
UPPER, GAP, LOWER = 160, 38, 84
"""Heights in pixels: of the upper panel, of the space below it with the lower panel's title, of the lower panel."""
SILENT: Spec = {"interactive": False, "aria": False}
"""A mark that pointers and screen readers ignore."""
PARTS: Mapping[str, Any] = json.loads((Path(__file__).parent / "web" / "plots.json").read_text(encoding="utf-8"))
"""Constant parts of specifications: ``frame``, the beginning of each; ``panels``, the signals and marks that plots of two panels
share, such as zoom and pointer; ``picture``. Above 600 rows (signal ``many``), which take a browser seconds, dots become a line."""
LEFT: Spec = {"orient": "left", "grid": True, "minExtent": 58, "maxExtent": 58}
"""The axes on the left, of equal width, so that plots below one another line up."""
ABOVE: Spec = {"titleAngle": 0, "titleAlign": "left", "titleBaseline": "bottom", "titleX": 0}
"""The title of an axis on the left, above its panel, where a description of the axis fits."""
POWERS = "datum.value === 0 || (abs(datum.value) >= 0.01 && abs(datum.value) < 10000) ? '~g' : '.1~e'"
"""The format of a relative difference."""


def title(text: Message) -> Spec:
    """Return a text in the language of the page."""
    return {"signal": _in_language(text)}


def _in_language(text: Message) -> str:
    """Return the expression of a text in the language of the page."""
    english, chinese = (json.dumps(rendered(text, language), ensure_ascii=False) for language in (ENGLISH, CHINESE))
    return f"(zh ? {chinese} : {english})"


def steps(*, single: bool = False) -> Spec:
    """Return the plot of a number at every step, and below it the relative difference of two runs with limit and noise.

    Rows are ``x`` (the step), ``a`` and ``b`` (reference and candidate), ``d`` (signed), ``limit`` and ``noise`` with their
    negatives ``below`` and ``quiet``; None leaves a gap. The scale of differences is logarithmic above the signal ``small``, so
    that a limit is visible beside large differences, unless the signal ``plain`` is set; ``ticks`` are its labels. The page
    supplies the visible rows, and a selection of thousands.
    """
    bottom = _bottom(message("page.step"), "datum.value === round(datum.value) ? format(datum.value, 'd') : ''")
    upper = _scale("upper", "linear", ["a"] if single else ["a", "b"], 0, UPPER, zero=False)
    lone = [_filtered("lone", "rows", "length(data('rows')) === 1")]  # thousands of steps have no mark each
    reference = [_line("a", "var(--reference)", 2.2), _only("a", "var(--reference)")]
    if single:
        return _panels([upper], reference, [], bottom, data=lone)
    lower = _scale("lower", "symlog", ["d", "limit", "below"], UPPER + GAP, LOWER, zero=True, nice=False, constant={"signal": "small"})
    plain, beyond = _in_language(message("page.relative_difference")), _in_language(message("page.logarithmic_beyond"))
    zero = {"x2": {"signal": "width"}, "y": {"scale": "lower", "value": 0}, "stroke": {"value": "var(--line)"}}
    return _panels(
        [upper, lower],
        [*reference, _line("b", "var(--candidate)", 1.4, [6, 3]), _only("b", "var(--candidate)")],
        [
            _band("limit", "below", "var(--band)"),
            _band("noise", "quiet", "var(--noise)"),
            {"type": "rule", "aria": False, "encode": {"update": zero}},
            _line("d", "var(--difference)", 1.4, scale="lower"),
            _only("d", "var(--difference)", scale="lower"),
        ],
        bottom,
        data=lone,
        signals=[{"name": "plain", "value": True}, {"name": "small", "value": 1e-6}, {"name": "ticks", "value": []}],
        lower_axis={"values": {"signal": "ticks"}, "title": {"signal": f"plain ? {plain} : {beyond}"}},
    )


def tensors() -> Spec:
    """Return the plot of a norm of every tensor, in the model's order, and below it the relative difference with its limit.

    Rows are ``x`` (the tensor's place), ``a`` and ``b``, ``d`` (absolute), ``limit``. The signals ``starts`` and ``labels``
    list the first place and the name of each layer.
    """
    return _panels(
        [_scale("upper", "log", ["a", "b"], 0, UPPER), _scale("lower", "log", ["d", "limit"], UPPER + GAP, LOWER)],
        [*_points("a", "circle", "var(--reference)", 46), *_points("b", "cross", "var(--candidate)", 46)],
        [*_points("limit", "stroke", "var(--soft)", 60, scale="lower"), *_points("d", "diamond", "var(--difference)", 46, scale="lower")],
        _bottom(message("page.layer"), "labels[indexof(starts, datum.value)]", values={"signal": "starts"}),
        upper_axis={"title": title(message("page.logarithmic_norm")), "tickCount": 3},
        lower_axis={"title": title(message("page.logarithmic_difference"))},
        signals=[{"name": "starts", "value": []}, {"name": "labels", "value": []}],
        data=[_filtered("dots", "rows", "!many"), _filtered("line", "rows", "many")],
    )


def picture() -> Spec:
    """Return the picture of error over limit by layer (columns) and kind of parameter (rows).

    Cells are ``column`` and ``row``, ``fill`` (a colour of the style sheet), ``bin`` (above 2 the error exceeds its limit), ``text``,
    ``told`` (for a screen reader), ``star`` for the worst, and the tooltip's fields. The signals ``columns`` and ``rows`` list both
    axes, ``few`` says whether numbers fit. A row is 20 pixels high, a column at most 130 wide, and labels of rows take 190.
    """
    bare = {"domain": False, "ticks": False}
    axes = [{"orient": "top", "scale": "x", "title": title(message("page.layer")), **bare}, {"orient": "left", "scale": "y", **bare}]
    return {**PARTS["frame"], **PARTS["picture"], "axes": axes}


def _panels(
    scales: list[Spec],
    upper: list[Spec],
    lower: list[Spec],
    bottom: Spec,
    *,
    signals: Sequence[Spec] = (),
    data: Sequence[Spec] = (),
    upper_axis: Spec | None = None,
    lower_axis: Spec | None = None,
) -> Spec:
    """Return two panels over one axis ``bottom``, or the upper one without ``lower``; ``upper_axis`` and ``lower_axis`` amend the left."""
    height, below, axis = UPPER, [], []
    if lower:
        top = UPPER + GAP
        height = top + LOWER
        powers = {"labels": {"update": {"text": {"signal": f"format(datum.value, {POWERS})"}}}}
        axis = [{**LEFT, "scale": "lower", "tickCount": 3, "encode": powers, **ABOVE, "titleY": top - 8, **(lower_axis or {})}]
        size = {"width": {"signal": "width"}, "height": {"value": LOWER}, "y": {"value": top}}
        raised = {"update": {"y": {"value": -top}}}  # scales count from the top of both panels
        marks = [{"type": "group", "encode": raised, "marks": [mark]} for mark in lower]
        below = [{"type": "group", "name": "lower", "clip": True, "encode": {"update": size}, "marks": marks}]
    size = {"width": {"signal": "width"}, "height": {"value": UPPER}}
    group = {"type": "group", "clip": True, "encode": {"update": size}, "marks": upper}
    left = {**LEFT, "tickCount": 5, "scale": "upper", "format": "~g", **ABOVE, "titleY": -8, **(upper_axis or {})}
    own = {"signals": signals, "data": data, "scales": scales}
    return {
        **PARTS["frame"],
        "height": height,
        **{name: [*PARTS["panels"][name], *parts] for name, parts in own.items()},
        "marks": [group, *below, *PARTS["panels"]["marks"]],
        "axes": [bottom, left, *axis],
    }


def _filtered(name: str, source: str, condition: str) -> Spec:
    return {"name": name, "source": source, "transform": [{"type": "filter", "expr": condition}]}


def _bottom(name: Message, label: str, **more: object) -> Spec:
    """Return the axis of steps or tensors; ``label`` is the expression of a label's text."""
    labels = {"labels": {"update": {"text": {"signal": label}}}}
    return {"orient": "bottom", "scale": "x", "title": title(name), "grid": True, "tickMinStep": 1, **more, "encode": labels}


def _scale(name: str, kind: str, fields: list[str], top: int, height: int, **more: object) -> Spec:
    domain = {"data": "rows", "fields": fields}
    return {"name": name, "type": kind, "domain": domain, "range": [top + height, top], "nice": True, **more}


def _line(field: str, colour: str, width: float, dash: list[int] | None = None, scale: str = "upper", data: str = "rows") -> Spec:
    style = {"stroke": {"value": colour}, "strokeWidth": {"value": width}, "strokeDash": {"signal": f"many ? [] : {dash or []}"}}
    return _mark("line", data, {**style, **_gaps(field)}, {"y": {"scale": scale, "field": field}})


def _only(field: str, colour: str, scale: str = "upper") -> Spec:
    """Return a dot for a single row, through which no line is visible."""
    style = {"stroke": {"value": colour}, "strokeWidth": {"value": 1.4}, "size": {"value": 60}}
    seen = {"opacity": {"signal": f"datum.{field} !== null ? 1 : 0"}}
    return _mark("symbol", "lone", style, {"y": {"scale": scale, "field": field}, **seen})


def _band(upper: str, lower: str, colour: str) -> Spec:
    """Return the area between two fields."""
    between: Spec = {"y": {"scale": "lower", "field": upper}, "y2": {"scale": "lower", "field": lower}}
    return _mark("area", "rows", {"fill": {"value": colour}, **_gaps(upper)}, between)


def _points(field: str, shape: str, colour: str, size: int, scale: str = "upper") -> list[Spec]:
    """Return a dot for each row, or a line where there are many."""
    style = {"shape": {"value": shape}, "size": {"value": size}, "stroke": {"value": colour}, "strokeWidth": {"value": 1.4}}
    present = {"opacity": {"signal": f"datum.{field} === null ? 0 : 1"}}
    dots = _mark("symbol", "dots", {**style, **present}, {"y": {"scale": scale, "field": field}})
    return [dots, _line(field, colour, 1.0, scale=scale, data="line")]


def _gaps(field: str) -> Spec:
    """Return the encoding by which a line or an area has a gap where its field has no value."""
    return {"defined": {"signal": f"datum.{field} !== null"}}


def _mark(kind: str, data: str, enter: Spec, update: Spec) -> Spec:
    """Return a mark along the rows of ``data``; ``enter`` is the constant part of its encoding."""
    update = {"x": {"scale": "x", "field": "x"}, **update}
    return {"type": kind, "from": {"data": data}, **SILENT, "encode": {"enter": enter, "update": update}}
