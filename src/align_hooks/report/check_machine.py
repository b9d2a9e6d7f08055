"""A check for programs: every row with both sides, as versioned strict JSON. Bump ``FORMAT`` when the meaning of anything here changes.

What a person reads stands as English text, and beside it under ``messages`` as ids and arguments, or as ids alone.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from align_hooks.checklist.judge import Checked
from align_hooks.checklist.result import CheckedSide, Checklist, Course, counts
from align_hooks.checklist.side_value import SideValue
from align_hooks.messages import Message, both, message, rendered
from align_hooks.messages.data import as_data

FORMAT = 1


def check_as_json(checklist: Checklist, **about: str) -> dict[str, Any]:
    """All of a check: outcome and exit code, every row, both schedules at every compared step, data, and what no row covers."""
    return {
        "format": FORMAT,
        **about,
        "verdict": rendered(checklist.judgement),
        "exit_code": checklist.exit_code,
        "counts": {rendered(outcome): count for outcome, count in counts(checklist).items()},
        "rows": [_row(one) for one in checklist.checked],
        "courses": [_course(one) for one in checklist.courses],
        "sides": [_side(one) for one in checklist.sides],
        "data": rendered(checklist.data),
        "data_alike": checklist.alike,
        "differ_and_not_covered": [[name, rendered(one), rendered(other)] for name, one, other in checklist.unlike],
        "messages": {"data": as_data(checklist.data)},
    }


def _row(one: Checked) -> dict[str, Any]:
    row, change = one.row, one.change
    return {
        "id": row.id,
        "name": rendered(row.name),
        "group": rendered(row.group),
        "outcome": rendered(one.outcome),
        "effect": rendered(row.effect),
        "reference": _held(one.reference),
        "candidate": _held(one.candidate),
        "why": rendered(one.why),
        "change": rendered(change.words) if change is not None else "",
        "advised": rendered(_advice(one)),
        "by_hand": rendered(row.by_hand),
        "sources": list(row.sources),
        "advised_against": [side.value for side in one.advised],
        "ids": {"group": row.group.value, "outcome": one.outcome.value, "effect": row.effect.value},
        "messages": {
            "why": as_data(one.why),
            "change": None if change is None else {"action": change.action.value, "key": change.key, "value": as_data(change.value)},
            "advice": as_data(row.advice.text if row.advice is not None else None),
            "by_hand": as_data(row.by_hand),
        },
    }


def _advice(one: Checked) -> Message | None:
    if one.row.advice is None or not one.advised:
        return None
    return message("advised.not_so", advice=one.row.advice.text, sides=both(*one.advised))


def _held(held: SideValue) -> dict[str, Any]:
    return {
        "value": rendered(held.shown),
        "where": rendered(held.where),
        "why": rendered(held.why),
        "messages": {"value": as_data(held.shown), "where": as_data(held.where), "why": as_data(held.why)},
    }


def _course(course: Course) -> dict[str, Any]:
    return asdict(course) | {
        "id": course.name.value,
        "name": rendered(course.name),
        "text": rendered(course.text),
        "schedules": [rendered(one) for one in course.schedules],
        "messages": {"text": as_data(course.text), "schedules": [as_data(one) for one in course.schedules]},
    }


def _side(side: CheckedSide) -> dict[str, Any]:
    return {
        "framework": side.framework,
        "source": side.source,
        "recorded": side.recorded,
        "notes": _texts(side.notes),
        "traps": _texts(side.traps),
        "gaps": _texts(side.gaps),
        "not_covered": [{"name": name, "value": rendered(value), "where": where} for name, value, where in side.not_covered],
        "data": _look(side),
        "messages": {"notes": _data(side.notes), "traps": _data(side.traps), "gaps": _data(side.gaps)},
    }


def _look(side: CheckedSide) -> dict[str, Any] | None:
    look = side.look
    if look is None:
        return None
    held = {key: value for key, value in asdict(look).items() if key not in ("samples", "digests")}
    return held | {
        "problems": _texts(look.problems),
        "notes": _texts(look.notes),
        "decoded": [[rendered(where), text] for where, text in look.decoded],
        "messages": {"problems": _data(look.problems), "notes": _data(look.notes)},
    }


def _texts(said: Any) -> list[str]:
    return [rendered(one) for one in said]


def _data(said: Any) -> list[Any]:
    return [as_data(one) for one in said]
