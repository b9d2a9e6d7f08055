"""One run on a terminal: what it is, what it holds, its health. Fits 80 columns; colour only where the console has it."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table

from align_hooks.compare.health import Health
from align_hooks.messages import rendered
from align_hooks.record.holdings import ranges
from align_hooks.report.text import escape, indented, shown, size

COLOUR = {"clean": "bold green", "unwell": "bold red", "incomplete": "bold magenta"}
SHOWN = 5


def render_run(health: Health, console: Console) -> None:
    """Print one run."""
    console.print(f"[{COLOUR[health.verdict]}]{health.verdict}[/]: {escape(headline(health))}")
    for problem in health.problems[:SHOWN]:
        indented(console, escape(problem))
    if len(health.problems) > SHOWN:
        console.print(f"  and {len(health.problems) - SHOWN} more problems")
    for remark in health.remarks:
        indented(console, escape(remark))
    indented(console, "self-check: " + escape(health.checked))
    for one in health.contradictions[:SHOWN]:
        ours, theirs = (escape(rendered(shown(value))) for value in (one.reference, one.candidate))
        indented(console, f"[red]contradiction[/] {escape(one.what)}: {ours} against {theirs}")
    if len(health.contradictions) > SHOWN:
        console.print(f"  and {len(health.contradictions) - SHOWN} more contradictions")
    console.print(held(health))


def headline(health: Health) -> str:
    """What a run is, in a line."""
    facts, side = health.side.facts, health.side
    versions = facts.get("versions") or {}
    framework = str(facts.get("framework") or ("an unknown framework" if side.ranks else "a directory made by hand"))
    version = next((str(versions[name]) for name in ("megatron-core", "mindformers") if name in versions), "")
    ranks = f"{side.ranks} rank{'s' if side.ranks != 1 else ''} {side.laid_out}".rstrip()
    types = str((facts.get("training") or {}).get("compute_type") or "")
    steps = f"{side.steps} of {health.planned} steps" if health.planned else f"{side.steps} steps"
    return ", ".join(filter(None, (f"{framework} {version}".strip(), types, ranks if side.ranks else "", steps)))


def held(health: Health) -> Table:
    """What it holds: kinds, steps, what was asked for, bytes on disk."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), expand=False)
    for name in ("holds", "steps", "asked for"):
        table.add_column(name, no_wrap=name == "holds", overflow="fold")
    table.add_column("size", no_wrap=True, justify="right")
    for one in health.holds:
        there = f"{ranges(one.steps) or '-'} ({len(one.steps)})"
        table.add_row(escape(one.kind), there, escape(one.asked), size(one.bytes))
    return table
