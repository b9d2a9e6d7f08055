"""The changes to make to a candidate: differing settings, the text to paste, and the lines that change in its file."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Collection, Iterator, Sequence

from align_hooks.checklist.edits import Action, Edit, Form
from align_hooks.checklist.judge import JudgedRow, RowOutcome
from align_hooks.checklist.result import Checklist, CheckVerdict
from align_hooks.comparison.finding import Finding
from align_hooks.comparison.verdict import ComparisonResult, Verdict
from align_hooks.messages import Argument, Message, message, sentences, terms
from align_hooks.report.blocks import Box, Code, DocumentBlock, Items, Medium, Paragraph, fact_text
from align_hooks.report.console import plain
from align_hooks.report.findings import shown

LISTED = 4
"""The most settings that are listed; the CheckList has all."""
LINES = {"+": "green", "-": "red", "@": "dim"}
"""The colour of a changed line by its first letter."""
BY_HAND = (Action.COME_TO, Action.WRITE)
"""Actions left to a reader: a value that only he knows, and an edit that would change another row."""


def of_comparison(comparison: ComparisonResult, checklist: Checklist | None) -> Box | None:
    """Return the changes for two runs, suspected settings first; None where the pair is aligned or no setting on record differs."""
    if comparison.verdict is Verdict.ALIGNED:
        return None
    if checklist is not None and checklist.of(RowOutcome.DIFFERENT):
        return of_checklist(checklist, {suspect.name for suspect in comparison.blame.suspects} if comparison.blame else ())
    findings = can_be_changed(comparison, comparison.settings)
    settings = [setting(finding.what, shown(finding.reference), shown(finding.candidate)) for finding in findings]
    return box(settings) if settings else None


def can_be_changed(comparison: ComparisonResult, unequal: Sequence[Finding]) -> list[Finding]:
    """Return the differing settings that the candidate can change."""
    from align_hooks.comparison.settings.recorded import can_be_given  # a page of two files needs no reader of records

    candidate = comparison.sides[-1:]
    return [finding for finding in unequal if all(can_be_given(finding.name, one.facts) for one in candidate)]


def of_checklist(checklist: Checklist, suspected: Collection[str] = ()) -> Box:
    """Return the changes that a check asks for, ``suspected`` settings first, and the text to paste."""
    different = sorted(checklist.of(RowOutcome.DIFFERENT), key=lambda checked: checked.row.id not in suspected)
    return box([*map(of_row, different)], *pasted(checklist))


def box(settings: Sequence[Argument], *pasted: DocumentBlock) -> Box:
    """Return the first settings, and the text to paste."""
    more = [message("page.more_settings", count=len(settings) - LISTED)] if len(settings) > LISTED else []
    return Box(message("page.change"), "change", blocks=[Items([*settings[:LISTED], *more]), *pasted], on=Medium.PAGE)


def setting(name: Argument, reference: Argument, candidate: Argument, words: Argument = None) -> Argument:
    """Return a setting that differs; ``words`` are the change to make, where the text to paste does not make it."""
    return sentences(fact_text(name, message("page.instead_of", wanted=reference, was=candidate)), words)


def of_row(checked: JudgedRow) -> Argument:
    """Return a row of the CheckList that differs, as a setting."""
    change = checked.change
    is_pasted = change is not None and change.is_safe and all(edit.form is not Form.LEAVE_OUT for edit in change.edits)
    by_hand = change.words if change is not None and not is_pasted else None
    edits = change.edits if change is not None and by_hand is None else ()
    name, key = checked.row.name, edits[0].key.rpartition(".")[2] if len(edits) == 1 else None
    named = f"{name} ({key})" if key and isinstance(name, str) and key != name else name
    return setting(named, checked.reference.shown, checked.candidate.shown, by_hand)


def pasted(checklist: Checklist) -> Iterator[DocumentBlock]:
    """Yield the text to paste: sections of a YAML, or arguments for the end of Megatron-LM's command, where the last counts."""
    arguments = " ".join(plain(argument(edit)) for edit in checklist.edits if edit.form is not Form.LEAVE_OUT)
    head, text = (over_block(checklist), checklist.block) if checklist.block else (message("page.add_arguments"), arguments)
    if text:
        yield from (Paragraph(head, "dim"), Code([text]))


def over_block(checklist: Checklist) -> Message:
    """Return the head of the block to paste."""
    return message("check.block_over", name=checklist.base) if checklist.base else message("check.block")


def argument(edit: Edit) -> str:
    """Return an edit as an argument of a command, quoted for a shell."""
    values = edit.value if isinstance(edit.value, list | tuple) else [edit.value]
    return shlex.join([edit.name, *(map(str, values) if edit.form is Form.WRITE else ())])


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
