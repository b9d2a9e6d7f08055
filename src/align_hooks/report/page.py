"""A comparison as one HTML page: what an engineer opens first, sends to the other team, attaches to the ticket.

The verdict, what to suspect and what to run next come first, for that is what a page is opened for; everything else is below, each piece
under an address of its own.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from typing import Any

from align_hooks.compare.verdict import Comparison, Curve, Finding, Stage, Status, when
from align_hooks.report import plots
from align_hooks.report.chinese import chinese
from align_hooks.report.configuration import configurations
from align_hooks.report.frame import number, render, times
from align_hooks.report.methods import METHODS, Method, method
from align_hooks.report.places import place
from align_hooks.report.text import worst

EVIDENCE, WORST = 3, 10
"""Findings shown beside the verdict, and of a stage."""
PICTURED = ("initial weights", "local norms", "gradients", "first updates")
"""Stages with one finding a tensor, which make a picture of the model."""
TENSORS = (*PICTURED, "weights after an update", "free-running steps")
BOUNDS = (0.1, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
BINS = ("equal to the bit", "≤ 0.1 ×", "≤ 1 ×", "≤ 3 ×", "≤ 10 ×", "≤ 30 ×", "≤ 100 ×", "≤ 300 ×", "≤ 1000 ×", "> 1000 ×", "not finite")
"""Error over limit, as the picture colours it."""
STARS = 3
"""The worst of a picture, which are framed."""
TITLES = {"loss": "loss", "grad_norm": "global gradient norm", "learning_rate": "learning rate"}
SECTIONS = (
    ("verdict", "Verdict"),
    ("where", "Where"),
    ("tensors", "Tensors"),
    ("norms", "Norms"),
    ("curves", "Curves"),
    ("stages", "Stages"),
    ("configurations", "Configurations"),
    ("acceptance", "Acceptance"),
    ("methods", "Methods"),
)


@dataclass(frozen=True, slots=True)
class Shown:
    """A stage as the page shows it."""

    slug: str
    name: str
    status: str
    summary: str
    worst: str
    findings: tuple[Finding, ...]
    more: int
    method: Method | None


def page(comparison: Comparison, version: str) -> str:
    """The whole page, as text that encodes to UTF-8; ``version`` is that of align_hooks."""
    stages = [shown(one) for one in comparison.stages]
    first = next((one for one in stages if comparison.first is not None and one.name == comparison.first.name), None)
    pictures = [one for one in map(picture, comparison.stages) if one is not None]
    _choose(pictures, comparison)
    rows = tensor_rows(comparison)
    norms = norms_plot(comparison)
    curves = [curve_plot(one) for one in comparison.curves]
    settings = configurations(comparison.sides)
    present = {"where": pictures, "tensors": rows, "norms": norms, "curves": curves}
    data = {
        "eps": comparison.eps,
        "tensors": rows,
        "stages": [[name, chinese(name)] for name in TENSORS],
        "pictures": pictures,
        "plots": [*([norms] if norms else []), *curves],
        "specs": {"steps": plots.steps(), "tensors": plots.tensors(), "picture": plots.picture()},
    }
    return render(
        "comparison.html",
        data,
        version=version,
        title=f"align_hooks: {comparison.verdict.text}" + (f" at {first.name}" if first else ""),
        sections=[one for one in SECTIONS if present.get(one[0], True)],
        names=[one.path for one in comparison.sides],
        verdict=comparison.verdict.text,
        first=first or comparison.first,
        blame=comparison.blame,
        suspects=suspects(comparison),
        next=comparison.next,
        evidence=comparison.first.findings[:EVIDENCE] if comparison.first else (),
        settings=comparison.settings,
        eps=comparison.eps,
        stages=stages,
        left=[one for one in stages if one.status == Status.NOT_COMPARED.value],
        pictures=pictures,
        tensors=[{"name": name, "chinese": chinese(name)} for name in TENSORS] if rows else [],
        norms=norms,
        curves=curves,
        bins=BINS,
        configurations=settings,
        differing=sum(row.differs for _, rows in settings for row in rows),
        acceptance=comparison.acceptance,
        notes=comparison.notes,
        methods=METHODS,
    )


def shown(stage: Stage) -> Shown:
    """A stage with its worst findings."""
    more = len(stage.findings) - WORST if stage.name in TENSORS else 0
    found = stage.findings[:WORST] if more > 0 else stage.findings
    return Shown(
        slug(stage.name),
        stage.name,
        stage.status.value,
        stage.summary,
        worst(stage).replace(" of ", " / "),
        found,
        max(0, more),
        method(stage.name),
    )


def slug(name: str) -> str:
    """A stage's name as the end of an address."""
    return "stage-" + "".join(one if one.isalnum() else "-" for one in name)


def suspects(comparison: Comparison) -> list[dict[str, Any]]:
    """What to suspect first; a tensor with how far beyond its limit it is, and a link to its rows."""
    found: dict[str, Finding] = {}
    telling = sorted(comparison.stages, key=lambda stage: ("gradients", "local norms", stage.name).index(stage.name))
    for stage in telling:
        if stage.status is Status.DIFFERENT and stage.name in TENSORS:
            for finding in stage.findings:
                found.setdefault(finding.name, finding)
    listed = []
    for text in comparison.blame.suspects if comparison.blame else ():
        name = text.partition(" at ")[0]
        one = found.get(name)
        listed.append({"text": name if one else text, "tensor": one is not None, "link": name, "times": times(one) if one else ""})
    return listed


def tensor_rows(comparison: Comparison) -> list[dict[str, Any]]:
    """Every finding of a tensor, as the table shows it; ``stage`` counts in :data:`TENSORS`."""
    return [
        {
            "name": one.name,
            "stage": TENSORS.index(stage.name),
            "step": one.step,
            "error": one.error,
            "limit": one.limit,
            "excess": one.excess,
            "scale": one.scale,
            "direction": one.direction,
            "out": one.excess > 1,
        }
        for stage in comparison.stages
        if stage.name in TENSORS
        for one in stage.findings
        if "." in one.name and one.error is not None
    ]


def picture(stage: Stage) -> dict[str, Any] | None:
    """Error over limit by layer and kind of parameter, the worst where several tensors or steps share a cell; None without tensors."""
    cells: dict[tuple[str, str], Finding] = {}
    places = sorted({place(one.name): None for one in stage.findings if "." in one.name}) if stage.name in PICTURED else []
    for one in stage.findings if places else ():
        if "." not in one.name:
            continue
        at = place(one.name)
        seen = cells.get((at.column, at.kind))
        if seen is None or one.excess > seen.excess:
            cells[at.column, at.kind] = one
    if not cells:
        return None
    starred = sorted((one for one in cells.values() if one.excess > 1), key=lambda one: -one.excess)[:STARS]
    kinds = dict.fromkeys(one.kind for one in sorted(places, key=lambda one: (one.order, one.kind)))
    return {
        "name": stage.name,
        "stage": TENSORS.index(stage.name),
        "columns": list(dict.fromkeys(one.column for one in places)),
        "rows": list(kinds),
        "cells": [
            {
                "column": column,
                "row": row,
                "bin": bin_of(one),
                "text": short(one),
                "name": one.name,
                "step": one.step,
                "error": one.error,
                "limit": one.limit,
                "times": times(one),
                "star": any(one is other for other in starred),
            }
            for (column, row), one in cells.items()
        ],
        "chosen": False,
    }


def _choose(pictures: list[dict[str, Any]], comparison: Comparison) -> None:
    """Show the stage that decided the verdict first, else the last of those that differ: gradients say more than norms."""
    if not pictures:
        return
    out = [one for one in pictures if any(cell["bin"] > 2 for cell in one["cells"])]
    by_name = {one["name"]: one for one in pictures}
    first = comparison.first.name if comparison.first else ""
    telling = [one for one in out if one["name"] in ("gradients", "local norms")]
    (by_name.get(first) or (telling or out or [by_name.get("gradients") or pictures[-1]])[-1])["chosen"] = True


def bin_of(one: Finding) -> int:
    """Which of :data:`BINS` a finding is in."""
    if one.error is None or not math.isfinite(one.error):
        return len(BINS) - 1
    return 0 if one.error == 0 else bisect_left(BOUNDS, one.excess) + 1


def norms_plot(comparison: Comparison) -> dict[str, Any] | None:
    """Local norms of the first common step, in the model's order; None where none were compared."""
    stage = next((one for one in comparison.stages if one.name == "local norms"), None)
    found = [one for one in stage.findings if one.name and one.step is not None] if stage else []
    if not found:
        return None
    first = min(one.step or 0 for one in found)
    found = sorted((one for one in found if one.step == first), key=lambda one: place(one.name))
    columns = [place(one.name).column for one in found]
    furthest = max(found, key=lambda one: one.excess)
    return {
        "id": "plot-norms",
        "spec": "tensors",
        "title": f"local norms at {when(first)}",
        "said": [f"{len(found)} tensors; furthest beyond its limit {furthest.name}, {furthest.reference} against {furthest.candidate}"],
        "x": list(range(len(found))),
        "a": [_float(one.reference) for one in found],
        "b": [_float(one.candidate) for one in found],
        "d": [one.error for one in found],
        "limit": [one.limit for one in found],
        "noise": [],
        "names": [one.name for one in found],
        "places": columns,
        "starts": [at for at, column in enumerate(columns) if at == 0 or columns[at - 1] != column],
    }


def curve_plot(curve: Curve) -> dict[str, Any]:
    """A number of every step, with what to say of it where it cannot be seen."""
    differences = curve.differences
    return {
        "id": f"plot-{curve.name}",
        "spec": "steps",
        "title": TITLES.get(curve.name, curve.name),
        "said": [of_curve(curve)],
        "x": list(curve.steps),
        "a": list(curve.reference),
        "b": list(curve.candidate),
        "d": differences,
        "limit": list(curve.limits),
        "noise": list(curve.noise),
        "single": not curve.candidate,
    }


def of_curve(curve: Curve) -> str:
    """A curve in a sentence."""
    known = [(abs(one), step) for one, step in zip(curve.differences, curve.steps, strict=False) if one is not None]
    lost = sum(one is None or not math.isfinite(one) for one in (*curve.reference, *curve.candidate))
    gaps = f"; {lost} values are missing or not finite" if lost else ""
    if not known:
        there = [one for one in curve.reference if one is not None and math.isfinite(one)]
        between = f"; from {there[0]:.6g} to {there[-1]:.6g}, between {min(there):.6g} and {max(there):.6g}" if there else ""
        return f"{len(curve.steps)} steps{between}{gaps}"
    largest, step = max(known, key=lambda one: (math.inf if math.isnan(one[0]) else one[0], -one[1]))
    beyond = [step for (one, step), limit in zip(known, curve.limits, strict=False) if not one <= limit]
    out = f"; beyond the limit at {len(beyond)} steps, first at {when(beyond[0])}" if beyond else ""
    return f"{len(curve.steps)} steps; largest difference {number(largest)} at {when(step)}{out}{gaps}"


def short(one: Finding) -> str:
    """The same for a cell of the picture."""
    if not math.isfinite(one.excess):
        return "!"
    return (
        f"{one.excess:.0e}".replace("e+0", "e") if one.excess >= 1000 else f"{one.excess:.0f}" if one.excess >= 10 else f"{one.excess:.1f}"
    )


def _float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
