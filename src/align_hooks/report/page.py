"""A comparison as one HTML page: what an engineer opens first, sends to the other team, attaches to the ticket."""

from __future__ import annotations

import math
from itertools import groupby
from urllib.parse import quote

from align_hooks.checklist.result import Checklist
from align_hooks.comparison.finding import Finding
from align_hooks.comparison.stage_result import StageResult, Status, differing
from align_hooks.comparison.stages import registry
from align_hooks.comparison.verdict import ComparisonResult, Verdict
from align_hooks.messages import Side, message
from align_hooks.record.format.schema import Table
from align_hooks.report import glossary, identity, plots, to_change
from align_hooks.report.check_text import shown_rows
from align_hooks.report.configuration import chosen, configurations
from align_hooks.report.console import plain
from align_hooks.report.curve_plots import TITLES, curve_plot, is_constant, norms_plot
from align_hooks.report.frame import for_script, languages, render
from align_hooks.report.glance import glance
from align_hooks.report.glossary import GlossaryEntry, slug
from align_hooks.report.tensors import TENSORS, Bin, columns, pictures_of, tensor_rows
from align_hooks.report.text import worst, worth_showing
from align_hooks.report.to_change import HARMLESS, MATTERING

EVIDENCE, WORST = 3, 10
"""The most findings beside the verdict, and of a stage."""
QUIET = (Status.SAME, Status.NOT_COMPARED)
"""Statuses of stages that are only listed by name."""
SECTIONS = tuple(
    (name, message(f"page.nav_{name}"))
    for name in ("verdict", "where", "curves", "norms", "stages", "tensors", "checklist", "configurations", "acceptance", "methods")
)


def page(comparison: ComparisonResult, version: str, checklist: Checklist | None = None) -> str:
    """Return the page, as text that encodes to UTF-8; ``version`` is that of align_hooks, ``checklist`` a check of the same runs."""
    rows, result, first = tensor_rows(comparison), comparison.verdict, comparison.first
    pictures = pictures_of(comparison, rows)
    norms = norms_plot(comparison)
    constants = [curve for curve in comparison.curves if is_constant(curve)]
    curves = [curve_plot(curve) for curve in comparison.curves if curve not in constants]
    present = {"checklist": checklist is not None, "where": pictures, "tensors": rows, "norms": norms, "curves": curves}
    data = for_script(
        [*curves, *([norms] if norms else [])],
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
        title=message("page.title", verdict=result) if first is None else message("page.title_at", verdict=result, stage=first.title),
        sections=[section for section in SECTIONS if present.get(section[0], True)],
        comparison=comparison,
        diverged=result is Verdict.DIVERGED,
        glance=glance(comparison.curves),
        pictures=pictures,
        tensors=[stage.title for stage in TENSORS] if rows else [],
        norms=norms,
        curves=curves,
        constants=[(TITLES[curve.name], message("page.constant", value=curve.reference[0])) for curve in constants],
        bins=list(Bin),
        sides=list(Side),
        methods=glossary.METHODS,
        words=glossary.WORDS,
        stage_words=[GlossaryEntry(at := slug(result.name), result.title, result.stage.method, at) for result in comparison.stages],
        identities=identity.of_runs(comparison.sides),
        first=stage_on_page(first) if first is not None else None,
        suspects=suspects(comparison),
        to_change=to_change.of_comparison(comparison, checklist),
        evidence=tuple(worth_showing(first))[:EVIDENCE] if first is not None else (),
        closest=closest(comparison) if first is None else [],
        **stages(comparison),
        **settings(comparison, checklist),
    )


def suspects(comparison: ComparisonResult) -> list[Table]:
    """Return the suspects of the diagnosis; a tensor with its error over limit, and a link to its rows."""
    # the error of the deciding stage, where this compares tensors, else of the gradients or the local norms
    order = (comparison.first.stage if comparison.first else None, registry.gradients, registry.local_norms)
    ordered = sorted(comparison.stages, key=lambda result: (*order, result.stage).index(result.stage))
    findings: dict[str, Finding] = {}
    for result in ordered:
        if result.status is Status.DIFFERENT and result.stage in TENSORS:
            for finding in result.beyond:
                if finding.name:
                    findings.setdefault(finding.name, finding)
    suspected: list[Table] = []
    for suspect in comparison.blame.suspects if comparison.blame else ():
        tensor = findings.get(suspect.name)
        suspected.append(
            {
                "text": plain(suspect.name) if tensor else suspect.what,
                "tensor": tensor is not None,
                "link": quote(suspect.name.encode("utf-8", "backslashreplace"), safe="") if tensor else "",
                "times": tensor.limit_ratio if tensor and math.isfinite(tensor.limit_ratio) else None,
            }
        )
    return suspected


def closest(comparison: ComparisonResult) -> list[Table]:
    """Return the stages that came closest to a limit."""
    measured = [(stage.findings[0], stage) for stage in comparison.stages if stage.findings and stage.findings[0].limit]
    return [
        {"name": stage.title, "slug": slug(stage.name), "what": finding.what, "times": finding.limit_ratio}
        for finding, stage in sorted(measured, key=lambda pair: -pair[0].limit_ratio)[:EVIDENCE]
        if finding.limit_ratio
    ]


def stages(comparison: ComparisonResult) -> Table:
    """Return the stages in the order of a step: all, with quiet neighbours in groups (``ladder``), the loud, the quiet by status."""
    shown = [stage_on_page(result) for result in comparison.stages]
    return {
        "stages": shown,
        "ladder": [list(group) for _, group in groupby(shown, key=lambda stage: stage["status"] if stage["is_quiet"] else stage["slug"])],
        "loud": [stage for stage in shown if not stage["is_quiet"]],
        "quiet": [(status, group) for status in QUIET if (group := [stage for stage in shown if stage["status"] is status])],
    }


def stage_on_page(result: StageResult) -> Table:
    """Return a stage with its worst findings; with all findings where the table of tensors has none of them."""
    count = WORST if result.stage in TENSORS else len(result.findings)
    measured = worst(result)
    return {
        "slug": slug(result.name),
        "name": result.title,
        "status": result.status,
        "is_quiet": result.status in QUIET,
        "summary": result.summary,
        "worst": f"{measured.error:.1e} / {measured.limit:.0e}" if measured else "",
        "findings": result.findings[:count],
        "more": max(0, len(result.findings) - count),
        "method": result.stage.method,
    }


def settings(comparison: ComparisonResult, checklist: Checklist | None) -> Table:
    """Return both configurations and the rows of the CheckList, differences that change the result and harmless ones in groups."""
    harmless = {checked.row.id for outcome in HARMLESS for checked in checklist.of(outcome)} if checklist is not None else set()
    groups = configurations(comparison.sides, harmless)
    mattering = chosen(groups, lambda row: row.weighs)
    beside = chosen(groups, lambda row: row.differs and not row.weighs)
    rates = [finding.name for finding in differing(comparison.stages, registry.hyper_parameters) if finding.step is not None]
    names = [*rates, *(row.name for group in mattering for row in group.rows)]  # no configuration shows rates
    return {
        "configurations": groups,
        "telling": mattering,
        "beside": beside,
        "beside_count": sum(len(group.rows) for group in beside),
        "differing": list(dict.fromkeys(names)),
        "configured": all(side.facts.model and side.facts.optimizer for side in comparison.sides),
        "frameworks": [plain(str(side.facts.framework or "")) for side in comparison.sides],
        "mattering": shown_rows(checklist, MATTERING) if checklist is not None else None,
        "harmless": shown_rows(checklist, HARMLESS) if checklist is not None else [],
    }
