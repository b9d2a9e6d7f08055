"""A comparison as a document: what differs, evidence, what to change and to run next, stages, the guide's standard."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from align_hooks.comparison.control_band.signed_drift import SignedDrift
from align_hooks.comparison.finding import Finding
from align_hooks.comparison.stage_result import StageResult, Status, differing
from align_hooks.comparison.stages import registry
from align_hooks.comparison.verdict import Blame, ComparisonResult
from align_hooks.messages import Argument, Message, Side, id_of_first, message, rendered, sentences, terms
from align_hooks.report.acceptance import criteria
from align_hooks.report.blocks import (
    SCREEN,
    STEP,
    TEXT,
    Blocks,
    Box,
    Cell,
    Code,
    DocumentBlock,
    Item,
    Items,
    KeyValues,
    Medium,
    Paragraph,
    Section,
    Table,
    fact_text,
    of_text,
    parts_of,
)
from align_hooks.report.document import Document, style_of
from align_hooks.report.findings import describe, shown, times, values, worst
from align_hooks.report.identity import layout
from align_hooks.report.to_change import can_be_changed

BRIEF = 3500
"""The most bytes of a brief report's words; line breaks and indents come to less than 500 more."""
BROKEN = (Status.INCOMPLETE, Status.NOT_COMPARABLE)
"""Statuses of stages whose reason a reader needs."""
SHOWN, TENSORS, SETTINGS, KINDS, NOTES = 3, 3, 8, 12, 5
"""The most findings, suspects and settings in a text; drifting kinds of parameters and notes in Markdown."""


def document(comparison: ComparisonResult, *, brief: bool = False, drifts: Sequence[SignedDrift] = (), command: str = "") -> Document:
    """Return a comparison; Markdown shows ``drifts`` and the ``command`` of the report.

    A ``brief`` one has ids in the place of stages, and lacks its commands where it would have more than :data:`BRIEF` bytes with them.
    """
    if brief:
        blocks = [*conclusion(comparison), ids(comparison)]
        words, *commands = parts_of(comparison.next)
        lines = [comparison.headline, *(line for block in of_text(Medium.TERMINAL, blocks) for line in texts(block))]
        if commands and sum(len(rendered(line).encode()) for line in lines) > BRIEF:
            left_out = message("terminal.commands_left_out", count=len(commands))
            blocks = [*conclusion(replace(comparison, next=sentences(words, left_out))), ids(comparison)]
    else:
        blocks = [*conclusion(comparison), *grounds(comparison, drifts)]
    if command:
        blocks.append(Code([command], on=Medium.MARKDOWN))
    return Document(comparison.verdict, comparison.headline, blocks)


def texts(block: Paragraph | Code | Table) -> Sequence[Argument]:
    """Return the texts of a block of a brief report."""
    return [block.full_text] if isinstance(block, Paragraph) else block.lines if isinstance(block, Code) else ()


def ids(comparison: ComparisonResult) -> Code:
    """Return what a program reads of a brief report, a line a fact; what is not known, or not so, has no line."""
    blame, findings = comparison.blame, worth_showing(comparison.first) if comparison.first else ()
    known = {
        "verdict": [comparison.verdict.text],
        "first": [comparison.first.stage.id] if comparison.first else [],
        "place": [blame.place.value] if blame else [],
        "causes": list(blame.causes) if blame else [],
        "suspects": [suspect.name for suspect in blame.suspects[:TENSORS] if suspect.name] if blame else [],
        "evidence": [evidence(finding) for finding in findings[:1]],
        "next": [id_of_first(comparison.next)] if comparison.next else [],
        "limits": ["measured" if comparison.calibration else "default"],
    }
    return Code([f"{key}: {', '.join(values)}" for key, values in known.items() if values], STEP, "dim")


def evidence(finding: Finding) -> str:
    """Return a finding for programs: quantity, name and step, the error and its limit, as far as they are known."""
    numbers = (("step", finding.step), ("error", finding.error), ("limit", finding.limit))
    known = [f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}" for key, value in numbers if value is not None]
    return " ".join(filter(None, (str(finding.quantity or ""), finding.name, *known)))


# ---- what differs, where, and what to do


def conclusion(comparison: ComparisonResult) -> Iterator[DocumentBlock]:
    """Yield what differs, the place of the fault, what to change and to run next, and both sides."""
    findings = worst_findings(comparison)
    yield from (Paragraph(describe(finding), on=TEXT) for finding in findings)
    if comparison.blame is not None:
        yield from blamed(comparison, comparison.blame, [comparison.headline, *(finding.what for finding in findings)])
        origins = next((result.jumps for result in comparison.stages if result.jumps), ())
        yield from (Paragraph(line, on=Medium.TERMINAL) for line in origins)
    wanted = [finding for finding in to_change(comparison) if finding not in findings]
    if wanted:
        changes = (
            message("terminal.change_one", name=one.what, reference=shown(one.reference), candidate=shown(one.candidate)) for one in wanted
        )
        yield Paragraph(fact_text(message("terminal.change"), sentences(*changes)), on=Medium.TERMINAL)
    if comparison.next:
        yield Box(message("page.next"), "next", comparison.next)
    if others := [finding for finding in comparison.settings if finding not in (*wanted, *findings)]:
        yield Paragraph(settings(others), on=Medium.TERMINAL)
    for role, side in zip(Side, comparison.sides, strict=False):
        facts = side.framework, side.precision, layout(side), message("steps.count", count=side.steps)
        yield Paragraph(fact_text(role, terms(fact for fact in facts if fact)), "dim", on=Medium.TERMINAL)


def worst_findings(comparison: ComparisonResult) -> Sequence[Finding]:
    """Return the worst findings of the deciding stage, but for one that the headline states."""
    if comparison.first is None:
        return ()
    return [finding for finding in worth_showing(comparison.first) if finding.what != comparison.headline][:SHOWN]


def worth_showing(stage: StageResult) -> Sequence[Finding]:
    """Return a stage's findings that exceed their limits; all findings where none does."""
    return stage.beyond or stage.findings


def blamed(comparison: ComparisonResult, blame: Blame, said: Sequence[Argument]) -> Iterator[KeyValues]:
    """Yield the place of the fault with its first suspects, and its likely causes; a text leaves out what it has ``said``."""
    side = [Item(message("page.side_is_open"))] if blame.side_is_open else []
    place = [(message("page.sits_in"), [Item(blame.place)]), (message("page.wrong_side"), side)]
    known = sentences(*said, *blame.likely).parts
    suspects = [Item(part) for part in sentences(*(each.what for each in blame.suspects[:TENSORS])).parts if part not in known]
    yield KeyValues([*place, (message("page.suspects"), suspects)], on=TEXT)
    yield KeyValues([*place, (message("page.suspects"), suspected(comparison, blame))], on=Medium.PAGE)
    yield from (KeyValues([(message("page.likely"), [Item(cause)])]) for cause in blame.likely)


def suspected(comparison: ComparisonResult, blame: Blame) -> list[Item]:
    """Return all suspects of the diagnosis; a tensor with its error over limit, and a link to its rows."""
    # the error of the deciding stage, where this compares tensors, else of the gradients or the local norms
    order = (comparison.first.stage if comparison.first else None, registry.gradients, registry.local_norms)
    ordered = sorted(comparison.stages, key=lambda result: (*order, result.stage).index(result.stage))
    findings: dict[str, Finding] = {}
    for result in ordered:
        if result.status is Status.DIFFERENT and result.stage.is_of_tensors:
            for finding in result.beyond:
                findings.setdefault(finding.name, finding)
    items = []
    for suspect in blame.suspects:
        tensor = findings.get(suspect.name) if suspect.name else None
        ratio = tensor.limit_ratio if tensor is not None else math.inf
        note = message("page.times_its_limit", times=ratio) if math.isfinite(ratio) else None
        items.append(Item(suspect.what) if tensor is None else Item(suspect.name, suspect.name, note))
    return items


def to_change(comparison: ComparisonResult) -> list[Finding]:
    """Return the suspected settings that the candidate can change."""
    suspects = {suspect.name for suspect in comparison.blame.suspects} if comparison.blame is not None else set()
    unequal = (*comparison.settings, *differing(comparison.stages, registry.hyper_parameters))
    return [finding for finding in can_be_changed(comparison, unequal) if finding.name in suspects - {""}]


def settings(unequal: Sequence[Finding]) -> Message:
    """Return the differing model settings, the first of many."""
    first = [message("terminal.setting", name=finding.what, values=values(finding)) for finding in unequal[:SETTINGS]]
    more = message("terminal.more_settings", count=len(unequal) - SETTINGS) if len(unequal) > SETTINGS else None
    return message("terminal.settings_differ", settings=sentences(*first, more))


# ---- stages, standard and notes


def grounds(comparison: ComparisonResult, drifts: Sequence[SignedDrift]) -> Iterator[DocumentBlock]:
    """Yield the result of every stage, the guide's acceptance standard, and notes."""
    yield stage_table(comparison.stages)
    for stage in comparison.stages:
        if stage.status in BROKEN and stage is not comparison.first:
            line = message("terminal.stage_status", stage=stage.title, status=stage.status, summary=stage.summary)
            yield Paragraph(line, on=TEXT)
    if unclear := [stage.title for stage in comparison.stages if stage.status is Status.INCONCLUSIVE and worst(stage) is not None]:
        yield Paragraph(message("terminal.inconclusive", stages=terms(unclear)), on=TEXT)
    if without := not_compared(comparison.stages):
        yield Paragraph(without, on=TEXT)
    if drifts:
        yield from drifting(drifts)
    yield acceptance(comparison)
    yield Items(comparison.notes, style="dim", on=Medium.TERMINAL)
    yield Items(comparison.notes[:NOTES], on=Medium.MARKDOWN)


def stage_table(stages: Sequence[StageResult]) -> Table:
    """Return a table of the stages that were compared: the result of each, its worst error, and a few words on what was compared."""
    heads = message("page.stage"), message("page.result"), message("terminal.worst"), message("page.compared")
    rows = [
        (
            stage.title,
            Cell(stage.status, style_of(stage.status)),
            times(worst(stage)),
            stage.short or (None if stage.status in BROKEN else stage.summary),
        )
        for stage in stages
        if stage.status is not Status.NOT_COMPARED
    ]
    return Table(heads, rows, numbers=(2,), on=TEXT)


def not_compared(stages: Sequence[StageResult]) -> Message | None:
    """Return the stages that were not compared, grouped by reason; None where all were."""
    reasons: dict[str, list[StageResult]] = {}
    for stage in stages:
        if stage.status is Status.NOT_COMPARED:
            reasons.setdefault(rendered(stage.summary), []).append(stage)
    if not reasons:
        return None
    each = (message("terminal.with_reason", stages=terms(one.title for one in alike), why=why) for why, alike in reasons.items())
    return message("terminal.not_compared", stages=sentences(*each))


def drifting(drifts: Sequence[SignedDrift]) -> Iterator[DocumentBlock]:
    """Yield the drift of each quantity and of the kinds of local norms that drift most, in the order of a forward pass."""
    kinds = sorted((drift for drift in drifts if drift.kind), key=lambda drift: -abs(drift.mean))[:KINDS]
    rows = [
        (message("markdown.norm_of", kind=drift.kind) if drift.kind else drift.quantity, f"{drift.mean:+.2e}", f"{drift.largest:+.2e}")
        for drift in drifts
        if not drift.kind or drift in kinds
    ]
    heads = message("markdown.quantity"), message("markdown.mean"), message("markdown.largest")
    yield Paragraph(message("markdown.drift", count=max(drift.steps for drift in drifts)), on=Medium.MARKDOWN)
    yield Table(heads, rows, numbers=(1, 2), on=Medium.MARKDOWN)


def acceptance(comparison: ComparisonResult) -> Section:
    """Return the guide's acceptance standard."""
    blocks: Blocks = [
        Paragraph(message("page.acceptance_explained"), on=Medium.PAGE),
        Paragraph(message("terminal.acceptance"), indent=0, on=Medium.TERMINAL),
        *criteria(comparison.acceptance),
    ]
    return Section("acceptance", message("page.nav_acceptance"), message("page.acceptance"), blocks, on=SCREEN)
