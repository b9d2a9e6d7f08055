"""The stage of norms, gradients and weights at steps that no longer have equal weights."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from align_hooks.comparison.context import ComparisonContext
from align_hooks.comparison.finding import Finding, Metric, Pattern, when
from align_hooks.comparison.findings import keep_worst
from align_hooks.comparison.pair import Pair
from align_hooks.comparison.patterns.kept_gradients import kept_gradients
from align_hooks.comparison.settings.recorded import listed
from align_hooks.comparison.stage_result import FaultLocation, Phase, StageResult, Status
from align_hooks.comparison.stages.stage import stage
from align_hooks.comparison.steps import drifting
from align_hooks.messages import message, sentences, terms

BIAS = ".e_score_correction_bias"
"""How the names of the experts' biases end."""


@stage("free-running steps", Phase.BACKWARD, place=FaultLocation.NEXT_LOSS, draws=True, decides=False, is_of_tensors=True)
def free_running(context: ComparisonContext) -> StageResult:
    """Compare tensors of free-running steps with what an honest pair shows; weights at a rate of 0 to the bit.

    Steps that a band judges are left out, unless a rate of 0 keeps their weights."""
    exact: list[Finding] = []
    free: list[Finding] = []
    counts: dict[Metric, int] = {}
    first: dict[int, set[tuple[Metric, str]]] = {}  # the earliest step with anything beyond its limit alone
    gaps, banded = [], 0
    pair, limits = context.pair, context.pair.limits
    for kind in (Metric.LOCAL_NORMS, Metric.GRADIENTS, Metric.WEIGHTS):
        steps = [step for step in pair.known(kind) if step != pair.first]
        weights = kind is Metric.WEIGHTS
        steps = [step for step in steps if (step not in pair.after_injected if weights else not pair.is_exact(step))]
        known, steps = len(steps), [step for step in steps if not context.is_banded(step) or (weights and step in pair.still)]
        banded += known - len(steps)
        for step in steps:
            default = 0.0 if weights and step in pair.still else limits.weights if weights else limits.free
            errors = context.norms(step, default, worst_only=True) if kind is Metric.LOCAL_NORMS else context.tensors(kind, step, default)
            if step <= min(first, default=step) and (names := {(kind, error.name) for error in errors if error.limit_ratio > 1}):
                first = {step: first.get(step, set()) | names}
            kept = keep_worst(errors)  # of a long run not every tensor at every step
            labelled = [replace(error, what=message("finding.labelled", kind=kind, what=error.what)) for error in kept]
            findings = free if default else exact
            findings[:] = keep_worst([*findings, *labelled])
        counts |= {kind: len(steps)} if steps else {}
        gaps += pair.gaps(kind)
    if not exact and not free and banded:
        return StageResult(free_running, Status.NOT_COMPARED, message("free_running.banded", count=banded))
    if not exact and not free:
        return StageResult(free_running, Status.NOT_COMPARED, message("free_running.none"))
    compared = terms(message("free_running.compared", kind=kind, count=count) for kind, count in counts.items())
    short = message("short.free_running", count=max(counts.values()), kinds=len(counts))
    result = drifting(context, free_running, compared, exact, free, short)
    if result.status is Status.DIFFERENT:
        result = result.with_common(kept_gradients(pair.runs, pair.known(Metric.GRADIENTS)), Pattern.GRADIENTS_KEPT)
        result = of_bias_alone(result, first, pair)
    if gaps and result.status is Status.SAME:
        return replace(result, status=Status.INCOMPLETE, summary=sentences(result.summary, gaps[0]))
    return result


def of_bias_alone(result: StageResult, first: Mapping[int, set[tuple[Metric, str]]], pair: Pair) -> StageResult:
    """Return a stage with what moved where the experts' biases alone are wrong ``first``, at its one step: no gradient moves them, but
    their own update.

    Weights that were not recorded before that update do not tell which update it was."""
    step, wrong = next(iter(first.items()), (0, set()))
    if step - 1 not in pair.known("weights") or not all(kind is Metric.WEIGHTS and name.endswith(BIAS) for kind, name in wrong):
        return result
    moved = message("training_state.bias_moved", names=listed(sorted(name for _, name in wrong)), step=when(step - 1))
    return replace(result, place=FaultLocation.OPTIMIZER, differs=None).with_common(moved, Pattern.BIAS_MOVED)
