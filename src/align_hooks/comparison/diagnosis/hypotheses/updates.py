"""Causes in updates: the optimizers' settings, and what makes updates of them."""

from __future__ import annotations

from align_hooks.comparison.diagnosis.advice import mend_cause, mend_if_built, mend_norm, read_or_mend
from align_hooks.comparison.diagnosis.hypothesis import Fault, Grounds, Hypothesis
from align_hooks.comparison.diagnosis.suspects import OF_UPDATES
from align_hooks.comparison.finding import Pattern, Term
from align_hooks.comparison.settings.recorded import HyperParameter
from align_hooks.comparison.stage_result import FaultLocation
from align_hooks.comparison.stages import registry
from align_hooks.record.format.state import SCHEDULER

NORM = (FaultLocation.CLIPPING, FaultLocation.SELF_CHECK)
CONFIGURATION, OPTIMIZER = (FaultLocation.CONFIGURATION,), (FaultLocation.OPTIMIZER,)
GROUPS = (*CONFIGURATION, *OPTIMIZER)
RATE = ("learning rate", HyperParameter.LEARNING_RATE, SCHEDULER)
BIAS = ("moe_router_bias_update_rate", "*e_score_correction_bias")
"""A rate, and what nothing but this rate moves."""
NAMED = (
    Hypothesis("rate_schedule", GROUPS, settings=RATE, outranks=("built_optimizer",), advice=mend_if_built),
    Hypothesis("moments_emptied", OPTIMIZER, patterns=(Pattern.MOMENTS_EMPTIED,), advice=read_or_mend),
    Hypothesis("norm_miscounts", NORM, patterns=(Pattern.NORM_MISCOUNTS,), source="field; zoo of commits", advice=mend_norm),
    Hypothesis("gradients_not_cleared", OF_UPDATES, patterns=(Pattern.GRADIENTS_KEPT,), source="field", advice=read_or_mend),
    Hypothesis("bias_of_experts", OPTIMIZER, patterns=(Pattern.BIAS_MOVED,), settings=BIAS, advice=mend_cause),
    Hypothesis("update_count", OPTIMIZER, settings=(Term.COUNT,)),
    Hypothesis("update_formula", OPTIMIZER, settings=(Term.FORMULA,)),
    Hypothesis("muon_momentum", OPTIMIZER, settings=(Term.MOMENTUM, Term.NESTEROV)),
    Hypothesis("muon_iteration", OPTIMIZER, settings=(Term.COEFFICIENTS,)),
    Hypothesis("muon_scale", OPTIMIZER, settings=(Term.SCALE,)),
    Hypothesis("other_optimizer", GROUPS, settings=(HyperParameter.OPTIMIZER,), outranks=("parameter_groups",)),
    Hypothesis("updates_by_a_factor", OPTIMIZER, patterns=(Pattern.UPDATES_SCALED,), settings=(Term.BIAS_CORRECTION,)),
)


@Hypothesis("other_decay", GROUPS, source="the guide's case study", outranks=("parameter_groups",)).by(Grounds.SETTING)
def other_decay(fault: Fault) -> bool:
    """Some parameters decay on one side alone: where both decay by other rates, it is no grouping that differs."""
    first = next(iter(fault.seen.first.beyond), None)
    if first is None or first.name != HyperParameter.WEIGHT_DECAY or not first.names:
        return False
    return (first.reference == 0) is not (first.candidate == 0)


@Hypothesis("parameter_groups", OPTIMIZER, source="Megatron-LM f11303b5", advice=mend_cause).by(Grounds.SETTING)
def parameter_groups(fault: Fault) -> bool:
    """Optimizers that are given the same settings have other parameter groups."""
    return fault.seen.first.stage is registry.hyper_parameters and any(finding.names for finding in fault.seen.first.beyond)


@Hypothesis("built_optimizer", OPTIMIZER, source="Megatron-LM 03fd0b41", advice=mend_cause).by(Grounds.SETTING)
def built_optimizer(fault: Fault) -> bool:
    """Optimizers that are given the same settings differ for all parameters."""
    return fault.seen.first.stage is registry.hyper_parameters and not any(finding.names for finding in fault.seen.first.beyond)


@Hypothesis("clipped_apart", NORM, source="Megatron-LM abf10f85", advice=mend_cause).by(Grounds.PATTERN)
def clipped_apart(fault: Fault) -> bool:
    """One side's updates are clipped by norms of groups."""
    updates = fault.seen.stages.get(registry.weights_after_update)
    return updates is not None and any(finding.pattern is Pattern.CLIPPED_APART for finding in updates.findings)


@Hypothesis("own_optimizer", OF_UPDATES).by(Grounds.PATTERN)
def own_optimizer(fault: Fault) -> bool:
    """One side's optimizer is of a class that no framework has."""
    return fault.suspect.name in fault.seen.own_optimizers.values()


@Hypothesis("updates_of_some", OPTIMIZER, part=("model.*", "lm_head*")).by(Grounds.PART)
def updates_of_some(fault: Fault) -> bool:
    """Updates of few tensors follow no formula."""
    return fault.suspect.pattern is Pattern.SOME_UPDATES
