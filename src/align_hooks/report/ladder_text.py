"""A ladder on a terminal: a line for each rung while the ladder runs, and a table at its end."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from align_hooks.messages import Argument, message, rendered
from align_hooks.record.format.schema import Table as Data
from align_hooks.report.console import Trimmed, grid, paragraph, plain, style_of, verdict
from align_hooks.scenarios.climb import Experiment
from align_hooks.scenarios.plan import ExperimentPlan


def render_rung(step: Experiment, console: Console) -> None:
    """Print a finished rung: its result, its name, and the difference from its reference."""
    name, words = step.rung.name, explanation(step)
    verdict(console, step.result, style_of(step.result), message("ladder.rung_told", rung=name, told=words) if words else name)


def render(plan: ExperimentPlan, steps: Sequence[Experiment], conclusion: Argument, console: Console) -> None:
    """Print all rungs, and the conclusion from them."""
    console.print(Trimmed(table(plan, steps)))
    if conclusion is not None:
        paragraph(console, conclusion)


def explanation(step: Experiment) -> Argument:
    """Return why a rung has no verdict, or what differs and what to suspect."""
    comparison = step.comparison
    if comparison is None or comparison.first is None:
        return step.why
    suspect = comparison.blame.suspects[0].what if comparison.blame and comparison.blame.suspects else comparison.headline
    if suspect in (comparison.headline, comparison.first.common):
        return comparison.headline
    return message("ladder.first", differs=comparison.headline, suspect=suspect)


def table(plan: ExperimentPlan, steps: Sequence[Experiment]) -> Table:
    """Return a table of all rungs of a plan, also of rungs that were not reached."""
    made = grid(*map(message, ("ladder.result", "ladder.ranks", "ladder.rung", "ladder.against")), numbers=(1,))
    done = {step.rung.name: step for step in steps}
    for index, rung in enumerate(plan.rungs):
        step, against = done.get(rung.name), plan.against(index)
        result = Text(rendered(step.result), style_of(step.result)) if step else Text("–")
        made.add_row(result, str(rung.ranks), Text(plain(rung.name)), Text(plain(against.name) if against else "–"))
    return made


def as_json(step: Experiment) -> Data:
    """Return a rung for programs."""
    comparison, words = step.comparison, explanation(step)
    return {
        "name": step.rung.name,
        "ranks": step.rung.ranks,
        "trained": step.trained,
        "against": None if step.against is None else str(step.against),
        "result": step.result.text,
        "first": comparison.first.stage.id if comparison and comparison.first else None,
        "told": rendered(words) if words else None,
    }
