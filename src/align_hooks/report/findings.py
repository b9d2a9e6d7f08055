"""Findings, values and sizes in words."""

from __future__ import annotations

import math

from align_hooks.comparison.finding import Finding, Unit, Value
from align_hooks.comparison.stage_result import StageResult
from align_hooks.messages import Argument, Joined, Separator, in_a_row, message
from align_hooks.report.blocks import fact_text

ROUNDING = 0.01
"""Error over limit below which an error is mere rounding."""
SCALED = 0.01
"""Part of an error that a factor may leave."""


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
    line: Argument = fact_text(finding.what, sides) if sides.parts else finding.what
    if finding.error is None or finding.limit is None or finding.unit is not Unit.RELATIVE:  # roundings stand among the values
        return line
    if not math.isfinite(finding.error):  # infinite where the reference has nothing, as both values say
        return message("terminal.finding_not_finite", finding=line) if math.isnan(finding.error) else line
    if is_scaled(finding):
        line = message("terminal.finding_scaled", finding=line, factor=finding.scale)
    if not math.isfinite(finding.limit_ratio):
        return message("terminal.finding_unequal", finding=line, error=finding.error)
    return message("terminal.finding_times", finding=line, times=two_digits(finding.limit_ratio))


def is_scaled(finding: Finding) -> bool:
    """Return whether a factor is all that a tensor beyond its limit is off by."""
    is_known = bool(finding.scale) and finding.direction is not None and finding.error is not None
    return is_known and finding.limit_ratio > 1 and (finding.direction or 0.0) <= SCALED * (finding.error or 0.0)


def two_digits(number: float) -> float:
    """Return a number rounded to two digits; below 1, to two places."""
    return float(f"{number:.2g}") if number >= 1 else round(number, 2)


def values(finding: Finding) -> Joined:
    """Return both sides' values; a side without a value is left out."""
    sides = (shown(value) for value in (finding.reference, finding.candidate))
    return in_a_row((value for value in sides if value != ""), Separator.AGAINST)
