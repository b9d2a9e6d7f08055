"""A ladder as a document: a line for each rung while the ladder runs, and a table at its end."""

from __future__ import annotations

from collections.abc import Sequence

from align_hooks.messages import Argument, message
from align_hooks.report.blocks import Cell, DocumentBlock, Paragraph, Table
from align_hooks.report.document import style_of
from align_hooks.report.json import Shape, Shapes
from align_hooks.scenarios.climb import Experiment
from align_hooks.scenarios.plan import ExperimentPlan


def finished_rung(step: Experiment) -> Paragraph:
    """Return the line of a finished rung: its result, its name, and the difference from its reference."""
    name, words = step.rung.name, explanation(step)
    return Paragraph(message("ladder.rung_told", rung=name, told=words) if words else name, style_of(step.result), 0, step.result)


def ended(plan: ExperimentPlan, steps: Sequence[Experiment], conclusion: Argument) -> list[DocumentBlock]:
    """Return all rungs, and the conclusion from them."""
    return [table(plan, steps), *([Paragraph(conclusion)] if conclusion is not None else [])]


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
    done, rows = {step.rung.name: step for step in steps}, []
    for index, rung in enumerate(plan.rungs):
        step, against = done.get(rung.name), plan.against(index)
        result = Cell(step.result, style_of(step.result)) if step else "–"
        rows.append((result, str(rung.ranks), rung.name, against.name if against else "–"))
    return Table([*map(message, ("ladder.result", "ladder.ranks", "ladder.rung", "ladder.against"))], rows, numbers=(1,))


JSON: Shapes = {
    Experiment: Shape(
        "name=rung.name ranks=rung.ranks trained against result first=comparison.first.stage.id told",
        against=lambda step: None if step.against is None else str(step.against),
        told=lambda step: explanation(step) or None,
    )
}
"""The keys of a rung in JSON."""
