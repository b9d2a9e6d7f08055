"""A comparison as one HTML page: what an engineer opens first, sends to the other team, attaches to the ticket.

The verdict, what to suspect, what to change and what to run next come first, with who the runs are and how their losses went, for that is
what a page is opened for. Pictures follow, then tables, each piece under an address of its own.
"""

from __future__ import annotations

import math
from itertools import groupby
from urllib.parse import quote

from align_hooks.checklist.result import Checklist
from align_hooks.comparison.finding import Finding
from align_hooks.comparison.stage_result import StageResult, Status, differing
from align_hooks.comparison.stages import registry
from align_hooks.comparison.verdict import ComparisonResult, Verdict
from align_hooks.messages import Message, Side, message
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
from align_hooks.report.text import beyond, worst
from align_hooks.report.to_change import HARMLESS, MATTERING

EVIDENCE, WORST = 3, 10
"""Findings shown beside the verdict, and of a stage."""
QUIET = (Status.SAME, Status.NOT_COMPARED)
"""Stages that a line of names tells all of."""
SECTIONS = tuple(
    (name, message(f"page.nav_{name}"))
    for name in ("verdict", "where", "curves", "norms", "stages", "tensors", "checklist", "configurations", "acceptance", "methods")
)


def page(comparison: ComparisonResult, version: str, checklist: Checklist | None = None) -> str:
    """The whole page, as text that encodes to UTF-8; ``version`` is that of align_hooks, ``checklist`` a check of the same two runs."""
    rows = tensor_rows(comparison)
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
        title=title(comparison),
        sections=[section for section in SECTIONS if present.get(section[0], True)],
        comparison=comparison,
        diverged=comparison.verdict is Verdict.DIVERGED,
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
        **first_screen(comparison, checklist),
        **stages(comparison),
        **settings(comparison, checklist),
    )


def title(comparison: ComparisonResult) -> Message:
    """What a browser calls the page."""
    if comparison.first is None:
        return message("page.title", verdict=comparison.verdict)
    return message("page.title_at", verdict=comparison.verdict, stage=comparison.first.title)


# ---- the first screen


def first_screen(comparison: ComparisonResult, checklist: Checklist | None) -> Table:
    """Who the runs are, what to suspect, what to change, and what shows it."""
    return {
        "identities": identity.of_runs(comparison.sides),
        "first": stage_on_page(comparison.first) if comparison.first is not None else None,
        "suspects": suspects(comparison),
        "to_change": to_change.of_comparison(comparison, checklist),
        "evidence": evidence(comparison),
        "closest": closest(comparison),
    }


def suspects(comparison: ComparisonResult) -> list[Table]:
    """What to suspect first; a tensor with how far beyond its limit it is, and a link to its rows.

    The number is that of the stage that decided, where this compares tensors, else that of the gradients or norms that name suspects.
    """
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


def evidence(comparison: ComparisonResult) -> tuple[Finding, ...]:
    """What shows the verdict: the first findings of the stage that decided it, those beyond their limits if any is."""
    return tuple(beyond(comparison.first))[:EVIDENCE] if comparison.first else ()


def closest(comparison: ComparisonResult) -> list[Table]:
    """The stages that came closest to a limit, of a comparison in which everything agrees."""
    measured = [(stage.findings[0], stage) for stage in comparison.stages if stage.findings and stage.findings[0].limit]
    furthest = sorted(measured, key=lambda pair: -pair[0].limit_ratio)[:EVIDENCE] if comparison.first is None else []
    return [
        {"name": stage.title, "slug": slug(stage.name), "what": finding.what, "times": finding.limit_ratio}
        for finding, stage in furthest
        if finding.limit_ratio
    ]


# ---- stages


def stages(comparison: ComparisonResult) -> Table:
    """The stages in the order of a training step, quiet neighbours in one line (``ladder``); and with their findings, the quiet ones
    apart by how they came out (``quiet``)."""
    shown = [stage_on_page(result) for result in comparison.stages]
    return {
        "stages": shown,
        "ladder": [list(group) for _, group in groupby(shown, key=lambda stage: stage["status"] if stage["is_quiet"] else stage["slug"])],
        "loud": [stage for stage in shown if not stage["is_quiet"]],
        "quiet": [(status, group) for status in QUIET if (group := [stage for stage in shown if stage["status"] is status])],
    }


def stage_on_page(result: StageResult) -> Table:
    """A stage with its worst findings; all of them where the table of tensors has none."""
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


# ---- settings


def settings(comparison: ComparisonResult, checklist: Checklist | None) -> Table:
    """Both configurations and the rows of the CheckList; what changes the result apart from what does not."""
    harmless = {checked.row.id for outcome in HARMLESS for checked in checklist.of(outcome)} if checklist is not None else set()
    groups = configurations(comparison.sides, harmless)
    apart = chosen(groups, lambda row: row.weighs)
    aside = chosen(groups, lambda row: row.differs and not row.weighs)
    rates = [finding.name for finding in differing(comparison.stages, registry.hyper_parameters) if finding.step is not None]
    unlike = [*rates, *(row.name for group in apart for row in group.rows)]  # no configuration shows rates
    return {
        "configurations": groups,
        "telling": apart,
        "beside": aside,
        "beside_count": sum(len(group.rows) for group in aside),
        "differing": list(dict.fromkeys(unlike)),
        "configured": all(side.facts.model and side.facts.optimizer for side in comparison.sides),
        "frameworks": [plain(str(side.facts.framework or "")) for side in comparison.sides],
        "mattering": shown_rows(checklist, MATTERING) if checklist is not None else None,
        "harmless": shown_rows(checklist, HARMLESS) if checklist is not None else [],
    }
