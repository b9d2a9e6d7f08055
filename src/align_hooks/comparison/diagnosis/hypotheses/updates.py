"""Causes in updates: the optimizers' settings, and what makes updates of them."""

from __future__ import annotations

from align_hooks.comparison.diagnosis.advice import Advice, Situation, mend
from align_hooks.comparison.diagnosis.hypothesis import Fault, Grounds, hypothesis
from align_hooks.comparison.diagnosis.suspects import OF_UPDATES
from align_hooks.comparison.finding import Pattern, Term
from align_hooks.comparison.settings.recorded import HyperParameter
from align_hooks.comparison.stage_result import FaultLocation
from align_hooks.messages import message

CONFIGURATION, OPTIMIZER = FaultLocation.CONFIGURATION, FaultLocation.OPTIMIZER


def read_injected(now: Situation) -> Advice:
    """Return what to read, or to mend: no update from equal gradients says more of moments that are empty."""
    return Advice(message("next.read_optimizer")) if now.feeds and now.is_injected else mend(now)


@hypothesis(CONFIGURATION, source="the guide's case study")
def other_decay(fault: Fault) -> Grounds | None:
    """Weight decay differs for some parameters."""
    first = next(iter(fault.seen.first.beyond), None)
    return Grounds.SETTING if first is not None and first.name == HyperParameter.WEIGHT_DECAY and first.names else None


@hypothesis(CONFIGURATION)
def rate_schedule(fault: Fault) -> Grounds | None:
    """The learning rate differs first of all settings."""
    return Grounds.SETTING if fault.is_named("learning rate", HyperParameter.LEARNING_RATE) else None


@hypothesis(*OF_UPDATES)
def own_optimizer(fault: Fault) -> Grounds | None:
    """One side's optimizer is of a class that no framework has."""
    return Grounds.PATTERN if fault.suspect.name in fault.seen.own_optimizers.values() else None


@hypothesis(OPTIMIZER, advice=read_injected)
def moments_emptied(fault: Fault) -> Grounds | None:
    """The moments of one side's optimizer are empty after updates."""
    return Grounds.PATTERN if fault.suspect.pattern is Pattern.MOMENTS_EMPTIED else None


@hypothesis(OPTIMIZER)
def bias_of_experts(fault: Fault) -> Grounds | None:
    """The rate of the experts' bias differs, or their bias does, which nothing but that rate moves."""
    return Grounds.SETTING if fault.is_named("moe_router_bias_update_rate", "*e_score_correction_bias") else None


@hypothesis(OPTIMIZER)
def update_count(fault: Fault) -> Grounds | None:
    """Updates follow from another count than the one on record."""
    return Grounds.SETTING if fault.is_named(Term.COUNT) else None


@hypothesis(OPTIMIZER)
def update_formula(fault: Fault) -> Grounds | None:
    """Updates follow from another formula than AdamW."""
    return Grounds.SETTING if fault.is_named(Term.FORMULA) else None


@hypothesis(OPTIMIZER)
def updates_by_a_factor(fault: Fault) -> Grounds | None:
    """All first updates differ by one factor, or updates follow from another bias correction than the one on record."""
    if fault.suspect.pattern is Pattern.UPDATES_SCALED:
        return Grounds.PATTERN
    return Grounds.SETTING if fault.is_named(Term.BIAS_CORRECTION) else None


@hypothesis(OPTIMIZER)
def updates_of_some(fault: Fault) -> Grounds | None:
    """Updates of few tensors follow no formula, or a tensor's update differs most."""
    return Grounds.PART if fault.suspect.pattern is Pattern.SOME_UPDATES or fault.is_named("model.*", "lm_head*") else None
