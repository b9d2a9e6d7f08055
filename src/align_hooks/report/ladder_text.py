"""A ladder on a terminal: a line a rung while it runs, and a table at its end."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.table import Table

from align_hooks.comparison.verdict import Judgement, Verdict
from align_hooks.messages import Argument, message, rendered
from align_hooks.record.schema import Table as Data
from align_hooks.report.text import VERDICT_COLOUR, escape
from align_hooks.scenarios.climb import Climbed, Step
from align_hooks.scenarios.plan import Plan

OWN: dict[Judgement, str] = {
    Climbed.FIRST: "",
    Climbed.FAILED: "bold red",
    Climbed.NOT_TRAINED: "bold magenta",
}


def line(step: Step) -> str:
    """A rung that is done, as marked-up text."""
    style = OWN[step.result] if isinstance(step.result, Climbed) else VERDICT_COLOUR[Verdict(step.result)]
    marked = rendered(step.result)
    return f"{escape(step.rung.name)}: [{style}]{marked}[/]{_where(step)}" if style else f"{escape(step.rung.name)}: {marked}{_where(step)}"


def _where(step: Step) -> str:
    said = told(step)
    return f" — {escape(said)}" if said else ""


def told(step: Step) -> Argument:
    """Why a rung has no verdict, or where it parts and what to suspect."""
    if step.comparison is None:
        return step.why
    comparison = step.comparison
    if comparison.first is None:
        return None
    suspects = comparison.blame.suspects if comparison.blame else ()
    return message("ladder.first", stage=comparison.first.title, suspect=suspects[0].what) if suspects else comparison.first.title


def table(plan: Plan, steps: Sequence[Step]) -> Table:
    """All rungs of a plan, those that were not reached as well."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("ladder.rung", "ladder.ranks", "ladder.against", "ladder.result"):
        made.add_column(rendered(message(title)), overflow="fold")
    done = {step.rung.name: step for step in steps}
    for index, rung in enumerate(plan.rungs):
        step, against = done.get(rung.name), plan.against(index)
        result = escape(step.result) if step else "–"
        made.add_row(escape(rung.name), str(rung.ranks), escape(against.name if against else "–"), result)
    return made


def as_json(step: Step) -> Data:
    """A rung for programs."""
    comparison, said = step.comparison, told(step)
    return {
        "name": step.rung.name,
        "ranks": step.rung.ranks,
        "trained": step.trained,
        "against": None if step.against is None else str(step.against),
        "result": step.result.text,
        "first": comparison.first.stage.id if comparison and comparison.first else None,
        "told": rendered(said) if said else None,
    }
