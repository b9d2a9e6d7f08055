"""A comparison as one HTML page: what an engineer opens first, sends to the other team, attaches to the ticket.

The verdict, what to suspect and what to run next come first, for that is what a page is opened for; everything else is below, each piece
under an address of its own.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any
from urllib.parse import quote

from align_hooks.checklist.result import Checklist
from align_hooks.compare.places import place
from align_hooks.compare.stages.gradients import gradients
from align_hooks.compare.stages.hyper_parameters import hyper_parameters
from align_hooks.compare.stages.local_norms import local_norms
from align_hooks.compare.stages.registry import LADDER
from align_hooks.compare.stages.stage import Stage
from align_hooks.compare.verdict import (
    Comparison,
    Curve,
    Finding,
    Quantity,
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
from align_hooks.report import plots
from align_hooks.report.checked_rows import first_rows
from align_hooks.report.configuration import configurations
from align_hooks.report.frame import languages, render
from align_hooks.report.methods import METHODS
from align_hooks.report.text import plain, worst
from align_hooks.report.text import shown as shown_value

EVIDENCE, WORST = 3, 10
"""Findings shown beside the verdict, and of a stage."""
PICTURED = tuple(stage for stage in LADDER if stage.is_pictured)
TENSORS = tuple(stage for stage in LADDER if stage.is_of_tensors)
"""Stages with one finding a tensor; the first make a picture of the model."""
WITHIN, OF_THE_WORST = 0.1, (1e-3, 1e-2, 1 / 30, 0.1, 1 / 3, 2 / 3)
STARS, NEAR = 3, 0.8
"""So many of a picture are framed, where no more are so near to the worst."""
TITLES = {
    "loss": Quantity.LOSS,
    "grad_norm": message("page.global_gradient_norm"),
    "learning_rate": Quantity.LEARNING_RATE,
}
"""Names of the curves."""
SECTIONS = (
    ("verdict", message("page.nav_verdict")),
    ("where", message("page.nav_where")),
    ("tensors", message("page.nav_tensors")),
    ("norms", message("page.nav_norms")),
    ("curves", message("page.nav_curves")),
    ("stages", message("page.nav_stages")),
    ("checklist", message("page.nav_checklist")),
    ("configurations", message("page.nav_configurations")),
    ("acceptance", message("page.nav_acceptance")),
    ("methods", message("page.nav_methods")),
)


class Bin(IntEnum):
    """Error over limit, as the picture colours it: beyond the limit by how near it is to the worst of the picture, for where an error
    starts is where it is largest."""

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


@dataclass(frozen=True, slots=True)
class Shown:
    """A stage as the page shows it."""

    slug: str
    name: Argument
    status: Status
    summary: Argument
    worst: str
    findings: tuple[Finding, ...]
    more: int
    method: Message


def page(comparison: Comparison, version: str, checklist: Checklist | None = None) -> str:
    """The whole page, as text that encodes to UTF-8; ``version`` is that of align_hooks, ``checklist`` a check of the same two runs."""
    stages = [shown(one) for one in comparison.stages]
    first = shown(comparison.first) if comparison.first is not None else None
    rows = tensor_rows(comparison)
    pictures = [one for one in (picture(stage, rows) for stage in PICTURED) if one is not None]
    _choose(pictures, comparison)
    norms = norms_plot(comparison)
    same = [one for one in comparison.curves if constant(one)]
    curves = [curve_plot(one) for one in comparison.curves if one not in same]
    settings = configurations(comparison.sides)
    present = {"checklist": checklist is not None, "where": pictures, "tensors": rows, "norms": norms, "curves": curves}
    data = {
        "eps": comparison.eps,
        "tensors": columns(rows) if rows else None,
        "stages": [languages(stage.title) for stage in TENSORS],
        "pictures": pictures,
        "plots": [*([norms] if norms else []), *curves],
        "specs": {"steps": plots.steps(), "tensors": plots.tensors(), "picture": plots.picture()},
    }
    return render(
        "comparison.html",
        data,
        version=version,
        title=title(comparison),
        sections=[one for one in SECTIONS if present.get(one[0], True)],
        names=[plain(one.path) for one in comparison.sides],
        frameworks=[plain(str(one.facts.framework or "")) for one in comparison.sides],
        verdict=comparison.verdict,
        diverged=comparison.verdict is Verdict.DIVERGED,
        first=first,
        blame=comparison.blame,
        suspects=suspects(comparison),
        next=comparison.next,
        agreement=comparison.agreement,
        evidence=evidence(comparison),
        closest=closest(comparison),
        settings=comparison.settings,
        eps=comparison.eps,
        stages=stages,
        slugs=[one.slug for one in stages],
        left=[one for one in stages if one.status is Status.NOT_COMPARED],
        pictures=pictures,
        tensors=[stage.title for stage in TENSORS] if rows else [],
        norms=norms,
        curves=curves,
        same=[(TITLES[one.name], message("page.constant", value=one.reference[0])) for one in same],
        bins=list(Bin),
        sides=list(Side),
        checked=first_rows(checklist) if checklist is not None else None,
        configurations=settings,
        differing=list(dict.fromkeys([*unlike_rates(comparison), *(row.name for group in settings for row in group.rows if row.differs)])),
        configured=all(one.facts.model and one.facts.optimizer for one in comparison.sides),
        acceptance=comparison.acceptance,
        notes=comparison.notes,
        methods=METHODS,
    )


def title(comparison: Comparison) -> Message:
    """What a browser calls the page."""
    if comparison.first is None:
        return message("page.title", verdict=comparison.verdict)
    return message("page.title_at", verdict=comparison.verdict, stage=comparison.first.title)


def shown(stage: StageResult) -> Shown:
    """A stage with its worst findings."""
    more = len(stage.findings) - WORST if stage.stage in TENSORS else 0
    found = stage.findings[:WORST] if more > 0 else stage.findings
    measured = worst(stage)
    numbers = f"{measured.error:.1e} / {measured.limit:.0e}" if measured else ""
    return Shown(slug(stage.name), stage.title, stage.status, stage.summary, numbers, found, max(0, more), stage.stage.method)


def slug(name: str) -> str:
    """A stage's name as the end of an address."""
    return "stage-" + "".join(one if one.isalnum() else "-" for one in name)


def unlike_rates(comparison: Comparison) -> list[str]:
    """Names of the learning rates that differ, which no configuration shows."""
    return [finding.name for finding in differing(comparison.stages, hyper_parameters) if finding.step is not None]


def suspects(comparison: Comparison) -> list[dict[str, Any]]:
    """What to suspect first; a tensor with how far beyond its limit it is, and a link to its rows.

    The number is that of the stage that decided, where this compares tensors, else that of the gradients or norms that name suspects.
    """
    found: dict[str, Finding] = {}
    first = comparison.first.stage if comparison.first else None
    telling = sorted(comparison.stages, key=lambda result: (first, gradients, local_norms, result.stage).index(result.stage))
    for stage in telling:
        if stage.status is Status.DIFFERENT and stage.stage in TENSORS:
            for finding in (one for one in stage.findings if one.name and one.excess > 1):
                found.setdefault(finding.name, finding)
    listed = []
    for suspect in comparison.blame.suspects if comparison.blame else ():
        one = found.get(suspect.name) if suspect.name else None
        listed.append(
            {
                "text": plain(suspect.name) if one else suspect.what,
                "tensor": one is not None,
                "link": quote(suspect.name.encode("utf-8", "backslashreplace"), safe="") if one else "",
                "times": one.excess if one and math.isfinite(one.excess) else None,
            }
        )
    return listed


def evidence(comparison: Comparison) -> tuple[Finding, ...]:
    """What shows the verdict: the first findings of the stage that decided it, those beyond their limits if any is."""
    found = comparison.first.findings if comparison.first else ()
    return tuple(one for one in found if one.excess > 1)[:EVIDENCE] or found[:EVIDENCE]


def closest(comparison: Comparison) -> list[dict[str, Any]]:
    """Of a comparison in which all agrees the stages that came closest to a limit."""
    measured = [(stage.findings[0], stage) for stage in comparison.stages if stage.findings and stage.findings[0].limit]
    furthest = sorted(measured, key=lambda one: -one[0].excess)[:EVIDENCE] if comparison.first is None else []
    return [{"name": stage.title, "slug": slug(stage.name), "what": one.what, "times": one.excess} for one, stage in furthest if one.excess]


def tensor_rows(comparison: Comparison) -> list[tuple[Stage, Finding]]:
    """Every finding of a tensor, with the stage that it is of: the rows of the table."""
    return [
        (result.stage, one)
        for result in comparison.stages
        if result.stage in TENSORS
        for one in result.findings
        if one.name and one.error is not None and one.unit is Unit.RELATIVE
    ]


def columns(rows: Sequence[tuple[Stage, Finding]]) -> dict[str, list[Any]]:
    """The same column by column, for the page's script; names once, stages by their place in :data:`TENSORS`."""
    names = list(dict.fromkeys(one.name for _, one in rows))
    numbers = {name: at for at, name in enumerate(names)}
    return {
        "names": [plain(name) for name in names],
        "name": [numbers[one.name] for _, one in rows],
        "stage": [TENSORS.index(stage) for stage, _ in rows],
        "step": [one.step for _, one in rows],
        **{key: [rounded(getattr(one, key), 7) for _, one in rows] for key in ("error", "limit", "excess", "scale", "direction")},
    }


def picture(stage: Stage, rows: Sequence[tuple[Stage, Finding]]) -> dict[str, Any] | None:
    """Error over limit by layer and kind of parameter; None where a stage has no tensors.

    ``cells`` are column, row, the worst of the tensors and steps that share the cell, by its place in ``rows``, its colour, and whether it
    is among the worst of all.
    """
    cells: dict[tuple[str, str], int] = {}
    found = [(at, one, place(one.name)) for at, (of, one) in enumerate(rows) if of is stage]
    for at, one, where in found:
        seen = cells.get((where.column, where.kind))
        if seen is None or one.excess > rows[seen][1].excess:
            cells[where.column, where.kind] = at
    if not cells:
        return None
    largest = max((rows[at][1].excess for at in cells.values() if math.isfinite(rows[at][1].excess)), default=0.0)
    places = sorted({where for _, _, where in found})
    across = list(dict.fromkeys(one.column for one in places))
    down = list(dict.fromkeys(one.kind for one in sorted(places, key=lambda one: (one.order, one.kind))))
    near = [at for at in cells.values() if rows[at][1].excess > max(1.0, NEAR * largest)]
    starred = near if len(near) <= STARS else []
    return {
        "title": stage.title,
        "stage": TENSORS.index(stage),
        "columns": across,
        "rows": down,
        "cells": [
            [across.index(column), down.index(row), at, bin_of(rows[at][1], largest), at in starred] for (column, row), at in cells.items()
        ],
        "chosen": False,
    }


def _choose(pictures: list[dict[str, Any]], comparison: Comparison) -> None:
    """Show the stage that decided the verdict first, else the last of those that differ: gradients say more than norms."""
    if not pictures:
        return
    out = [one for one in pictures if any(bin > Bin.WITHIN for *_, bin, _ in one["cells"])]
    by_stage = {TENSORS[one["stage"]]: one for one in pictures}
    first = by_stage.get(comparison.first.stage) if comparison.first else None
    telling = [one for one in out if TENSORS[one["stage"]] in (gradients, local_norms)]
    (first or (telling or out or [by_stage.get(gradients) or pictures[-1]])[-1])["chosen"] = True


def bin_of(one: Finding, largest: float) -> Bin:
    """Which colour a finding has, where ``largest`` is the largest finite excess of its picture."""
    if one.error is None or not math.isfinite(one.error):
        return Bin.NOT_FINITE
    if one.excess <= 1:
        return Bin.EQUAL if one.error == 0 else Bin.FAR_WITHIN if one.excess <= WITHIN else Bin.WITHIN
    return Bin(Bin.THOUSANDTH + bisect_left(OF_THE_WORST, one.excess / largest if math.isfinite(one.excess) else 1.0))


def norms_plot(comparison: Comparison) -> dict[str, Any] | None:
    """Local norms of the first common step, in the model's order; None where none were compared."""
    stage = next((one for one in comparison.stages if one.stage is local_norms), None)
    found = [one for one in stage.findings if one.name and one.step is not None] if stage else []
    if not found:
        return None
    first = min(one.step or 0 for one in found)
    found = sorted((one for one in found if one.step == first), key=lambda one: place(one.name))
    across = [place(one.name).column for one in found]
    starts = [at for at, column in enumerate(across) if at == 0 or across[at - 1] != column]
    furthest = max(found, key=lambda one: one.excess)
    return {
        "id": "plot-norms",
        "spec": "tensors",
        "title": at_step(message("stage.local_norms"), first),
        "said": [sentences(message("page.tensors_counted", count=len(found)), of_norms(furthest))],
        "x": list(range(len(found))),
        "a": [rounded(one.reference, 9) for one in found],
        "b": [rounded(one.candidate, 9) for one in found],
        "d": [rounded(one.error, 4) for one in found],
        "limit": [rounded(one.limit, 4) for one in found],
        "noise": [],
        "names": [plain(one.name) for one in found],
        "starts": starts,
        "labels": [across[at] for at in starts],
    }


def of_norms(furthest: Finding) -> Message:
    """The norm that is furthest from the other side's."""
    if not furthest.error:
        return message("page.all_equal")
    return message(
        "page.norm_furthest_beyond" if furthest.excess > 1 else "page.norm_closest",
        name=furthest.name,
        reference=shown_value(furthest.reference),
        candidate=shown_value(furthest.candidate),
    )


def constant(curve: Curve) -> bool:
    """Whether a curve is one number on both sides, of which a sentence says all."""
    return bool(curve.candidate) and len({*curve.reference, *curve.candidate}) == 1


def curve_plot(curve: Curve) -> dict[str, Any]:
    """A number of every step, with what to say of it where it cannot be seen."""
    return {
        "id": f"plot-{curve.name}",
        "spec": "steps",
        "title": TITLES.get(curve.name, curve.name),
        "said": [of_curve(curve)],
        "x": list(curve.steps),
        "a": [rounded(one, 9) for one in curve.reference],
        "b": [rounded(one, 9) for one in curve.candidate],
        "d": [rounded(one, 4) for one in curve.differences],
        "limit": [rounded(one, 4) for one in curve.limits],
        "noise": [rounded(one, 4) for one in curve.noise],
        "single": not curve.candidate,
    }


def of_curve(curve: Curve) -> Joined:
    """What there is to say of a curve: how far it is apart where there are two sides, else where it leads."""
    lost = sum(one is None or not math.isfinite(one) for one in (*curve.reference, *curve.candidate))
    gaps = message("page.values_missing", count=lost) if lost else None
    known = [(abs(one), step) for one, step in zip(curve.differences, curve.steps, strict=False) if one is not None]
    counted = message("steps.count", count=len(curve.steps))
    if not known:
        return sentences(counted, range_of(curve), gaps)
    largest, step = max(known, key=lambda one: (math.inf if math.isnan(one[0]) else one[0], -one[1]))
    return sentences(counted, message("page.largest_difference", difference=largest, step=when(step)), beyond_limits(curve), gaps)


def range_of(curve: Curve) -> Message | None:
    """Where the curve of a reference begins and ends, and between which values it lies."""
    there = [one for one in curve.reference if one is not None and math.isfinite(one)]
    return message("page.range", first=there[0], last=there[-1], lowest=min(there), highest=max(there)) if there else None


def beyond_limits(curve: Curve) -> Message | None:
    """At how many steps a curve is beyond its limit."""
    rows = zip(curve.differences, curve.steps, curve.limits, strict=False)
    beyond = [step for one, step, limit in rows if one is not None and not abs(one) <= limit]
    return message("page.beyond_at", count=len(beyond), step=when(beyond[0])) if beyond else None


def rounded(value: Value, digits: int) -> float | None:
    """To so many significant digits, which is what a page shows; None of what is no number."""
    return float(f"{value:.{digits}g}") if isinstance(value, int | float) else None
