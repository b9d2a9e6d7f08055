"""The page's plots, as Vega specifications: plain data that the page fills with rows and hands to Vega.

Colours are the style sheet's variables, so that a plot is dark where the page is and light on paper, and texts are chosen by the signal
``zh``. Nothing here is a string that a browser evaluates: expressions are interpreted from their syntax tree, which is what a strict
content-security policy asks for.
"""

from __future__ import annotations

import json
from typing import Any

from align_hooks.messages import CHINESE, ENGLISH, Message, message, rendered

Spec = dict[str, Any]
UPPER, GAP, LOWER = 170, 26, 96
CELL, FEW = 22, 24
"""Height of a row of the picture, and the most columns that leave room for numbers in the cells."""
MANY = 600
"""Rows beyond which dots become a line and dashes solid: a browser takes seconds over ten thousand of either."""
CONFIG: Spec = {
    "axis": {
        "domainColor": "var(--line)",
        "gridColor": "var(--grid)",
        "tickColor": "var(--line)",
        "labelColor": "var(--soft)",
        "titleColor": "var(--soft)",
        "labelFont": "system-ui, sans-serif",
        "titleFont": "system-ui, sans-serif",
        "titleFontWeight": "normal",
        "titleFontSize": 12,
        "labelFontSize": 11,
        "labelOverlap": True,
    },
    "text": {"font": "system-ui, sans-serif"},
}
FRAME: Spec = {
    "$schema": "https://vega.github.io/schema/vega/v6.json",
    "autosize": {"type": "fit-x", "contains": "padding"},
    "padding": {"top": 6, "right": 10, "bottom": 8, "left": 0},
    "config": CONFIG,
}
"""What every specification begins with."""
WIDTH: Spec = {
    "name": "width",
    "init": "max(240, containerSize()[0])",
    "on": [{"events": {"source": "window", "type": "resize"}, "update": "max(240, containerSize()[0])"}],
}
ZH: Spec = {"name": "zh", "value": False}
LEFT = {"minExtent": 62, "maxExtent": 62}
"""Of the axes on the left, so that plots below one another line up."""


def title(text: Message) -> Spec:
    """A text in the language of the page."""
    english, chinese = (json.dumps(rendered(text, language), ensure_ascii=False) for language in (ENGLISH, CHINESE))
    return {"signal": f"zh ? {chinese} : {english}"}


def steps(*, single: bool = False) -> Spec:
    """A number of every step on both sides, and below it their relative difference with limit and noise; of a ``single`` run the number.

    Rows are ``x`` (the step), ``a`` and ``b`` (reference and candidate), ``d`` (signed), ``limit`` and ``noise`` with their negatives
    ``below`` and ``quiet``; None leaves a gap. The scale of differences is linear up to the signal ``small`` and logarithmic beyond, so
    that a limit is seen beside what is far beyond it; ``ticks`` are its labels. The page hands over the rows that are in sight, thinned
    out where they are thousands.
    """
    upper = [_line("a", "var(--reference)", 2.2), _line("b", "var(--candidate)", 1.4, [6, 3])]
    lower = [
        _band("limit", "below", "var(--band)"),
        _band("noise", "quiet", "var(--noise)"),
        {
            "type": "rule",
            "aria": False,
            "encode": {"update": {"x2": {"signal": "width"}, "y": {"scale": "lower", "value": 0}, "stroke": _of("--line")}},
        },
        _line("d", "var(--difference)", 1.4, scale="lower"),
    ]
    scales = [
        _scale("upper", "linear", ["a"] if single else ["a", "b"], 0, UPPER, zero=False),
        _scale("lower", "symlog", ["d", "limit", "below"], UPPER + GAP, LOWER, zero=True, nice=False, constant={"signal": "small"}),
    ]
    whole = {"signal": "datum.value === round(datum.value) ? format(datum.value, 'd') : ''"}
    x = {
        "orient": "bottom",
        "scale": "x",
        "title": title(message("page.step")),
        "grid": True,
        "encode": {"labels": {"update": {"text": whole}}},
    }
    if single:
        return _one_panel(_panels(scales[:1], upper[:1], [], x))
    spec = _panels(scales, upper, lower, x)
    spec["signals"] += [{"name": "small", "value": 1e-6}, {"name": "ticks", "value": []}]
    spec["axes"][-1]["values"] = {"signal": "ticks"}
    return spec


def tensors() -> Spec:
    """A norm of every tensor on both sides, in the model's order, and below it their relative difference beside its limit.

    Rows are ``x`` (the tensor's place), ``a`` and ``b``, ``d`` (absolute), ``limit``; the signals ``starts`` and
    ``labels`` list where a layer begins, and its name.
    """
    upper = [*_points("a", "circle", "var(--reference)", 46), *_points("b", "cross", "var(--candidate)", 46)]
    lower = [
        *_points("limit", "stroke", "var(--soft)", 60, scale="lower"),
        *_points("d", "diamond", "var(--difference)", 46, scale="lower"),
    ]
    scales = [_scale("upper", "log", ["a", "b"], 0, UPPER), _scale("lower", "log", ["d", "limit"], UPPER + GAP, LOWER)]
    label = {"signal": "labels[indexof(starts, datum.value)]"}
    x = {
        "orient": "bottom",
        "scale": "x",
        "title": title(message("page.layer")),
        "grid": True,
        "values": {"signal": "starts"},
        "encode": {"labels": {"update": {"text": label}}},
    }
    spec = _panels(scales, upper, lower, x)
    spec["signals"] += [{"name": "starts", "value": []}, {"name": "labels", "value": []}]
    spec["data"] += [
        {"name": name, "source": "rows", "transform": [{"type": "filter", "expr": fits}]}
        for name, fits in (("dots", "!many"), ("line", "many"))
    ]
    return spec


def picture() -> Spec:
    """Error over limit by layer (columns) and kind of parameter (rows).

    Cells are ``column`` and ``row``, ``fill`` (a colour of the style sheet) and ``bin`` (beyond 2 it is out of its limit), ``text``,
    ``told`` to a screen reader, ``star`` for the worst, and what the tooltip says; the signals ``columns`` and ``rows`` list both
    axes, ``few`` says whether numbers fit.
    """
    bounds = {
        "x": {"scale": "x", "field": "column"},
        "y": {"scale": "y", "field": "row"},
        "width": {"scale": "x", "band": 1},
        "height": {"scale": "y", "band": 1},
    }
    out = "datum.bin > 2"
    rect = {
        **bounds,
        "fill": {"field": "fill"},
        "stroke": {"signal": "datum.star ? 'var(--ink)' : 'var(--paper)'"},
        "strokeWidth": {"signal": "datum.star ? 2.5 : few ? 1 : 0.3"},
        "zindex": {"signal": "datum.star ? 1 : 0"},
        "tooltip": {"signal": "datum"},
        "cursor": {"value": "pointer"},
        "description": {"field": "told"},
    }
    text = {
        "x": {"scale": "x", "field": "column", "band": 0.5},
        "y": {"scale": "y", "field": "row", "band": 0.5},
        "text": {"field": "text"},
        "align": {"value": "center"},
        "baseline": {"value": "middle"},
        "fontSize": {"value": 11},
        "fill": {"signal": "'var(--on-bin-' + datum.bin + ')'"},
    }
    return {
        **FRAME,
        "signals": [
            WIDTH,
            ZH,
            {"name": "columns", "value": []},
            {"name": "rows", "value": []},
            {"name": "few", "update": f"length(columns) <= {FEW} && width / length(columns) > 28"},
            {"name": "height", "update": f"{CELL} * length(rows)"},
        ],
        "data": [
            {"name": "cells", "values": []},
            {"name": "numbered", "source": "cells", "transform": [{"type": "filter", "expr": f"few && {out}"}]},
        ],
        "scales": [
            {"name": "x", "type": "band", "domain": {"signal": "columns"}, "range": "width"},
            {"name": "y", "type": "band", "domain": {"signal": "rows"}, "range": "height"},
        ],
        "axes": [
            {"orient": "top", "scale": "x", "title": title(message("page.layer")), "domain": False, "ticks": False},
            {"orient": "left", "scale": "y", "domain": False, "ticks": False},
        ],
        "marks": [
            {"type": "rect", "from": {"data": "cells"}, "encode": {"update": rect}},
            {"type": "text", "from": {"data": "numbered"}, "interactive": False, "aria": False, "encode": {"update": text}},
        ],
    }


def _panels(scales: list[Spec], upper: list[Spec], lower: list[Spec], x: Spec) -> Spec:
    """Two panels above each other over one ``x`` axis: drag to zoom (signal ``domain``), a rule where the pointer is (``hover``)."""
    pointer = "clamp(round(invert('x', x())), extent[0], extent[1])"
    drag = "[pointerdown, window:pointerup] > window:pointermove!"
    rule = {
        "x": {"signal": "hover === null ? -9 : scale('x', hover)"},
        "y": {"value": 0},
        "y2": {"signal": "height"},
        "stroke": _of("--ink"),
        "strokeWidth": {"value": 0.8},
        "opacity": {"signal": "hover === null ? 0 : 1"},
    }
    chosen = {
        "x": {"signal": "drag ? scale('x', drag[0]) : 0"},
        "x2": {"signal": "drag ? scale('x', drag[1]) : 0"},
        "y": {"value": 0},
        "y2": {"signal": "height"},
        "fill": _of("--chosen"),
        "opacity": {"signal": "drag ? 1 : 0"},
    }
    bounds = {"width": {"signal": "width"}, "height": {"value": UPPER}}
    beneath = {"width": {"signal": "width"}, "height": {"value": LOWER}, "y": {"value": UPPER + GAP}}
    left = {"orient": "left", "grid": True, "tickCount": 5, **LEFT}
    plain = "datum.value === 0 || (abs(datum.value) >= 0.01 && abs(datum.value) < 10000)"
    power = {"text": {"signal": f"format(datum.value, {plain} ? '~g' : '.1~e')"}}
    return {
        **FRAME,
        "height": UPPER + GAP + LOWER,
        "signals": [
            WIDTH,
            ZH,
            {"name": "extent", "value": [0, 1]},
            {"name": "many", "update": f"length(data('rows')) > {MANY}"},
            {"name": "domain", "value": None, "on": [{"events": "dblclick", "update": "null"}]},
            {
                "name": "hover",
                "value": None,
                "on": [{"events": "pointermove", "update": pointer}, {"events": "view:pointerout", "update": "null"}],
            },
            {
                "name": "drag",
                "value": None,
                "on": [
                    {"events": "pointerdown", "update": "[invert('x', x()), invert('x', x())]"},
                    {"events": drag, "update": "[drag[0], clamp(invert('x', x()), extent[0], extent[1])]"},
                    {"events": "window:pointerup", "update": "null"},
                ],
            },
            {"name": "zoomed", "value": None, "on": [{"events": drag, "update": "drag"}]},
        ],
        "data": [{"name": "rows", "values": []}],
        "scales": [
            {
                "name": "x",
                "type": "linear",
                "range": "width",
                "nice": False,
                "domain": {"signal": "extent"},
                "domainRaw": {"signal": "domain"},
            },
            *scales,
        ],
        "marks": [
            {
                "type": "group",
                "clip": True,
                "encode": {"update": bounds},
                "marks": upper,
            },
            {"type": "group", "name": "lower", "clip": True, "encode": {"update": beneath}, "marks": [_raised(one) for one in lower]},
            {"type": "rect", "interactive": False, "aria": False, "encode": {"update": chosen}},
            {"type": "rule", "interactive": False, "aria": False, "encode": {"update": rule}},
        ],
        "axes": [
            x,
            {**left, "scale": "upper", "format": "~g"},
            {
                **left,
                "scale": "lower",
                "tickCount": 3,
                "title": title(message("page.relative_difference")),
                "encode": {"labels": {"update": power}},
            },
        ],
    }


def _one_panel(spec: Spec) -> Spec:
    """The same without its lower panel."""
    axes = [one for one in spec["axes"] if one["scale"] != "lower"]
    return {**spec, "height": UPPER, "axes": axes, "marks": [one for one in spec["marks"] if one.get("name") != "lower"]}


def _raised(mark: Spec) -> Spec:
    """A mark of the lower panel, whose scale counts from the top of both."""
    return {"type": "group", "encode": {"update": {"y": {"value": -UPPER - GAP}}}, "marks": [mark]}


def _scale(name: str, kind: str, fields: list[str], top: int, height: int, **more: Any) -> Spec:
    return {
        "name": name,
        "type": kind,
        "domain": {"data": "rows", "fields": fields},
        "range": [top + height, top],
        "nice": True,
        **more,
    }


def _line(field: str, colour: str, width: float, dash: list[int] | None = None, scale: str = "upper") -> Spec:
    update = {"x": {"scale": "x", "field": "x"}, "y": {"scale": scale, "field": field}}
    style = {"stroke": {"value": colour}, "strokeWidth": {"value": width}, "strokeDash": {"signal": f"many ? [] : {dash or []}"}}
    return _along("line", field, style, update)


def _along(kind: str, field: str, style: Spec, update: Spec) -> Spec:
    """A line or an area over all rows; where ``field`` has no value, a gap. What never changes is encoded once."""
    enter = {**style, "defined": {"signal": f"datum.{field} !== null"}}
    return {"type": kind, "from": {"data": "rows"}, "interactive": False, "aria": False, "encode": {"enter": enter, "update": update}}


def _band(upper: str, lower: str, colour: str) -> Spec:
    """Between two fields."""
    update = {"x": {"scale": "x", "field": "x"}, "y": {"scale": "lower", "field": upper}, "y2": {"scale": "lower", "field": lower}}
    return _along("area", upper, {"fill": {"value": colour}}, update)


def _points(field: str, shape: str, colour: str, size: int, scale: str = "upper") -> list[Spec]:
    """A dot for each row, or where there are many a line."""
    style = {"shape": {"value": shape}, "size": {"value": size}, "stroke": {"value": colour}, "strokeWidth": {"value": 1.4}}
    enter = {**style, "opacity": {"signal": f"datum.{field} === null ? 0 : 1"}}
    update = {"x": {"scale": "x", "field": "x"}, "y": {"scale": scale, "field": field}}
    dots = {"type": "symbol", "from": {"data": "dots"}, "interactive": False, "aria": False, "encode": {"enter": enter, "update": update}}
    return [dots, {**_line(field, colour, 1.0, scale=scale), "from": {"data": "line"}}]


def _of(variable: str) -> Spec:
    return {"value": f"var({variable})"}
