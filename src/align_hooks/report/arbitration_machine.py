"""An arbitration as versioned strict JSON, for programs.

Bump ``FORMAT`` when the meaning of anything here changes. NaN and the infinities are the strings that ``float()`` reads back.
"""

from __future__ import annotations

from align_hooks.comparison.arbitration import SIDES, Arbitration, JudgedPoint
from align_hooks.messages import as_data, rendered
from align_hooks.record.format.schema import Table
from align_hooks.report.machine import members
from align_hooks.report.text import shown

FORMAT = 1
OF_DISTANCE = ("error", "roundings", "limit", "honest", "norm", "eps", "estimated", "right")


def arbitration_as_json(arbitration: Arbitration, **about: str) -> Table:
    """Return everything of an arbitration; ``about`` has the version and the paths of both runs."""
    return {
        "format": FORMAT,
        **about,
        "ruling": arbitration.ruling.text,
        "exit_code": arbitration.ruling.exit_code,
        "step": arbitration.step,
        "same_inputs": arbitration.alike,
        "agree_with_each_other": arbitration.agreed,
        "compute_types": {side.value: name for side, name in arbitration.compute_types.items()},
        "first": {side.value: _first(arbitration.first(side)) for side in SIDES},
        "without_consequence": {side.value: list(map(_first, arbitration.healed(side))) for side in SIDES},
        "points": [_point(judged) for judged in arbitration.points],
        "model_settings": [
            {"name": finding.name, "reference": rendered(shown(finding.reference)), "candidate": rendered(shown(finding.candidate))}
            for finding in arbitration.settings
        ],
        "doubts": [rendered(doubt) for doubt in arbitration.doubts],
        "notes": [rendered(note) for note in arbitration.notes],
        "messages": {"doubts": list(map(as_data, arbitration.doubts)), "notes": list(map(as_data, arbitration.notes))},
    }


def _first(judged: JudgedPoint | None) -> Table | None:
    return None if judged is None else {"point": judged.point, "of": judged.kind.value}


def _point(judged: JudgedPoint) -> Table:
    return {
        "point": judged.point,
        "of": judged.kind.value,
        "ruling": judged.ruling.text,
        "closer": None if judged.closer is None else judged.closer.value,
        "apart": judged.apart,
        **{side.value: members(each, *OF_DISTANCE) for side, each in judged.distances.items()},
    }
