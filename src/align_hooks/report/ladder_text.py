"""A ladder on a terminal: a line a rung while it runs, and a table at its end."""

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
    """Print a rung that is done: its result, its name, and what differs from the one that it is held against."""
    name, said = step.rung.name, told(step)
    verdict(console, step.result, style_of(step.result), message("ladder.rung_told", rung=name, told=said) if said else name)


def render(plan: ExperimentPlan, steps: Sequence[Experiment], conclusion: Argument, console: Console) -> None:
    """Print all rungs, and what they say together."""
    console.print(Trimmed(table(plan, steps)))
    if conclusion is not None:
        paragraph(console, conclusion)


def told(step: Experiment) -> Argument:
    """Why a rung has no verdict, or what differs and what to suspect."""
    comparison = step.comparison
    if comparison is None or comparison.first is None:
        return step.why
    suspects = [suspect.what for suspect in comparison.blame.suspects[:1]] if comparison.blame else []
    unsaid = [suspect for suspect in suspects if suspect not in (comparison.headline, comparison.first.common)]
    return message("ladder.first", differs=comparison.headline, suspect=unsaid[0]) if unsaid else comparison.headline


def table(plan: ExperimentPlan, steps: Sequence[Experiment]) -> Table:
    """All rungs of a plan, those that were not reached as well."""
    made = grid(*map(message, ("ladder.result", "ladder.ranks", "ladder.rung", "ladder.against")), numbers=(1,))
    done = {step.rung.name: step for step in steps}
    for index, rung in enumerate(plan.rungs):
        step, against = done.get(rung.name), plan.against(index)
        result = Text(rendered(step.result), style_of(step.result)) if step else Text("–")
        made.add_row(result, str(rung.ranks), Text(plain(rung.name)), Text(plain(against.name) if against else "–"))
    return made


def as_json(step: Experiment) -> Data:
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
