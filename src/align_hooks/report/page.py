"""A comparison as one HTML page: what an engineer opens first, sends to the other team, attaches to the ticket.

The verdict, what to suspect and what to run next come first, for that is what a page is opened for. Everything else is below, each piece
under an address of its own.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from enum import IntEnum
from typing import TypeAlias
from urllib.parse import quote

from align_hooks.checklist.result import Checklist
from align_hooks.comparison.places import place
from align_hooks.comparison.stages.activation_gradients import activation_gradients
from align_hooks.comparison.stages.activations import activations
from align_hooks.comparison.stages.gradients import gradients
from align_hooks.comparison.stages.hyper_parameters import hyper_parameters
from align_hooks.comparison.stages.local_norms import local_norms
from align_hooks.comparison.stages.registry import LADDER
from align_hooks.comparison.stages.stage import Stage
from align_hooks.comparison.verdict import (
    Comparison,
    Curve,
    Finding,
    StageResult,
    Status,
    Unit,
    Value,
    Verdict,
    at_step,
    differing,
    when,
)
from align_hooks.messages import Argument, Joined, Message, Side, message, sentences
from align_hooks.record.schema import Table
from align_hooks.report import plots
from align_hooks.report.check_text import FIRST, shown_rows
from align_hooks.report.configuration import configurations
from align_hooks.report.console import plain
from align_hooks.report.frame import for_script, languages, render
from align_hooks.report.text import shown, worst
from align_hooks.report.thinned import drawn
from align_hooks.report.titles import TITLES

EVIDENCE, WORST = 3, 10
"""Findings shown beside the verdict, and of a stage."""
PICTURED = tuple(stage for stage in LADDER if stage.is_pictured)
"""Stages that make a picture of the model."""
TENSORS = tuple(stage for stage in LADDER if stage.is_of_tensors)
"""Stages with one finding a tensor; PICTURED are the first of them."""
WITHIN, OF_THE_WORST = 0.1, (1e-3, 1e-2, 1 / 30, 0.1, 1 / 3, 2 / 3)
"""Bounds of the colours: below 1 of error over limit, and beyond it of the largest."""
STARS, NEAR = 3, 0.8
"""At most STARS cells of a picture are framed, those within NEAR of its worst; where more are so near, none is."""
DIGITS = {"a": 9, "b": 9, "d": 4, "limit": 4, "noise": 4}
"""Significant digits of each series of a plot."""
SECTIONS = tuple(
    (name, message(f"page.nav_{name}"))
    for name in ("verdict", "where", "tensors", "norms", "curves", "stages", "checklist", "configurations", "acceptance", "methods")
)
METHODS: tuple[tuple[Argument, Message, Argument], ...] = (
    (message("method.name_relative_error"), message("method.relative_error"), "align_hooks.comparison.measures"),
    (message("method.name_limits"), message("method.limits"), "align_hooks.comparison.limits, align_hooks.comparison.noise, docs/zoo.md"),
    *((stage.title, stage.method, stage.source) for stage in LADDER),
    (message("method.name_noise_band"), message("method.noise_band"), None),
)
"""How each number was made: what was taken, of what, by which formula, what it is held against, and where that comes from."""


class Bin(IntEnum):
    """A colour of the picture: error over limit, and beyond the limit how near it is to the worst of the picture, for an error starts
    where it is largest."""

    EQUAL = 0
    FAR_WITHIN = 1
    WITHIN = 2
    THOUSANDTH = 3
    HUNDREDTH = 4
    THIRTIETH = 5
    TENTH = 6
    THIRD = 7
    TWO_THIRDS = 8
    WORST = 9
    NOT_FINITE = 10


Rows: TypeAlias = Sequence[tuple[Stage, Finding]]
"""Findings of tensors, each with its stage."""


def page(comparison: Comparison, version: str, checklist: Checklist | None = None) -> str:
    """The whole page, as text that encodes to UTF-8; ``version`` is that of align_hooks, ``checklist`` a check of the same two runs."""
    rows = tensor_rows(comparison)
    pictures = pictures_of(comparison, rows)
    norms = norms_plot(comparison)
    constants = [curve for curve in comparison.curves if is_constant(curve)]
    curves = [curve_plot(curve) for curve in comparison.curves if curve not in constants]
    settings = configurations(comparison.sides)
    rates = [finding.name for finding in differing(comparison.stages, hyper_parameters) if finding.step is not None]
    unlike = [*rates, *(row.name for group in settings for row in group.rows if row.differs)]  # no configuration shows rates
    present = {"checklist": checklist is not None, "where": pictures, "tensors": rows, "norms": norms, "curves": curves}
    data = for_script(
        [*([norms] if norms else []), *curves],
        {"steps": plots.steps(), "tensors": plots.tensors(), "picture": plots.picture()},
        eps=comparison.eps,
        tensors=columns(rows) if rows else None,
        stages=[languages(stage.title) for stage in TENSORS],
        pictures=pictures,
    )
    return render(
        "comparison.html",
        data,
        version=version,
        title=title(comparison),
        sections=[section for section in SECTIONS if present.get(section[0], True)],
        comparison=comparison,
        names=[plain(side.path) for side in comparison.sides],
        frameworks=[plain(str(side.facts.framework or "")) for side in comparison.sides],
        diverged=comparison.verdict is Verdict.DIVERGED,
        first=stage_on_page(comparison.first) if comparison.first is not None else None,
        suspects=suspects(comparison),
        evidence=evidence(comparison),
        closest=closest(comparison),
        stages=[stage_on_page(result) for result in comparison.stages],
        pictures=pictures,
        tensors=[stage.title for stage in TENSORS] if rows else [],
        norms=norms,
        curves=curves,
        constants=[(TITLES[curve.name], message("page.constant", value=curve.reference[0])) for curve in constants],
        bins=list(Bin),
        sides=list(Side),
        checked=shown_rows(checklist, FIRST) if checklist is not None else None,
        configurations=settings,
        differing=list(dict.fromkeys(unlike)),
        configured=all(side.facts.model and side.facts.optimizer for side in comparison.sides),
        methods=METHODS,
    )


def title(comparison: Comparison) -> Message:
    """What a browser calls the page."""
    if comparison.first is None:
        return message("page.title", verdict=comparison.verdict)
    return message("page.title_at", verdict=comparison.verdict, stage=comparison.first.title)


def stage_on_page(result: StageResult) -> Table:
    """A stage with its worst findings; all of them where the table of tensors has none."""
    count = WORST if result.stage in TENSORS else len(result.findings)
    measured = worst(result)
    return {
        "slug": slug(result.name),
        "name": result.title,
        "status": result.status,
        "summary": result.summary,
        "worst": f"{measured.error:.1e} / {measured.limit:.0e}" if measured else "",
        "findings": result.findings[:count],
        "more": max(0, len(result.findings) - count),
        "method": result.stage.method,
    }


def slug(name: str) -> str:
    """A stage's name as the end of an address."""
    return "stage-" + "".join(letter if letter.isalnum() else "-" for letter in name)


def suspects(comparison: Comparison) -> list[Table]:
    """What to suspect first; a tensor with how far beyond its limit it is, and a link to its rows.

    The number is that of the stage that decided, where this compares tensors, else that of the gradients or norms that name suspects.
    """
    first = comparison.first.stage if comparison.first else None
    telling = sorted(comparison.stages, key=lambda result: (first, gradients, local_norms, result.stage).index(result.stage))
    findings: dict[str, Finding] = {}
    for result in telling:
        if result.status is Status.DIFFERENT and result.stage in TENSORS:
            for finding in result.findings:
                if finding.name and finding.excess > 1:
                    findings.setdefault(finding.name, finding)
    suspected: list[Table] = []
    for suspect in comparison.blame.suspects if comparison.blame else ():
        tensor = findings.get(suspect.name)
        suspected.append(
            {
                "text": plain(suspect.name) if tensor else suspect.what,
                "tensor": tensor is not None,
                "link": quote(suspect.name.encode("utf-8", "backslashreplace"), safe="") if tensor else "",
                "times": tensor.excess if tensor and math.isfinite(tensor.excess) else None,
            }
        )
    return suspected


def evidence(comparison: Comparison) -> tuple[Finding, ...]:
    """What shows the verdict: the first findings of the stage that decided it, those beyond their limits if any is."""
    findings = comparison.first.findings if comparison.first else ()
    return tuple(finding for finding in findings if finding.excess > 1)[:EVIDENCE] or findings[:EVIDENCE]


def closest(comparison: Comparison) -> list[Table]:
    """The stages that came closest to a limit, of a comparison in which everything agrees."""
    measured = [(stage.findings[0], stage) for stage in comparison.stages if stage.findings and stage.findings[0].limit]
    furthest = sorted(measured, key=lambda pair: -pair[0].excess)[:EVIDENCE] if comparison.first is None else []
    return [
        {"name": stage.title, "slug": slug(stage.name), "what": finding.what, "times": finding.excess}
        for finding, stage in furthest
        if finding.excess
    ]


def tensor_rows(comparison: Comparison) -> Rows:
    """Every finding of a tensor: the rows of the table."""
    return [
        (result.stage, finding)
        for result in comparison.stages
        if result.stage in TENSORS
        for finding in result.findings
        if finding.name and finding.error is not None and finding.unit is Unit.RELATIVE
    ]


def columns(rows: Rows) -> Table:
    """The same column by column, for the page's script; names once, stages by their place in :data:`TENSORS`."""
    names = {name: index for index, name in enumerate(dict.fromkeys(finding.name for _, finding in rows))}
    return {
        "names": [plain(name) for name in names],
        "name": [names[finding.name] for _, finding in rows],
        "stage": [TENSORS.index(stage) for stage, _ in rows],
        "step": [finding.step for _, finding in rows],
        **{key: [rounded(getattr(finding, key), 7) for _, finding in rows] for key in ("error", "limit", "excess", "scale", "direction")},
    }


def pictures_of(comparison: Comparison, rows: Rows) -> list[Table]:
    """A picture of each stage that has tensors.

    Chosen first is the stage that decided the verdict, else the last of those that differ: gradients say more than norms.
    """
    with_rows = {stage for stage, _ in rows}
    pictured = [stage for stage in PICTURED if stage in with_rows]
    beyond = {stage for stage, finding in rows if finding.excess > 1}
    deciding = [stage for stage in pictured if comparison.first and stage is comparison.first.stage]
    walked = [stage for stage in pictured if stage in beyond and stage in (activation_gradients, activations)]
    telling = [stage for stage in pictured if stage in beyond and stage in (gradients, local_norms)]
    usual = [stage for stage in pictured if stage is gradients]
    order = deciding or walked[:1] or telling or [stage for stage in pictured if stage in beyond] or usual or pictured
    origins = {result.stage: {origin.finding.name for origin in result.origins} for result in comparison.stages}
    return [{**picture(stage, rows, origins.get(stage, ())), "chosen": stage is order[-1]} for stage in pictured]


def picture(stage: Stage, rows: Rows, origins: Collection[str] = ()) -> Table:
    """Error over limit by layer and kind of parameter.

    ``cells`` are column, row, the worst of the tensors and steps that share the cell, by its index in ``rows``, its colour, and whether it
    is framed: where the error comes about, or where nothing tells that the worst of all.
    """
    places = {index: place(finding.name) for index, (row_stage, finding) in enumerate(rows) if row_stage is stage}
    cells: dict[tuple[str, str], int] = {}
    for index, where in places.items():
        worst_index = cells.setdefault((where.column, where.kind), index)
        if rows[index][1].excess > rows[worst_index][1].excess:
            cells[where.column, where.kind] = index
    excesses = {index: rows[index][1].excess for index in cells.values()}
    largest = max(filter(math.isfinite, excesses.values()), default=0.0)
    across = list(dict.fromkeys(where.column for where in sorted(places.values())))
    down = list(dict.fromkeys(where.kind for where in sorted(places.values(), key=lambda where: (where.order, where.kind))))
    near = [index for index, excess in excesses.items() if excess > max(1.0, NEAR * largest)]
    starred = [index for index in cells.values() if rows[index][1].name in origins] or (near if len(near) <= STARS else [])
    return {
        "title": stage.title,
        "stage": TENSORS.index(stage),
        "columns": across,
        "rows": down,
        "cells": [
            [across.index(column), down.index(kind), index, bin_of(rows[index][1], largest), index in starred]
            for (column, kind), index in cells.items()
        ],
    }


def bin_of(finding: Finding, largest: float) -> Bin:
    """Which colour a finding has, where ``largest`` is the largest finite excess of its picture."""
    if finding.error is None or not math.isfinite(finding.error):
        return Bin.NOT_FINITE
    if finding.excess <= 1:
        return Bin.EQUAL if finding.error == 0 else Bin.FAR_WITHIN if finding.excess <= WITHIN else Bin.WITHIN
    return Bin(Bin.THOUSANDTH + bisect_left(OF_THE_WORST, finding.excess / largest if math.isfinite(finding.excess) else 1.0))


def norms_plot(comparison: Comparison) -> Table | None:
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
    furthest = max(norms, key=lambda finding: finding.excess)
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
        "page.norm_furthest_beyond" if finding.excess > 1 else "page.norm_closest",
        name=finding.name,
        reference=shown(finding.reference),
        candidate=shown(finding.candidate),
    )


def is_constant(curve: Curve) -> bool:
    """Whether a curve is one number on both sides, of which a sentence says all."""
    return bool(curve.candidate) and len({*curve.reference, *curve.candidate}) == 1


def curve_plot(curve: Curve) -> Table:
    """A number of every step, or of a long run of the steps that show most, with what to say of it where it cannot be seen."""
    kept, name = drawn(curve), TITLES.get(curve.name, curve.name)
    whole = {"a": curve.reference, "b": curve.candidate, "d": curve.differences, "limit": curve.limits, "noise": curve.noise}
    series = {key: [values[index] for index in kept] if values else [] for key, values in whole.items()}
    thinned = message("page.thinned", count=len(kept)) if len(kept) < len(curve.steps) else None
    said = sentences(curve_text(curve), thinned)
    return {
        **plot(f"plot-{curve.name}", "steps", name, said, [curve.steps[index] for index in kept], series),
        "single": not curve.candidate,
    }


def plot(id: str, spec: str, title: Argument, text: Argument, x: Sequence[int], series: Mapping[str, Sequence[Value]]) -> Table:
    """A plot of a specification (``spec``): its address, what the template writes beside it, and its rows column by column."""
    numbers = {name: [rounded(value, DIGITS[name]) for value in values] for name, values in series.items()}
    return {"id": id, "spec": spec, "title": title, "text": text, "x": list(x), **numbers}


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


def rounded(value: Value, digits: int) -> float | None:
    """A number to so many significant digits, which is what a page shows; None of what is no number."""
    return float(f"{value:.{digits}g}") if isinstance(value, int | float) else None
