"""A comparison for programs: everything of it, as versioned strict JSON.

Bump ``FORMAT`` when the meaning of anything here changes. NaN and the infinities are the strings that ``float()`` reads back.
"""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

from align_hooks.compare.verdict import Blame, Comparison, Finding, StageResult
from align_hooks.messages import rendered
from align_hooks.messages.data import as_data
from align_hooks.report.text import shown

FORMAT = 1


def as_json(comparison: Comparison, **about: str) -> dict[str, Any]:
    """All of a comparison: verdict and exit code, blame, what to run next, every stage with its findings, settings, acceptance, notes,
    who compared what (``about``), under ``calibration`` what ``--noise`` runs showed, kind and step to name to relative error, and under
    ``curves`` what both sides did at every step."""
    return {
        "format": FORMAT,
        **about,
        "verdict": comparison.verdict.text,
        "exit_code": comparison.verdict.exit_code,
        "first": rendered(comparison.first.title) if comparison.first else None,
        "blame": _blame(comparison.blame) if comparison.blame else None,
        "next": rendered(comparison.next),
        "stages": [_stage(one) for one in comparison.stages],
        "model_settings": [_finding(one) for one in comparison.settings],
        "acceptance": [{"what": rendered(one.what), "passed": one.passed, "value": rendered(one.value)} for one in comparison.acceptance],
        "notes": [rendered(note) for note in comparison.notes],
        "messages": {"next": as_data(comparison.next), "notes": [as_data(note) for note in comparison.notes]},
        "eps": comparison.eps,
        "calibration": {kind: dict(errors) for kind, errors in comparison.calibration.items()},
        "runs": [{"path": one.path, "ranks": one.ranks, "layout": dict(one.layout), "steps": one.steps} for one in comparison.sides],
        "curves": [asdict(one) for one in comparison.curves],
    }


def _blame(blame: Blame) -> dict[str, Any]:
    """Suspects and causes in words, and by what they are: names of tensors and settings, ids of messages."""
    return {
        "place": blame.place.value,
        "suspects": [rendered(suspect.what) for suspect in blame.suspects],
        "suspect_names": [suspect.name for suspect in blame.suspects],
        "suspect_ids": [suspect.id for suspect in blame.suspects],
        "causes": [rendered(words) for words in blame.likely],
        "cause_ids": [cause.value for cause in blame.causes],
    }


def _stage(stage: StageResult) -> dict[str, Any]:
    return {
        "id": stage.stage.id,
        "name": rendered(stage.title),
        "status": stage.status.value,
        "summary": rendered(stage.summary),
        "told": rendered(stage.common),
        "messages": {"summary": as_data(stage.summary), "told": as_data(stage.common)},
        "findings": [_finding(one) for one in stage.findings],
    }


def _finding(finding: Finding) -> dict[str, Any]:
    """A finding by its fields, in words where it holds a message, which stands under ``messages``."""
    plain = {field.name: getattr(finding, field.name) for field in fields(finding)}
    values = {side: rendered(shown(plain[side])) for side in ("reference", "candidate")}
    typed = {"quantity": finding.quantity or "", "unit": finding.unit.value, "term": finding.term or ""}
    worded = {"what": rendered(finding.what), "messages": {"what": as_data(finding.what)}}
    return plain | values | typed | worded | {"excess": finding.excess}
