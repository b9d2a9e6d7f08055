"""What to write into a candidate: as a block that can be pasted, and as the lines that change in its file."""

from __future__ import annotations

import difflib

from rich.console import Console
from rich.text import Text

from align_hooks.checklist.judge import Outcome
from align_hooks.checklist.result import Checklist, Judgement
from align_hooks.messages import Argument, Message, message, terms
from align_hooks.report.console import paragraph, plain

LINES = {"+": "green", "-": "red", "@": "dim"}
"""The colour of a changed line by its first letter."""


def block_of(checklist: Checklist) -> tuple[Message, str] | None:
    """A head and the block to paste; None where no YAML has to change."""
    head = message("check.block_over", name=checklist.base) if checklist.base else message("check.block")
    return (head, checklist.block) if checklist.block else None


def render_fix(before: str, after: str, checklist: Checklist, names: tuple[str, str], console: Console) -> None:
    """Print the lines that change, and how the mended file comes out of the same check."""
    for line in difflib.unified_diff(before.splitlines(), after.splitlines(), *names, lineterm="", n=1):
        console.print(Text(plain(line).rstrip(), LINES.get(line[:1], "")), soft_wrap=True)
    left: list[Argument] = [checked.row.name for checked in checklist.of(Outcome.DIFFERENT)]
    left += [course.name for course in checklist.courses if course.same is False and not left]
    differs = checklist.judgement is Judgement.DIFFERS
    fixed = message("check.fixed_but", rows=terms(left)) if differs else message("check.fixed", judgement=checklist.judgement)
    paragraph(console, fixed, 0)
