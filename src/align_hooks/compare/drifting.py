"""The stages of free-running steps, which only drift: limits are wide or measured, and between limit and clear nothing is settled."""

from __future__ import annotations

from collections.abc import Sequence

from align_hooks.compare.findings import furthest, judged
from align_hooks.compare.ladder import Ladder
from align_hooks.compare.stages.stage import Stage
from align_hooks.compare.verdict import Finding, StageResult, Status, Words


def drifting(ladder: Ladder, stage: Stage, summary: Words, exact: Sequence[Finding], free: Sequence[Finding]) -> StageResult:
    """Exact findings are in or out; free ones drift, and between limit and ``clear`` only measured noise could tell."""
    found = [*exact, *free]
    bad = max((finding.excess for finding in exact), default=0.0) > 1
    worst = max((finding.excess for finding in free), default=0.0)
    if worst <= 1 and not bad:
        return StageResult(stage, Status.SAME, summary, furthest(found))
    if bad or worst > ladder.pair.limits.clear:
        return judged(stage, summary, found)
    return StageResult(stage, Status.INCONCLUSIVE, summary, furthest(found))
