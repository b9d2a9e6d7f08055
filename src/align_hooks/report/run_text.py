"""One run on a terminal of 80 columns: its condition, the problems of its record, and its contents."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from align_hooks.comparison.health import Health
from align_hooks.messages import Argument, Joined, message, terms
from align_hooks.record.inventory import ranges
from align_hooks.report.console import Trimmed, grid, paragraph, plain, style_of, verdict
from align_hooks.report.identity import layout
from align_hooks.report.text import size, values

SHOWN = 5


def render_run(health: Health, console: Console) -> None:
    """Print one run."""
    verdict(console, health.condition, style_of(health.condition), headline(health))
    for problem in health.problems[:SHOWN]:
        paragraph(console, problem.message)
    if len(health.problems) > SHOWN:
        paragraph(console, message("health.more_problems", count=len(health.problems) - SHOWN))
    for remark in (*health.remarks, message("health.self_check", checked=health.checked)):
        paragraph(console, remark)
    if health.contradicted is not None:
        paragraph(console, health.contradicted, style="red")
    for finding in health.contradictions[:SHOWN]:
        paragraph(console, message("terminal.finding", what=finding.what, values=values(finding)))
    if len(health.contradictions) > SHOWN:
        paragraph(console, message("health.more_contradictions", count=len(health.contradictions) - SHOWN))
    table = grid(message("health.kind"), message("health.size"), message("health.asked"), message("health.steps"), numbers=(1,))
    for holding in health.holds:
        steps = f"{ranges(holding.steps) or '-'} ({len(holding.steps)})"
        table.add_row(Text(plain(holding.kind)), size(holding.bytes), Text(plain(holding.asked)), Text(steps))
    console.print(Trimmed(table))


def headline(health: Health) -> Joined:
    """Return a line that describes a run: framework, precision, layout and steps."""
    side, planned = health.side, health.planned
    steps = message("health.steps_of", count=side.steps, planned=planned) if planned else message("steps.count", count=side.steps)
    return terms([_framework(health), side.facts.training.compute_type or None, layout(side), steps])


def _framework(health: Health) -> Argument:
    facts = health.side.facts
    if not facts.framework:
        return message("health.unknown_framework" if health.side.ranks else "health.directory_made_by_hand")
    version = next((str(facts.versions[name]) for name in ("megatron-core", "mindformers") if name in facts.versions), "")
    return f"{facts.framework} {version}".strip()
