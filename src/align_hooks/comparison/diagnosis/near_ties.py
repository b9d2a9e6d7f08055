"""Decide what a few tokens that changed their experts leave open.

From the first such token on the runs compute with different experts, and each later difference may follow from that. So the pair is
inconclusive until one run uses the other's experts. Tokens with the same experts are still compared
(:mod:`align_hooks.comparison.stages.token_losses`), and what differs before counts."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from align_hooks.comparison.context import ComparisonContext
from align_hooks.comparison.data.routing import has_choices
from align_hooks.comparison.data.token_losses import LossDivergence
from align_hooks.comparison.diagnosis.symptom import first_symptom, moment
from align_hooks.comparison.finding import Metric, when
from align_hooks.comparison.stage_result import Phase, StageResult, Status, evidence_of
from align_hooks.comparison.stages import registry
from align_hooks.messages import message, sentences
from align_hooks.record.format.state import EXPERT_BIAS

OF_PASSES = (registry.first_updates, registry.curve)
"""Stages beside those of a forward or a backward pass whose differences may follow from tokens with other experts."""
MOVED = 10.0
"""Times the share of tokens with other experts by which a term of the loss may follow from them."""
MOST = 0.5
"""Part of rows whose first tokens must agree, where the tokens with other experts are not known."""


def opened(
    stages: Sequence[StageResult], symptom: StageResult | None, context: ComparisonContext
) -> tuple[list[StageResult], StageResult | None]:
    """Return the stages and the first symptom: the routing's, inconclusive and open, where near ties come before any other."""
    ties = next((result for result in stages if result.stage is registry.routing and result.ties is not None), None)
    if ties is None or ties.status is Status.DIFFERENT or symptom is None or symptom.status is not Status.DIFFERENT:
        return list(stages), symptom
    step, divergence = ties.ties or 0, evidence_of(stages, LossDivergence)
    tied, shown = (float(step), int(Phase.FORWARD)), moment(symptom, context.pair.first or 0)
    if shown < tied:
        return list(stages), symptom
    if (other := first_symptom([result for result in stages if not may_follow(result, ties)], context.pair.first)) is not None:
        return list(stages), other
    follows = has_choices(*context.pair.runs, step=step) or divergence.begun <= MOST  # tokens on the same way differ, too
    if shown == tied and symptom.stage is registry.token_losses and follows:
        return list(stages), symptom
    summary = sentences(ties.summary, message("routing.leaves_open", stage=symptom.title))
    differs = message("routing.leaves_open_from", step=when(step))
    held = replace(ties, status=Status.INCONCLUSIVE, summary=summary, open=True, differs=differs)
    return [held if result is ties else result for result in stages], held


def without_refuted(stages: Sequence[StageResult]) -> list[StageResult]:
    """Return the stages, choices of experts set aside that the experts refute: tokens of other experts would have given other values.

    A router may choose twice, the second time for its balancing term, and the record have that."""
    known = {result.stage: result for result in stages}
    chosen, values = known.get(registry.routing), known.get(registry.activations)
    if chosen is None or chosen.status is not Status.DIFFERENT or values is None or values.status is not Status.SAME:
        return list(stages)
    agreeing = {(finding.name, finding.step) for finding in values.findings}
    if not all((finding.name.removesuffix(".gate.weight"), finding.step) in agreeing for finding in chosen.findings):
        return list(stages)
    summary = sentences(message("routing.refuted", name=chosen.findings[0].name), chosen.summary)
    aside = replace(chosen, status=Status.NOT_COMPARED, summary=summary, findings=(), differs=None, ties=None)
    return [aside if result is chosen else result for result in stages]


def may_follow(result: StageResult, ties: StageResult) -> bool:
    """Return whether what a stage shows may follow from the tokens that changed their experts."""
    wrong = result.beyond
    if result.stage is registry.clipping:  # the norm may, and what is clipped by it
        return any(finding.quantity is Metric.GRAD_NORM for finding in wrong)
    if result.stage is registry.loss_terms:
        share = max((finding.error or 0.0 for finding in ties.findings), default=0.0)
        return all((finding.error or 0.0) <= MOVED * share for finding in wrong)
    if result.stage is registry.state:  # an expert's bias moves by how many tokens each expert was given
        return all(finding.name.endswith(EXPERT_BIAS) for finding in wrong)
    return result.stage.phase in (Phase.FORWARD, Phase.BACKWARD) or result.stage in OF_PASSES  # no data, setting or update does
