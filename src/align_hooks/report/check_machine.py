"""A check for programs: every row with both sides, as versioned strict JSON. Bump ``FORMAT`` when the meaning of anything here changes."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from align_hooks.checklist.held import Held
from align_hooks.checklist.judge import Checked
from align_hooks.checklist.result import Checklist, Side, counts
from align_hooks.report.check_text import verdict

FORMAT = 1


def check_as_json(checklist: Checklist, **about: str) -> dict[str, Any]:
    """All of a check: outcome and exit code, every row, both schedules at every compared step, data, and what no row covers."""
    return {
        "format": FORMAT,
        **about,
        "verdict": verdict(checklist),
        "exit_code": checklist.exit_code,
        "counts": dict(counts(checklist)),
        "rows": [_row(one) for one in checklist.checked],
        "courses": [asdict(one) for one in checklist.courses],
        "sides": [_side(one) for one in checklist.sides],
        "data": checklist.data,
        "data_alike": checklist.alike,
        "differ_and_not_covered": [list(one) for one in checklist.unlike],
    }


def _row(one: Checked) -> dict[str, Any]:
    row = one.row
    return {
        "name": row.name,
        "group": row.group,
        "outcome": one.outcome.value,
        "effect": row.effect.value,
        "reference": _held(one.reference),
        "candidate": _held(one.candidate),
        "why": one.why,
        "change": one.change,
        "advised": one.advised,
        "by_hand": row.by_hand,
        "sources": list(row.sources),
    }


def _held(held: Held) -> dict[str, str]:
    return {"value": held.shown, "where": held.where, "why": held.why}


def _side(side: Side) -> dict[str, Any]:
    look = side.look
    return {
        "framework": side.framework,
        "source": side.source,
        "recorded": side.recorded,
        "notes": list(side.notes),
        "traps": list(side.traps),
        "gaps": list(side.gaps),
        "not_covered": [{"name": name, "value": value, "where": where} for name, value, where in side.not_covered],
        "data": None if look is None else {key: value for key, value in asdict(look).items() if key not in ("samples", "digests")},
    }
