"""A comparison as a page: what an engineer opens first, sends to the other team, attaches to the ticket."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from align_hooks.checklist.result import Checklist
from align_hooks.comparison.stage_result import StageResult, Status, differing
from align_hooks.comparison.stages import registry
from align_hooks.comparison.verdict import ComparisonResult, Verdict
from align_hooks.messages import Argument, Side, message
from align_hooks.report import check, glossary, identity, to_change
from align_hooks.report.blocks import Box, Data, DocumentBlock, Fold, Heading, Items, Paragraph, Plots, Section, Special, fact_text
from align_hooks.report.comparison import acceptance, conclusion, worth_showing
from align_hooks.report.configuration import SettingGroup, chosen, configurations
from align_hooks.report.curve_plots import TITLES, curve_plot, is_constant, norms_plot
from align_hooks.report.document import Document, GlossaryEntry
from align_hooks.report.findings import worst
from align_hooks.report.glance import glance
from align_hooks.report.glossary import slug
from align_hooks.report.html import languages, page, without_texts
from align_hooks.report.tensors import TENSORS, Bin, Rows, columns, pictures_of, tensor_rows

EVIDENCE, WORST, NAMED = 3, 10, 4
"""The most findings beside the verdict, findings of a stage, and settings that are named beside the verdict."""
QUIET = (Status.SAME, Status.NOT_COMPARED)
"""Statuses of stages that are only listed by name."""


def comparison_page(comparison: ComparisonResult, version: str, checklist: Checklist | None = None) -> str:
    """Return the page, as text that encodes to UTF-8; ``version`` is that of align_hooks, ``checklist`` a check of the same runs."""
    return page(document(comparison, checklist), version)


def document(comparison: ComparisonResult, checklist: Checklist | None = None) -> Document:
    """Return a comparison with everything that a page shows."""
    result, first = comparison.verdict, comparison.first
    at_stage = [GlossaryEntry(at := slug(each.name), each.title, each.stage.method, at) for each in comparison.stages]
    return Document(
        result,
        comparison.headline,
        [*beside_verdict(comparison, checklist)],
        [*overview(comparison)],
        [*sections(comparison, checklist)],
        title=message("page.title", verdict=result) if first is None else message("page.title_at", verdict=result, stage=first.title),
        sides=identity.of_runs(comparison.sides),
        words=at_stage,
    )


# ---- the first screen


def beside_verdict(comparison: ComparisonResult, checklist: Checklist | None) -> Iterator[DocumentBlock]:
    """Yield where the fault sits, what to change and to do next, evidence and notes."""
    blocks = [*conclusion(comparison)]
    advice = [block for block in blocks if isinstance(block, Box)]
    yield from (block for block in blocks if block not in advice)
    first, change = comparison.first, to_change.of_comparison(comparison, checklist)
    if first is None:
        yield Items(closest(comparison), message("page.closest"))
    elif comparison.blame is None:
        yield Paragraph(first.summary)
    if change is not None:
        yield change
    elif comparison.verdict is Verdict.DIVERGED:
        yield Paragraph(settings_in_a_line(comparison, checklist), "dim")
    yield from advice
    if first is not None and (evidence := worth_showing(first)[:EVIDENCE]):
        head = message("page.what_shows_it")
        yield Heading(head)
        yield Special("findings", lambda: {"found": evidence, "eps": comparison.eps, "caption": head, "brief": True})
    yield Items(comparison.notes, message("page.notes"), style="dim")


def closest(comparison: ComparisonResult) -> list[Argument]:
    """Return the stages that came closest to a limit."""
    measured = [(stage.findings[0], stage) for stage in comparison.stages if stage.findings and stage.findings[0].limit]
    nearest = sorted(measured, key=lambda pair: -pair[0].limit_ratio)[:EVIDENCE]
    return [
        fact_text(
            stage.title, message("page.close", what=finding.what, distance=message("page.times_its_limit", times=finding.limit_ratio))
        )
        for finding, stage in nearest
        if finding.limit_ratio
    ]


def overview(comparison: ComparisonResult) -> Iterator[DocumentBlock]:
    """Yield the loss at a glance, and the ladder of stages."""
    picture = glance(comparison.curves)
    if picture is not None:
        is_plotted = any(curve.name == "loss" and not is_constant(curve) for curve in comparison.curves)
        yield Special("glance", lambda: {"glance": picture, "is_plotted": is_plotted})
    yield Special("ladder", lambda: {"ladder": ladder(comparison), **decided_by(comparison), "words": glossary.WORDS})


def decided_by(comparison: ComparisonResult) -> Data:
    """Return the address of the deciding stage, and the rounding step."""
    return {"first": slug(comparison.first.name) if comparison.first is not None else "", "eps": comparison.eps}


def ladder(comparison: ComparisonResult) -> list[list[Data]]:
    """Return the stages in the order of a step, quiet neighbours of one status in a group."""
    shown = map(stage_on_page, comparison.stages)
    return [list(group) for _, group in groupby(shown, key=lambda stage: stage["status"] if stage["is_quiet"] else stage["slug"])]


# ---- sections


def sections(comparison: ComparisonResult, checklist: Checklist | None) -> Iterator[Section]:
    """Yield the sections below the first screen."""
    rows = tensor_rows(comparison)
    pictures = pictures_of(comparison, rows)
    if pictures:
        head = message("page.where_it_starts" if comparison.verdict is Verdict.DIVERGED else "page.layer_by_layer")
        script = {"pictures": [*map(without_texts, pictures)]}
        picture = Special("picture", lambda: {"pictures": pictures, "bins": list(Bin), "script": script})
        yield Section("where", message("page.nav_where"), head, [picture])
    yield from curves(comparison)
    stages = [Special("stages", lambda: {**grouped(comparison), **decided_by(comparison)})]
    yield Section("stages", message("page.nav_stages"), message("page.stage_by_stage"), stages)
    if rows:
        head = message("page.tensors_by_excess")
        table = Special("tensors", lambda: tensors(comparison, rows))
        yield Section("tensors", message("page.nav_tensors"), head, [table], is_folded=True, look="unprinted")
    if checklist is not None:
        blocks = [*check.mattering(checklist), *check.harmless(checklist)]
        yield Section("checklist", message("page.nav_checklist"), message("page.guides_checklist"), blocks)
    head = message("page.both_configurations")
    yield Section("configurations", message("page.nav_configurations"), head, [*settings(comparison, checklist)])
    yield acceptance(comparison)
    methods = [Special("methods", lambda: {"methods": glossary.METHODS})]
    head = message("page.methods")
    yield Section("methods", message("page.nav_methods"), head, methods, is_folded=True, look="printed")


def curves(comparison: ComparisonResult) -> Iterator[Section]:
    """Yield the numbers of every step, and the norms of the first."""
    constants = [curve for curve in comparison.curves if is_constant(curve)]
    drawn = [curve for curve in comparison.curves if curve not in constants]
    if drawn:
        key = Special("key", lambda: {"noise": any(len(curve.noise) for curve in drawn)})
        lines = [Paragraph(message("page.constant", value=curve.reference[0]), "bold", word=TITLES[curve.name]) for curve in constants]
        plots = Plots(lambda: [*map(curve_plot, drawn)])
        yield Section("curves", message("page.nav_curves"), message("page.curves"), [key, *lines, plots])
    norms = norms_plot(comparison)
    if norms is not None:
        blocks = [Special("key_of_norms", dict), Plots(lambda: [norms])]
        yield Section("norms", message("page.nav_norms"), message("page.norms"), blocks)


def grouped(comparison: ComparisonResult) -> Data:
    """Return the stages that need attention, and the others by status."""
    shown = [*map(stage_on_page, comparison.stages)]
    return {
        "loud": [stage for stage in shown if not stage["is_quiet"]],
        "quiet": [(status, group) for status in QUIET if (group := [stage for stage in shown if stage["status"] is status])],
    }


def stage_on_page(result: StageResult) -> Data:
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


def tensors(comparison: ComparisonResult, rows: Rows) -> Data:
    """Return the table of tensors, which the page's script fills."""
    script = {"tensors": columns(rows), "stages": [languages(stage.title) for stage in TENSORS], "eps": comparison.eps}
    return {"tensors": [stage.title for stage in TENSORS], "words": glossary.WORDS, "script": script}


# ---- settings


def weighed(comparison: ComparisonResult, checklist: Checklist | None) -> Sequence[SettingGroup]:
    """Return both configurations; settings that the CheckList finds harmless do not weigh."""
    harmless = [checked for outcome in check.HARMLESS for checked in checklist.of(outcome)] if checklist is not None else []
    return configurations(comparison.sides, {checked.row.id for checked in harmless})


def names_of_differing(comparison: ComparisonResult, groups: Sequence[SettingGroup]) -> list[str]:
    """Return the names of settings that differ and may change the result; rates, which no configuration shows, first."""
    rates = [finding.name for finding in differing(comparison.stages, registry.hyper_parameters) if finding.step is not None]
    return list(dict.fromkeys([*rates, *(row.name for group in groups for row in group.rows if row.weighs)]))


def is_configured(comparison: ComparisonResult) -> bool:
    """Return whether both sides have their settings on record."""
    return all(side.facts.model and side.facts.optimizer for side in comparison.sides)


def settings_in_a_line(comparison: ComparisonResult, checklist: Checklist | None) -> Argument:
    """Return the first settings that differ and may change the result."""
    names = names_of_differing(comparison, weighed(comparison, checklist))
    if not names:
        return message("page.no_setting_differs" if is_configured(comparison) else "page.no_settings")
    more = f" +{len(names) - NAMED}" if len(names) > NAMED else ""
    return fact_text(message("page.settings_that_differ"), ", ".join(names[:NAMED]) + more)


def settings(comparison: ComparisonResult, checklist: Checklist | None) -> Iterator[DocumentBlock]:
    """Yield the settings that differ, those that may change the result first, and everything on record."""
    groups = weighed(comparison, checklist)
    mattering = chosen(groups, lambda row: row.weighs)
    harmless = chosen(groups, lambda row: row.differs and not row.weighs)
    if mattering:
        yield Paragraph(fact_text(message("page.settings_that_differ"), len(names_of_differing(comparison, groups))))
        yield configuration(mattering)
    else:
        yield Paragraph(message("page.no_setting_differs_alone" if is_configured(comparison) else "page.no_settings"))
    if harmless:
        count = sum(len(group.rows) for group in harmless)
        yield Fold(message("page.differ_harmlessly", count=count), [configuration(harmless)])
    if groups:
        yield Fold(message("page.everything_on_record"), [configuration(groups)])


def configuration(groups: Sequence[SettingGroup]) -> Special:
    """Return settings of both sides in groups."""
    return Special("configuration", lambda: {"groups": groups, "names": list(Side)})
