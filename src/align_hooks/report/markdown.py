"""A comparison as Markdown of under 60 lines, for a comment on a pull request: verdict, stages, drifts and notes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from align_hooks.comparison.control_band.signed_drift import SignedDrift
from align_hooks.comparison.stage_result import StageResult, Status
from align_hooks.comparison.verdict import ComparisonResult
from align_hooks.messages import Argument, message, rendered
from align_hooks.report.console import plain
from align_hooks.report.text import blamed, describe, parts_of, times, worst

WORST, KINDS, NOTES = 3, 12, 5
"""The most findings, kinds of parameters and notes; notes on the data come first."""
CELL, LINE = 200, 1000
"""The most letters of a cell, and of a line, whose commands are to be copied."""
PLAIN = (Status.SAME, Status.NOT_COMPARED)
"""Statuses that need no attention, and so no bold type."""
MARKUP = re.compile(r"([\\`*\[\]<>|~]|(?<!\w)_|_(?!\w))")
MENTION = re.compile(r"([@#])(?=\w)")
"""A sign that a forge makes a mention or a link of."""


def markdown(comparison: ComparisonResult, drifts: Sequence[SignedDrift], command: str) -> str:
    """Return the text; ``command`` prints the report."""
    return "\n".join(_lines(comparison, drifts, command)) + "\n"


def _lines(comparison: ComparisonResult, drifts: Sequence[SignedDrift], command: str) -> Iterator[str]:
    yield from (f"### align-hooks: {escaped(comparison.verdict)}", "", escaped(comparison.headline, LINE), "")
    shown = comparison.first.findings[:WORST] if comparison.first is not None else ()
    advice, *commands = parts_of(comparison.next) if comparison.next else (None,)
    lines = list(map(describe, shown))
    lines += blamed(comparison.blame, [finding.what for finding in shown]) if comparison.blame is not None else []
    lines += [message("terminal.next", what=advice)] if advice else []
    yield from (f"- {escaped(line, LINE)}" for line in lines)
    yield from (f"  - {code(rendered(command))}" for command in commands)
    yield ""
    heads = (message("page.stage"), message("page.result"), message("terminal.worst"), message("page.compared"))
    yield from _table([escaped(head) for head in heads], "llrl", map(_stage, comparison.stages))
    if drifts:
        yield from ("", escaped(message("markdown.drift", count=max(drift.steps for drift in drifts))), "")
        kinds = (message("markdown.quantity"), message("markdown.mean"), message("markdown.largest"))
        yield from _table([escaped(head) for head in kinds], "lrr", map(_drift, _chosen(drifts)))
    yield ""
    if comparison.notes:
        yield from (f"- {escaped(note, LINE)}" for note in comparison.notes[:NOTES])
        yield ""
    yield code(command)


def _stage(result: StageResult) -> list[str]:
    status = escaped(result.status)
    shown = status if result.status in PLAIN else f"**{status}**"
    return [escaped(result.title), shown, escaped(times(worst(result))), escaped(result.short or result.summary)]


def _chosen(drifts: Sequence[SignedDrift]) -> list[SignedDrift]:
    """Return the drifts of the kinds of local norms that drift most, and of all other quantities, in the order of a forward pass."""
    kinds = sorted((drift for drift in drifts if drift.kind), key=lambda drift: -abs(drift.mean))[:KINDS]
    return [drift for drift in drifts if not drift.kind or drift in kinds]


def _drift(drift: SignedDrift) -> list[str]:
    subject: Argument = message("markdown.norm_of", kind=drift.kind) if drift.kind else drift.quantity
    return [escaped(subject), f"{drift.mean:+.2e}", f"{drift.largest:+.2e}"]


def _table(heads: Sequence[str], sides: str, rows: Iterator[list[str]]) -> Iterator[str]:
    for cells in (heads, ["---:" if side == "r" else "---" for side in sides], *rows):
        yield f"| {' | '.join(cells)} |"


def escaped(text: Argument, longest: int = CELL) -> str:
    """Return a message or a record's text in one line, without markup, mentions and links."""
    words = plain(rendered(text))
    cut = words if len(words) <= longest else f"{words[:longest]}…"
    return MENTION.sub("\\1\u200b", MARKUP.sub(r"\\\1", cut.replace("&", "&amp;")))


def code(text: str) -> str:
    """Return a command as code, which has no markup."""
    return f"`{plain(text).replace('`', '')}`"
