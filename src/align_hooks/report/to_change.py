"""What to change in a candidate, as the first screen of a page shows it: which settings differ, and what to paste."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from align_hooks.checklist.change import Edit, Form
from align_hooks.checklist.judge import JudgedRow, RowOutcome
from align_hooks.checklist.result import Checklist
from align_hooks.comparison.verdict import ComparisonResult, Verdict
from align_hooks.messages import Argument, Message, message
from align_hooks.report.check_fix import block_of
from align_hooks.report.console import plain
from align_hooks.report.text import can_be_changed, shown

MATTERING, HARMLESS = (RowOutcome.DIFFERENT, RowOutcome.NOT_TOLD), (RowOutcome.ROUNDING, RowOutcome.HARMLESS)
"""Rows of the CheckList that every reader of a page sees, and those of which a line says how many there are."""
LISTED = 4
"""Settings that are listed; the CheckList has all."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting that differs: its name, either side's value, and what to do where that cannot be pasted."""

    name: Argument
    reference: Argument
    candidate: Argument
    words: Argument = None


@dataclass(frozen=True, slots=True)
class ToChange:
    """The first of the settings that differ and change the result, how many ``more`` there are, and under its ``head`` the ``text`` that
    is to be pasted; both are empty where there is nothing to paste."""

    settings: Sequence[Setting]
    more: int
    head: Message | None
    text: str


def of_comparison(comparison: ComparisonResult, checklist: Checklist | None) -> ToChange | None:
    """Of two runs that do not agree, what the diagnosis names first; None where no setting on record differs, or all numbers agree."""
    suspected = {suspect.name for suspect in comparison.blame.suspects} if comparison.blame else set()
    if comparison.verdict is Verdict.ALIGNED:
        return None
    if checklist is not None and checklist.of(RowOutcome.DIFFERENT):
        return of_checklist(checklist, suspected)
    settings = [
        Setting(finding.what, shown(finding.reference), shown(finding.candidate))
        for finding in can_be_changed(comparison, comparison.settings)
    ]
    return ToChange(settings[:LISTED], max(0, len(settings) - LISTED), None, "") if settings else None


def of_checklist(checklist: Checklist, suspected: Collection[str] = ()) -> ToChange:
    """Of a check, those that are ``suspected`` first."""
    different = sorted(checklist.of(RowOutcome.DIFFERENT), key=lambda checked: checked.row.id not in suspected)
    settings = [of_row(checked) for checked in different]
    return ToChange(settings[:LISTED], max(0, len(settings) - LISTED), *pasted(checklist))


def of_row(checked: JudgedRow) -> Setting:
    """A row of the CheckList that differs."""
    by_hand = checked.change.words if checked.change is not None and not is_pasted(checked) else None
    edits = checked.change.edits if checked.change is not None and by_hand is None else ()
    name, key = checked.row.name, edits[0].key.rpartition(".")[2] if len(edits) == 1 else None
    named = f"{name} ({key})" if key and isinstance(name, str) and key != name else name
    return Setting(named, checked.reference.shown, checked.candidate.shown, by_hand)


def is_pasted(checked: JudgedRow) -> bool:
    """Whether all that is to be done about a row can be pasted."""
    return checked.change is not None and checked.change.keeps and all(edit.form is not Form.LEAVE_OUT for edit in checked.change.edits)


def pasted(checklist: Checklist) -> tuple[Message | None, str]:
    """A head and what to paste: sections of a YAML, or arguments of Megatron-LM's command, where what comes last counts."""
    if (block := block_of(checklist)) is not None:
        return block
    arguments = " ".join(plain(argument(edit)) for edit in checklist.edits if edit.form is not Form.LEAVE_OUT)
    return (message("page.add_arguments"), arguments) if arguments else (None, "")


def argument(edit: Edit) -> str:
    """One edit as an argument of a command, quoted for a shell."""
    values = edit.value if isinstance(edit.value, list | tuple) else [edit.value]
    return shlex.join([edit.name, *(map(str, values) if edit.form is Form.WRITE else ())])
