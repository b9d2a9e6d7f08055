"""A comparison on a terminal of 80 columns: what differs, evidence, what to change and to run next, stages, the guide's standard."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from align_hooks.comparison.finding import Finding, Unit, Value
from align_hooks.comparison.settings.recorded import can_be_given
from align_hooks.comparison.stage_result import StageResult, Status, differing
from align_hooks.comparison.stages.hyper_parameters import hyper_parameters
from align_hooks.comparison.verdict import Blame, ComparisonResult, Criterion
from align_hooks.messages import Argument, Joined, Message, Separator, Side, in_a_row, message, rendered, sentences, terms, with_commands
from align_hooks.report.console import STEP, Trimmed, grid, paragraph, plain, style_of, verdict
from align_hooks.report.identity import layout

JUDGED = {None: ("dim", message("page.not_judged")), True: ("green", message("page.passed")), False: ("red", message("page.failed"))}
BROKEN = (Status.INCOMPLETE, Status.NOT_COMPARABLE)
"""Statuses of stages whose reason a reader needs."""
SHOWN, TENSORS, SETTINGS = 3, 3, 8
"""The most findings, suspects and settings that are listed."""
ROUNDING = 0.01
"""Error over limit below which an error is mere rounding."""


def shown(value: Value) -> Argument:
    """Return a side's value as a finding shows it: a number with the nine digits that distinguish two of fp32."""
    return f"{value:.9g}" if isinstance(value, float) else value


def size(count: int) -> str:
    """Return bytes in decimal units with three digits."""
    number, unit = float(count), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if number < 999.5:
            break
        number, unit = number / 1000, larger
    return f"{number:.3g} {unit}"


def render(comparison: ComparisonResult, console: Console, *, brief: bool = False) -> None:
    """Print a comparison, ``brief`` without its stages."""

    def report() -> None:
        conclusion(comparison, console)
        if not brief:
            grounds(comparison, console)

    with console.capture() as printed:
        report()
    report()
    if console.is_terminal and printed.get().count("\n") >= console.height:  # the verdict once more, as it has left the screen
        head(comparison, console)


def head(comparison: ComparisonResult, console: Console) -> None:
    """Print the verdict, and what differs."""
    verdict(console, comparison.verdict, style_of(comparison.verdict), comparison.headline)


def conclusion(comparison: ComparisonResult, console: Console) -> None:
    """Print what differs, the place of the fault, what to change and to run next, and both sides."""
    head(comparison, console)
    first, blame = comparison.first, comparison.blame
    findings = [finding for finding in worth_showing(first) if finding.what != comparison.headline][:SHOWN] if first is not None else []
    for finding in findings:
        paragraph(console, describe(finding))
    if blame is not None:
        above = [*sentences(comparison.headline, *blame.likely).parts, *(finding.what for finding in findings)]
        origins = next((result.jumps for result in comparison.stages if result.jumps), ())
        for line in (*blamed(blame, above), *origins):
            paragraph(console, line)
    if wanted := [finding for finding in to_change(comparison) if finding not in findings]:
        each = (
            message("terminal.change_one", name=one.what, reference=shown(one.reference), candidate=shown(one.candidate)) for one in wanted
        )
        paragraph(console, message("terminal.change", settings=sentences(*each)))
    if comparison.next:
        advice, *commands = parts_of(comparison.next)
        paragraph(console, with_commands(message("terminal.next", what=advice), *commands))
    if others := [finding for finding in comparison.settings if finding not in (*wanted, *findings)]:
        paragraph(console, settings(others))
    for role, side in zip(Side, comparison.sides, strict=False):
        facts = side.framework, side.precision, layout(side), message("steps.count", count=side.steps)
        paragraph(console, message("terminal.side", role=role, facts=terms(fact for fact in facts if fact)), style="dim")


def grounds(comparison: ComparisonResult, console: Console) -> None:
    """Print the result of every stage, the guide's acceptance standard, and notes."""
    console.print(Trimmed(stage_table(comparison.stages)))
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


def worth_showing(stage: StageResult) -> Sequence[Finding]:
    """Return a stage's findings that exceed their limits; all findings where none does."""
    return stage.beyond or stage.findings


def parts_of(advice: Argument) -> Sequence[Argument]:
    """Return the words of an advice, and its commands."""
    return advice.parts if isinstance(advice, Joined) and advice.separator is Separator.LINES else (advice,)


def criteria(acceptance: Sequence[Criterion], console: Console) -> None:
    """Print the lines of the acceptance standard."""
    for criterion in acceptance:
        colour, judged = JUDGED[criterion.passed]
        line = message("terminal.criterion", what=criterion.what, value=criterion.found)
        verdict(console, judged, colour, line, between="  ", indent=STEP)


def blamed(blame: Blame, said: Sequence[Argument]) -> list[Argument]:
    """Return the place of the fault with its first suspects, except those already ``said``, and its likely causes."""
    first = sentences(*(suspect.what for suspect in blame.suspects[:TENSORS])).parts
    suspects = sentences(*(what for what in first if what not in said))
    suspected = message("terminal.first_suspects", suspects=suspects) if suspects.parts else None
    side = message("terminal.side_is_open") if blame.side_is_open else None
    place = sentences(message("terminal.sits_in", place=blame.place), side, suspected)
    return [place, *(message("terminal.likely", cause=cause) for cause in blame.likely)]


def to_change(comparison: ComparisonResult) -> list[Finding]:
    """Return the suspected settings that the candidate can change."""
    suspects = {suspect.name for suspect in comparison.blame.suspects} if comparison.blame is not None else set()
    unequal = (*comparison.settings, *differing(comparison.stages, hyper_parameters))
    return [finding for finding in can_be_changed(comparison, unequal) if finding.name in suspects - {""}]


def can_be_changed(comparison: ComparisonResult, unequal: Sequence[Finding]) -> list[Finding]:
    """Return the differing settings that the candidate can change."""
    side = str(comparison.sides[-1].facts.side) if comparison.sides else ""
    return [finding for finding in unequal if can_be_given(finding.name, side)]


def settings(unequal: Sequence[Finding]) -> Message:
    """Return the differing model settings, the first of many."""
    first = [message("terminal.setting", name=finding.what, values=values(finding)) for finding in unequal[:SETTINGS]]
    more = message("terminal.more_settings", count=len(unequal) - SETTINGS) if len(unequal) > SETTINGS else None
    return message("terminal.settings_differ", settings=sentences(*first, more))


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


def stage_table(stages: Sequence[StageResult]) -> Table:
    """Return a table of the stages that were compared: the result of each, its worst error, and a few words on what was compared."""
    heads = message("page.stage"), message("page.result"), message("terminal.worst"), message("page.compared")
    table = grid(*heads, numbers=(2,))
    for stage in stages:
        if stage.status is not Status.NOT_COMPARED:
            result = Text(rendered(stage.status), style_of(stage.status))
            compared = plain(rendered(stage.short or (None if stage.status in BROKEN else stage.summary)))
            table.add_row(Text(rendered(stage.title)), result, Text(rendered(times(worst(stage)))), Text(compared))
    return table


def worst(stage: StageResult) -> Finding | None:
    """Return the worst finding of a stage among those with a relative error and a limit."""
    measured = (finding for finding in stage.findings if finding.error is not None and finding.limit is not None)
    return next((finding for finding in measured if finding.unit is Unit.RELATIVE), None)


def times(finding: Finding | None) -> Argument:
    """Return how many times its limit an error is, in words; None without an error."""
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
    """Return a finding as a line: its subject, both values, and how many times its limit the error is."""
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
    """Return a number rounded to two digits; below 1, to two places."""
    return float(f"{number:.2g}") if number >= 1 else round(number, 2)


def values(finding: Finding) -> Joined:
    """Return both sides' values; a side without a value is left out."""
    sides = (shown(value) for value in (finding.reference, finding.candidate))
    return in_a_row((value for value in sides if value != ""), Separator.AGAINST)
