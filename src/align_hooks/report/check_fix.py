"""What to write into a candidate: as a block that can be pasted, and as the lines that change in its file."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from align_hooks.checklist.edits import Action
from align_hooks.checklist.judge import RowOutcome
from align_hooks.checklist.result import Checklist, CheckVerdict
from align_hooks.messages import Argument, Message, message, terms
from align_hooks.report.blocks import Code, DocumentBlock, Paragraph

LINES = {"+": "green", "-": "red", "@": "dim"}
"""The colour of a changed line by its first letter."""
BY_HAND = (Action.COME_TO, Action.WRITE)
"""Actions left to a reader: a value that only he knows, and an edit that would change another row."""


def over_block(checklist: Checklist) -> Message:
    """Return the head of the block to paste."""
    return message("check.block_over", name=checklist.base) if checklist.base else message("check.block")


def mended(before: str, after: str, checklist: Checklist, names: tuple[str, str]) -> Iterator[DocumentBlock]:
    """Yield the changed lines, and the result of the same check for the mended file."""
    for line in difflib.unified_diff(before.splitlines(), after.splitlines(), *names, lineterm="", n=1):
        yield Code([line.rstrip()], 0, LINES.get(line[:1], ""))
    left = checklist.of(RowOutcome.DIFFERENT)
    by_hand: list[Argument] = [checked.row.name for checked in left if checked.change is not None and checked.change.action in BY_HAND]
    differing: list[Argument] = [checked.row.name for checked in left if checked.row.name not in by_hand]
    differing += [course.name for course in checklist.courses if course.same is False and not left]
    refused: list[Argument] = [refusal.text for side in checklist.sides for refusal in side.refusals]
    for name, rows in {"check.fixed_but": differing, "check.by_the_reader": by_hand, "check.still_refused": refused}.items():
        if rows:
            yield Paragraph(message(name, rows=terms(rows)), indent=0)
    if checklist.judgement is not CheckVerdict.DIFFERS:
        yield Paragraph(message("check.fixed", judgement=checklist.judgement), indent=0)
