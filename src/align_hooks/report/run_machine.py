"""The contents and the health of one run, as versioned strict JSON. Bump ``FORMAT`` when the meaning of anything changes."""

from __future__ import annotations

from align_hooks.comparison.health import Health, Rank
from align_hooks.messages import rendered
from align_hooks.record.format.schema import Table
from align_hooks.record.inventory import ranges
from align_hooks.report.machine import curve_as_json, finding_as_json, members

FORMAT = 1


def run_as_json(health: Health, **about: str) -> Table:
    """Return everything of a run; ``about`` has the version and the run's path."""
    side = health.side
    return {
        "format": FORMAT,
        **about,
        "condition": health.condition.value,
        "exit_code": health.exit_code,
        "framework": side.facts.framework,
        "versions": dict(side.facts.versions),
        "compute_type": side.facts.training.compute_type,
        "ranks": side.ranks,
        "layout": dict(side.layout),
        "steps": side.steps,
        "planned_steps": health.planned,
        "holds": [
            {"quantity": each.kind, "steps": ranges(each.steps), "count": len(each.steps), **members(each, "asked", "bytes")}
            for each in health.holds
        ],
        "of_ranks": [_rank(rank) for rank in health.ranks],
        "problems": [
            {"kind": problem.kind.value, "words": rendered(problem.message), **members(problem, "rank", "step", "place", "error")}
            for problem in health.problems
        ],
        "self_check": rendered(health.checked),
        "contradictions": [finding_as_json(finding) for finding in health.contradictions],
        "remarks": [rendered(remark) for remark in health.remarks],
        "curves": [curve_as_json(curve) for curve in health.curves],
    }


def _rank(rank: Rank) -> Table:
    return {
        **members(rank, "rank", "host", "place"),
        "ended": rendered(rank.ended),
        "hooks": {name: {"state": hook.state, "calls": hook.calls} for name, hook in rank.hooks.items()},
        "recorded": dict(rank.recorded),
    }
