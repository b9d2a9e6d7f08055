"""The stage of the loss terms beside the language model's."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from align_hooks.comparison import distances
from align_hooks.comparison.context import ComparisonContext
from align_hooks.comparison.finding import Finding, Metric, at_step
from align_hooks.comparison.findings import judged, steps_text
from align_hooks.comparison.patterns.sharding import origin
from align_hooks.comparison.stage_result import FaultLocation, Phase, StageResult, Status
from align_hooks.comparison.stages.stage import stage
from align_hooks.messages import message
from align_hooks.record.format.terms import NAMED, PREDICTION

CLEARLY = 0.1
"""Error over limit up to which a term agrees without a doubt."""


@stage("loss terms", Phase.FORWARD, place=FaultLocation.GRADIENTS, draws=True, decides=False)
def loss_terms(context: ComparisonContext) -> StageResult | None:
    """Compare the terms that balance experts and predict further tokens, with their coefficients, on equal weights.

    A term that one run lacks is 0 there; None where neither run has any. No token's loss shows these terms, and a printed loss may have
    some of them on one side only."""
    pair = context.pair
    if not any(row.terms for run in pair.runs for row in run.rows):
        return None
    exact = [rows for rows in pair.rows if pair.is_exact(rows[0].step)]
    findings: list[Finding] = []
    for ours, theirs in exact:
        limit = context.noise.limits("loss_terms", ours.step, pair.limits.gradient)
        for term in distances.of_terms(ours, theirs):
            known = term.name in NAMED
            what = at_step(message(f"loss_terms.{term.name}") if known else term.name, ours.step)
            values = term.reference, term.candidate
            by = {"name": term.name, "step": ours.step, "quantity": Metric.LOSS, "scale": term.scale}
            findings.append(Finding(what, *values, term.error, limit(term.name), **by))  # type: ignore[arg-type]
    if not findings:
        return StageResult(loss_terms, Status.NOT_COMPARED, message("loss_terms.none"))
    summary = message("loss_terms.compared", steps=steps_text([ours.step for ours, _ in exact]))
    result = judged(loss_terms, summary, findings, message("steps.count", count=len(exact)))
    wrong = result.beyond[0] if result.status is Status.DIFFERENT and result.beyond else None
    if result.status is Status.DIFFERENT and (later := carried(findings)) is not None:
        return replace(result, place=FaultLocation.STATE, differs=message("loss_terms.carried", what=later.what))
    if wrong is None or wrong.scale is None or (source := origin(wrong.scale, pair.runs)) is None:
        return result
    return replace(result, differs=message("loss_terms.scaled", what=wrong.what, factor=wrong.scale, origin=source))


def carried(findings: Sequence[Finding]) -> Finding | None:
    """Return the first finding, where its term agreed clearly in an earlier step on equal weights: something carries over; else None.

    What predicts tokens is left out: which tokens it counts is in the masks, which are of a batch."""
    agreed = set[str]()
    for finding in findings:  # in the order of steps
        if finding.limit_ratio > 1:
            return finding if finding.name in agreed - {PREDICTION} else None
        agreed |= {finding.name} if finding.limit_ratio <= CLEARLY else set()
    return None
