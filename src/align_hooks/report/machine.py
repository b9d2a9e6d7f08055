"""A comparison for programs, as versioned strict JSON; docs/json.md describes each key, and tests compare both.

Bump ``FORMAT`` when the meaning of anything here changes. NaN and the infinities are the strings that ``float()`` reads back.
"""

from __future__ import annotations

from typing import Any

from align_hooks.comparison.control_band.watching import JobWatch, Watched
from align_hooks.comparison.finding import Finding
from align_hooks.comparison.stage_result import StageResult
from align_hooks.comparison.verdict import Blame, ComparisonResult, Criterion, Curve
from align_hooks.messages import Argument, Joined, Message, as_data, rendered
from align_hooks.record.format.schema import Table
from align_hooks.report.text import parts_of, shown
from align_hooks.report.watch_text import alarm_words

FORMAT = 1


def members(of: object, *names: str) -> dict[str, Any]:
    """Return some attributes of an object by their names."""
    return {name: getattr(of, name) for name in names}


def as_json(comparison: ComparisonResult, **about: str) -> Table:
    """Return everything of a comparison; ``about`` has the version and the paths of both runs."""
    advice, *commands = parts_of(comparison.next) if comparison.next is not None else (None,)
    return {
        "format": FORMAT,
        **about,
        "verdict": comparison.verdict.text,
        "exit_code": comparison.verdict.exit_code,
        "first": rendered(comparison.first.title) if comparison.first else None,
        "first_id": comparison.first.stage.id if comparison.first else None,
        "blame": _blame(comparison.blame) if comparison.blame else None,
        "headline": rendered(comparison.headline),
        "next": rendered(advice),
        "commands": [rendered(command) for command in commands],
        "stages": [_stage(stage) for stage in comparison.stages],
        "model_settings": [finding_as_json(finding) for finding in comparison.settings],
        "acceptance": [criterion_as_json(criterion) for criterion in comparison.acceptance],
        "notes": [rendered(note) for note in comparison.notes],
        "messages": {"headline": as_data(comparison.headline), "next": as_data(advice), "notes": list(map(as_data, comparison.notes))},
        "eps": comparison.eps,
        "calibration": {kind: dict(errors) for kind, errors in comparison.calibration.items()},
        "runs": [{"path": run.path, "ranks": run.ranks, "layout": dict(run.layout), "steps": run.steps} for run in comparison.sides],
        "curves": [curve_as_json(curve) for curve in comparison.curves],
    }


def _blame(blame: Blame) -> Table:
    """Return suspects and causes in words, and as names of tensors and settings and ids of messages."""
    return {
        "place": blame.place.value,
        "suspects": [rendered(suspect.what) for suspect in blame.suspects],
        "suspect_names": [suspect.name for suspect in blame.suspects],
        "suspect_ids": [id_of_first(suspect.what) for suspect in blame.suspects],
        "causes": [rendered(words) for words in blame.likely],
        "cause_ids": list(blame.causes),
    }


def id_of_first(what: Argument) -> str:
    """Return the id of a message, or of the first of several; empty of a name."""
    first = what.parts[0] if isinstance(what, Joined) else what
    return first.id if isinstance(first, Message) else ""


def criterion_as_json(criterion: Criterion) -> Table:
    """Return one line of the acceptance standard."""
    return {
        "name": criterion.name,
        "what": rendered(criterion.what),
        "passed": criterion.passed,
        "value": rendered(criterion.value),
        "reference_own": None if criterion.own is None else rendered(criterion.own),
    }


def curve_as_json(curve: Curve) -> Table:
    """Return one number of every step."""
    series = members(curve, "steps", "reference", "candidate", "limits", "noise")
    return {"name": curve.name, **{name: list(values) for name, values in series.items()}}


def watch_as_json(watch: JobWatch, outcome: Watched, **about: str) -> Table:
    """Return the outcome of a watch: its alarms, and the evidence of each number."""
    return {
        "format": 1,
        **about,
        "outcome": outcome.text,
        "exit_code": outcome.exit_code,
        "steps": watch.seen,
        "repeats": len(watch.repeats) if watch.has_bands else 0,
        "false_alarms": watch.false_alarms if watch.has_bands else None,
        "alarms": [
            {"number": each.number, "sign": each.sign.value, "since": each.start, "seen": each.step, "words": rendered(alarm_words(each))}
            for each in watch.alarms
        ],
        "numbers": {name: {"last_step": watch.latest(name), "evidence": number.evidence} for name, number in watch.numbers.items()},
    }


def _stage(result: StageResult) -> Table:
    return {
        "id": result.stage.id,
        "name": rendered(result.title),
        "status": result.status.value,
        "summary": rendered(result.summary),
        "told": rendered(result.common),
        "messages": {"summary": as_data(result.summary), "told": as_data(result.common)},
        "findings": [finding_as_json(finding) for finding in result.findings],
    }


def finding_as_json(finding: Finding) -> Table:
    """Return a finding by its fields: a message in words, and under ``messages`` as data."""
    return {
        "what": rendered(finding.what),
        "reference": rendered(shown(finding.reference)),
        "candidate": rendered(shown(finding.candidate)),
        **members(finding, "error", "limit", "scale", "direction", "name", "step"),
        "quantity": finding.quantity or "",
        **members(finding, "since", "rank"),
        "unit": finding.unit.value,
        "term": finding.term or "",
        "by_digest": finding.by_digest,
        "messages": {"what": as_data(finding.what)},
        "limit_ratio": finding.limit_ratio,
    }
