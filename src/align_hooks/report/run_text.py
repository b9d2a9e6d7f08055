"""One run on a terminal: what it is, what it holds, its health. Fits 80 columns; colour only where the console has it."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table

from align_hooks.comparison.health import Condition, Health
from align_hooks.messages import Argument, Joined, Message, message, rendered, terms
from align_hooks.record.holdings import ranges
from align_hooks.report.text import escape, indented, size, values

COLOUR = {Condition.CLEAN: "bold green", Condition.UNWELL: "bold red", Condition.INCOMPLETE: "bold magenta"}
SHOWN = 5


def render_run(health: Health, console: Console) -> None:
    """Print one run."""
    console.print(f"[{COLOUR[health.condition]}]{rendered(health.condition)}[/]: {escape(headline(health))}")
    for problem in health.problems[:SHOWN]:
        indented(console, escape(problem.message))
    if len(health.problems) > SHOWN:
        indented(console, rendered(message("health.more_problems", count=len(health.problems) - SHOWN)))
    for remark in (*health.remarks, message("health.self_check", checked=health.checked)):
        indented(console, escape(remark))
    if health.contradictions:
        indented(console, f"[red]{escape(message('health.contradicts_itself'))}[/]")
    for finding in health.contradictions[:SHOWN]:
        indented(console, escape(message("terminal.finding", what=finding.what, values=values(finding))))
    if len(health.contradictions) > SHOWN:
        indented(console, rendered(message("health.more_contradictions", count=len(health.contradictions) - SHOWN)))
    console.print(holdings_table(health))


def headline(health: Health) -> Joined:
    """What a run is, in a line."""
    side = health.side
    steps = message("steps.count", count=side.steps)
    if health.planned:
        steps = message("health.steps_of", count=side.steps, planned=health.planned)
    return terms([_framework(health), side.facts.training.compute_type or None, _ranks(health), steps])


def _framework(health: Health) -> Argument:
    facts = health.side.facts
    if not facts.framework:
        return message("health.unknown_framework" if health.side.ranks else "health.directory_made_by_hand")
    version = next((str(facts.versions[name]) for name in ("megatron-core", "mindformers") if name in facts.versions), "")
    return f"{facts.framework} {version}".strip()


def _ranks(health: Health) -> Message | None:
    side = health.side
    if not side.ranks:
        return None
    if not side.laid_out:
        return message("health.ranks", count=side.ranks)
    return message("health.ranks_laid_out", count=side.ranks, layout=side.laid_out)


def holdings_table(health: Health) -> Table:
    """What a run holds: kinds, steps, what was asked for, bytes on disk."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), expand=False)
    for name in ("holds", "steps", "asked for"):
        table.add_column(name, no_wrap=name == "holds", overflow="fold")
    table.add_column("size", no_wrap=True, justify="right")
    for holding in health.holds:
        steps = f"{ranges(holding.steps) or '-'} ({len(holding.steps)})"
        table.add_row(escape(holding.kind), steps, escape(holding.asked), size(holding.bytes))
    return table
