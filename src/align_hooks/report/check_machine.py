"""A check as versioned strict JSON, texts in English, and under ``messages`` as data. Bump ``FORMAT`` when a meaning changes."""

from __future__ import annotations

from align_hooks.checklist.edits import Form, SuggestedEdit
from align_hooks.checklist.judge import JudgedRow
from align_hooks.checklist.result import CheckedSide, Checklist, Course, counts
from align_hooks.checklist.row import SideValue
from align_hooks.messages import as_data, rendered
from align_hooks.record.format.schema import Table
from align_hooks.report.check_fix import block_of
from align_hooks.report.check_text import advice
from align_hooks.report.machine import members

FORMAT = 2
OF_BATCHES = ("steps", "rows", "tokens", "counted", "smallest", "largest", "shifted", "pairs", "special")


def check_as_json(checklist: Checklist, **about: str) -> Table:
    """Return everything of a check; ``about`` has the version and both sides as given."""
    return {
        "format": FORMAT,
        **about,
        "verdict": rendered(checklist.judgement),
        "exit_code": checklist.exit_code,
        "counts": {rendered(outcome): count for outcome, count in counts(checklist).items()},
        "rows": [_row(checked) for checked in checklist.checked],
        "to_write": to_write[1] if (to_write := block_of(checklist)) is not None else "",
        "courses": [_course(course) for course in checklist.courses],
        "sides": [_side(side) for side in checklist.sides],
        "data": rendered(checklist.data),
        "data_alike": checklist.same_batches,
        "differ_and_not_covered": [
            (name, rendered(reference), rendered(candidate)) for name, reference, candidate in checklist.setting_differences
        ],
        "built_otherwise": [(name, rendered(reference), rendered(candidate)) for name, reference, candidate in checklist.built],
        "messages": {"data": as_data(checklist.data)},
    }


def _row(checked: JudgedRow) -> Table:
    row, change = checked.row, checked.change
    return {
        "id": row.id,
        "name": rendered(row.name),
        "group": rendered(row.group),
        "outcome": rendered(checked.outcome),
        "effect": rendered(row.effect),
        "reference": _cell(checked.reference),
        "candidate": _cell(checked.candidate),
        "why": rendered(checked.why),
        "change": rendered(change.words) if change is not None else "",
        "advised": rendered(advice(checked)),
        "by_hand": rendered(checked.by_hand),
        "sources": list(row.sources),
        "advised_against": [side.value for side in checked.advised],
        "ids": {"group": row.group.value, "outcome": checked.outcome.value, "effect": row.effect.value},
        "messages": {
            "why": as_data(checked.why),
            "change": None if change is None else _change(change),
            "advice": as_data(row.advice.text if row.advice is not None else None),
            "by_hand": as_data(checked.by_hand),
        },
    }


def _change(change: SuggestedEdit) -> Table:
    edits: list[Table] = [
        {"form": edit.form.value, "key": edit.name, "value": None if edit.form is Form.LEAVE_OUT else edit.value} for edit in change.edits
    ]
    parts, why, value = as_data(change.breaks), as_data(change.why), as_data(change.value)
    return {"action": change.action.value, "key": change.key, "value": value, "edits": edits, "parts": parts, "why": why}


def _cell(cell: SideValue) -> Table:
    texts = {"value": cell.shown, "where": cell.where, "why": cell.why}
    words = {name: rendered(text) for name, text in texts.items()}
    return {**words, "messages": {name: as_data(text) for name, text in texts.items()}}


def _course(course: Course) -> Table:
    return {
        "name": rendered(course.name),
        "same": course.same,
        "text": rendered(course.text),
        "schedules": list(map(rendered, course.schedules)),
        **{name: list(values) for name, values in members(course, "steps", "reference", "candidate").items()},
        **members(course, "differing", "first", "most"),
        "id": course.name.value,
        "messages": {"text": as_data(course.text), "schedules": list(map(as_data, course.schedules))},
    }


def _side(side: CheckedSide) -> Table:
    texts = {"notes": side.notes, "traps": side.pitfalls, "gaps": side.gaps}
    return {
        **members(side, "framework", "source", "recorded"),
        **{name: list(map(rendered, words)) for name, words in texts.items()},
        "not_covered": [
            {"name": one.name, "value": rendered(one.value), "where": one.where, "matters": one.matters} for one in side.not_covered
        ],
        "data": _batches(side),
        "messages": {name: list(map(as_data, words)) for name, words in texts.items()},
    }


def _batches(side: CheckedSide) -> Table | None:
    if (statistics := side.statistics) is None:
        return None
    texts = members(statistics, "problems", "notes")
    return {
        **members(statistics, *OF_BATCHES),
        **{name: list(map(rendered, words)) for name, words in texts.items()},
        "decoded": [(rendered(place), text) for place, text in statistics.decoded],
        "messages": {name: list(map(as_data, words)) for name, words in texts.items()},
    }
