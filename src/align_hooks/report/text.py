"""A comparison on a terminal: what differs, the findings that show it, what to change and to run next, the ladder, the guide's standard.

It fits 80 columns. A stage is a line, with what was compared in a few words. The page and the JSON have all of it. The verdict comes first,
and once more at the end where the report is longer than the terminal is high.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from align_hooks.comparison.finding import Finding, Unit, Value, Words
from align_hooks.comparison.settings.recorded import can_be_given
from align_hooks.comparison.stage_result import StageResult, Status, differing
from align_hooks.comparison.stages.hyper_parameters import hyper_parameters
from align_hooks.comparison.verdict import Blame, ComparisonResult, Criterion
from align_hooks.messages import Argument, Joined, Message, Separator, Side, in_a_row, message, rendered, sentences, terms, with_commands
from align_hooks.report.console import STEP, Trimmed, grid, paragraph, plain, style_of, verdict
from align_hooks.report.identity import layout

JUDGED = {None: ("dim", message("page.not_judged")), True: ("green", message("page.passed")), False: ("red", message("page.failed"))}
BROKEN = (Status.INCOMPLETE, Status.NOT_COMPARABLE)
"""Stages of which a reader must know why."""
SHOWN, TENSORS, SETTINGS = 3, 3, 8
"""The most findings, suspects and settings that are listed."""
ROUNDING = 0.01
"""Times its limit, below which an error is nothing beyond rounding."""


def shown(value: Value) -> Argument:
    """A side's value as a finding shows it: nine digits of a number, which tell one fp32 from another."""
    return f"{value:.9g}" if isinstance(value, float) else value


def size(count: int) -> str:
    """Bytes as people read them: decimal units, three digits."""
    number, unit = float(count), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if number < 999.5:
            break
        number, unit = number / 1000, larger
    return f"{number:.3g} {unit}"


def render(comparison: ComparisonResult, console: Console, *, brief: bool = False) -> None:
    """Print a comparison, ``brief`` without its stages; the verdict once more where its beginning has left the screen by then."""
    with console.capture() as whole:
        report(comparison, console, brief)
    report(comparison, console, brief)
    if console.is_terminal and whole.get().count("\n") >= console.height:
        head(comparison, console)


def head(comparison: ComparisonResult, console: Console) -> None:
    """Print the verdict, and what differs."""
    verdict(console, comparison.verdict, style_of(comparison.verdict), comparison.headline)


def report(comparison: ComparisonResult, console: Console, brief: bool) -> None:
    """Print a comparison, once: what to know and to do, and unless ``brief`` what that stands on."""
    conclusion(comparison, console)
    if not brief:
        grounds(comparison, console)


def conclusion(comparison: ComparisonResult, console: Console) -> None:
    """Print what differs, where the fault sits, what to change and to run next, and of which runs all that is said."""
    head(comparison, console)
    first, blame = comparison.first, comparison.blame
    findings = [finding for finding in beyond(first) if finding.what != comparison.headline][:SHOWN] if first is not None else []
    for finding in findings:
        paragraph(console, describe(finding))
    said = [*sentences(comparison.headline, *(blame.likely if blame is not None else ())).parts, *(finding.what for finding in findings)]
    for line in blamed(blame, said) if blame is not None else ():
        paragraph(console, line)
    for origin in origins(comparison):
        paragraph(console, origin)
    wanted = [finding for finding in to_change(comparison) if finding not in findings]
    if wanted:
        paragraph(console, changes(wanted))
    if comparison.next:
        advice, *commands = parts_of(comparison.next)
        paragraph(console, with_commands(message("terminal.next", what=advice), *commands))
    if others := [finding for finding in comparison.settings if finding not in (*wanted, *findings)]:
        paragraph(console, settings(others))
    for role, side in zip(Side, comparison.sides, strict=False):
        facts = side.framework, side.precision, layout(side), message("steps.count", count=side.steps)
        paragraph(console, message("terminal.side", role=role, facts=terms(fact for fact in facts if fact)), style="dim")


def grounds(comparison: ComparisonResult, console: Console) -> None:
    """Print how every stage came out, the guide's acceptance standard, and notes."""
    console.print(Trimmed(ladder(comparison.stages)))
    for stage in comparison.stages:
        if stage.status in BROKEN and stage is not comparison.first:
            paragraph(console, message("terminal.stage_status", stage=stage.title, status=stage.status, summary=stage.summary))
    if unclear := [stage.title for stage in comparison.stages if stage.status is Status.INCONCLUSIVE and worst(stage) is not None]:
        paragraph(console, message("terminal.inconclusive", stages=terms(unclear)))
    if without := not_compared(comparison.stages):
        paragraph(console, without)
    paragraph(console, message("terminal.acceptance"), indent=0)
    criteria(comparison.acceptance, console)
    for note in comparison.notes:
        paragraph(console, note, style="dim")


def beyond(stage: StageResult) -> Sequence[Finding]:
    """What a stage found, without what is within its limits where anything is not."""
    return stage.beyond or stage.findings


def parts_of(advice: Argument) -> Sequence[Argument]:
    """What to do next in words, and the commands for it."""
    return advice.parts if isinstance(advice, Joined) and advice.separator is Separator.LINES else (advice,)


def criteria(acceptance: Sequence[Criterion], console: Console) -> None:
    """Print the lines of the acceptance standard."""
    for criterion in acceptance:
        colour, judged = JUDGED[criterion.passed]
        line = message("terminal.criterion", what=criterion.what, value=criterion.found)
        verdict(console, judged, colour, line, between="  ", indent=STEP)


def blamed(blame: Blame, said: Sequence[Argument]) -> list[Argument]:
    """Where the fault sits, the first suspects that are not ``said`` already, and what it likely is."""
    told = sentences(*(suspect.what for suspect in blame.suspects[:TENSORS])).parts
    suspects = sentences(*(what for what in told if what not in said))
    suspected = message("terminal.first_suspects", suspects=suspects) if suspects.parts else None
    side = message("terminal.side_is_open") if blame.side_is_open else None
    place = sentences(message("terminal.sits_in", place=blame.place), side, suspected)
    return [place, *(message("terminal.likely", cause=cause) for cause in blame.likely)]


def origins(comparison: ComparisonResult) -> Sequence[Words]:
    """Where the error comes about, in the first pass of which the points are known and differ; nothing of an aligned pair."""
    pointed = (result.jumps for result in comparison.stages if result.jumps)
    return next(pointed, ()) if comparison.blame is not None else ()


def to_change(comparison: ComparisonResult) -> list[Finding]:
    """The settings that are to blame and that the candidate can be given, with what both sides have."""
    suspects = {suspect.name for suspect in comparison.blame.suspects} if comparison.blame is not None else set()
    unlike = (*comparison.settings, *differing(comparison.stages, hyper_parameters))
    return [finding for finding in can_be_changed(comparison, unlike) if finding.name in suspects - {""}]


def can_be_changed(comparison: ComparisonResult, unlike: Sequence[Finding]) -> list[Finding]:
    """Those of the settings that differ that the candidate can be given."""
    side = str(comparison.sides[-1].facts.side) if comparison.sides else ""
    return [finding for finding in unlike if can_be_given(finding.name, side)]


def changes(of: Sequence[Finding]) -> Message:
    """What the candidate's settings are to become."""
    each = (message("terminal.change_one", name=one.what, reference=shown(one.reference), candidate=shown(one.candidate)) for one in of)
    return message("terminal.change", settings=sentences(*each))


def settings(unlike: Sequence[Finding]) -> Message:
    """The model settings that differ, the first of many."""
    first = [message("terminal.setting", name=finding.what, values=values(finding)) for finding in unlike[:SETTINGS]]
    more = message("terminal.more_settings", count=len(unlike) - SETTINGS) if len(unlike) > SETTINGS else None
    return message("terminal.settings_differ", settings=sentences(*first, more))


def not_compared(stages: Sequence[StageResult]) -> Message | None:
    """The stages that were not compared, those with one reason together; None where all were."""
    reasons: dict[str, list[StageResult]] = {}
    for stage in stages:
        if stage.status is Status.NOT_COMPARED:
            reasons.setdefault(rendered(stage.summary), []).append(stage)
    if not reasons:
        return None
    each = (message("terminal.with_reason", stages=terms(one.title for one in alike), why=why) for why, alike in reasons.items())
    return message("terminal.not_compared", stages=sentences(*each))


def ladder(stages: Sequence[StageResult]) -> Table:
    """The stages that were compared, in their order: how each came out, its worst error, and what was compared in a few words."""
    heads = message("page.stage"), message("page.result"), message("terminal.worst"), message("page.compared")
    table = grid(*heads, numbers=(2,))
    for stage in stages:
        if stage.status is not Status.NOT_COMPARED:
            result = Text(rendered(stage.status), style_of(stage.status))
            compared = plain(rendered(stage.short or (None if stage.status in BROKEN else stage.summary)))
            table.add_row(Text(rendered(stage.title)), result, Text(rendered(times(worst(stage)))), Text(compared))
    return table


def worst(stage: StageResult) -> Finding | None:
    """The finding of a stage that is furthest beyond its limit, among those with a relative error."""
    measured = (finding for finding in stage.findings if finding.error is not None and finding.limit is not None)
    return next((finding for finding in measured if finding.unit is Unit.RELATIVE), None)


def times(finding: Finding | None) -> Argument:
    """How many times its limit an error is, or that it is nothing; empty without an error."""
    if finding is None or finding.error is None:
        return None
    if not math.isfinite(finding.error):
        return message("terminal.not_finite" if math.isnan(finding.error) else "terminal.on_one_side")
    if not math.isfinite(finding.limit_ratio):
        return message("terminal.not_equal")
    if finding.limit_ratio < ROUNDING:
        return message("terminal.rounding" if finding.error else "terminal.equal")
    return message("terminal.times", times=two_digits(finding.limit_ratio))


def describe(finding: Finding) -> Argument:
    """One finding as a line: what it is of, both values, and how many times its limit the error is."""
    sides = values(finding)
    line: Argument = message("terminal.finding", what=finding.what, values=sides) if sides.parts else finding.what
    if finding.error is None or finding.limit is None or finding.unit is not Unit.RELATIVE:  # roundings stand among the values
        return line
    if not math.isfinite(finding.error):  # infinite where the reference has nothing, as both values say
        return message("terminal.finding_not_finite", finding=line) if math.isnan(finding.error) else line
    if not math.isfinite(finding.limit_ratio):
        return message("terminal.finding_unequal", finding=line, error=finding.error)
    return message("terminal.finding_times", finding=line, times=two_digits(finding.limit_ratio))


def two_digits(number: float) -> float:
    """A number by its first two digits; below 1 by two places."""
    return float(f"{number:.2g}") if number >= 1 else round(number, 2)


def values(finding: Finding) -> Joined:
    """What both sides have of what was compared; of a side that has nothing, nothing."""
    sides = (shown(value) for value in (finding.reference, finding.candidate))
    return in_a_row((value for value in sides if value != ""), Separator.AGAINST)
