"""What ``solve`` does as a document: each trial while it is made, and all of them at the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from align_hooks.messages import Argument, message, with_commands
from align_hooks.report.blocks import STEP, Code, DocumentBlock, Paragraph
from align_hooks.report.comparison import conclusion as what_differs
from align_hooks.report.comparison import grounds
from align_hooks.report.document import Document
from align_hooks.report.findings import size
from align_hooks.report.json import Shape, Shapes
from align_hooks.scenarios.solve import Conclusion
from align_hooks.scenarios.trial import SolveStep, Spent


def begun(number: int, words: Argument, *lines: Argument) -> Paragraph:
    """Return the head of a trial, and below it its lines, where these are not printed one by one."""
    head = message("solve.step", number=number, words=words)
    return Paragraph(with_commands(head, *lines) if lines else head, "bold", 0)


def spent(line: Spent) -> Paragraph:
    """Return what a line took: seconds, and the bytes of the folder behind it."""
    if line.is_kept:
        return Paragraph(message("solve.kept", seconds=line.seconds), "dim", 3 * STEP)
    return Paragraph(message("solve.spent", seconds=line.seconds, bytes=size(line.bytes)), "dim", 3 * STEP)


def showed(step: SolveStep) -> list[DocumentBlock]:
    """Return what a trial showed, and what it rules out."""
    ruled_out = [Paragraph(message("solve.ruled_out", what=step.rules_out))] if step.rules_out is not None else []
    return [Paragraph(step.headline, word=step.verdict), *ruled_out]


def document(conclusion: Conclusion, steps: Sequence[SolveStep]) -> Document:
    """Return how it ended: what the last comparison says, what to run now, and every trial with its lines."""
    stages = [] if conclusion.comparison is None else grounds(conclusion.comparison, [])
    blocks = [*ended(conclusion, steps), *stages, Paragraph(message("solve.paste"))]
    for number, step in enumerate(steps, 1):
        blocks += [begun(number, step.words, *step.lines), *showed(step)]
    return Document(conclusion.result, conclusion.words, blocks, title=message("solve.title"))


def ended(conclusion: Conclusion, steps: Sequence[SolveStep]) -> Iterator[DocumentBlock]:
    """Yield what a person needs at the end."""
    if conclusion.comparison is not None:
        yield from what_differs(conclusion.comparison)
    if conclusion.lines:
        yield Code(conclusion.lines)
    seconds, added = sum(sum(step.seconds) for step in steps), sum(step.bytes for step in steps)
    yield Paragraph(message("solve.all", trials=len(steps), seconds=seconds, bytes=size(added)), "dim")


JSON: Shapes = {
    Conclusion: Shape("result told=words* comparison lines messages"),
    SolveStep: Shape("words lines seconds bytes verdict headline causes rules_out"),
}
"""Keys of the JSON beside a comparison's."""
