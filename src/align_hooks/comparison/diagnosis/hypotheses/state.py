"""Causes of what a step starts from: weights, moments, counts, random numbers, and what else is carried over."""

from __future__ import annotations

from align_hooks.comparison.data.token_losses import AffectedRows
from align_hooks.comparison.diagnosis.advice import Advice, Situation
from align_hooks.comparison.diagnosis.hypothesis import Fault, Grounds, hypothesis
from align_hooks.comparison.finding import Pattern
from align_hooks.comparison.stage_result import FaultLocation
from align_hooks.comparison.stages import registry
from align_hooks.messages import message

STATE, WEIGHTS = FaultLocation.STATE, FaultLocation.WEIGHTS


def refresh_main_parameters(now: Situation) -> Advice:
    """Return how an optimizer takes over the weights that were loaded into its model."""
    return Advice(message("next.refresh_main_parameters"))


def mend_ranks(now: Situation) -> Advice:
    """Return what to open where ranks hold different copies, with the command that lists these."""
    return Advice(message("next.mend_ranks", look=now.look), ("show_contradictions",))


@hypothesis(WEIGHTS, source="Megatron's load_checkpoint: reload_model_params; field", advice=refresh_main_parameters)
def main_parameters(fault: Fault) -> Grounds | None:
    """The optimizer of one side starts from other weights than its model."""
    return Grounds.PATTERN if fault.suspect.pattern is Pattern.STALE_MAIN_PARAMETERS else None


@hypothesis(WEIGHTS, FaultLocation.OPTIMIZER, advice=mend_ranks)
def ranks_updated_apart(fault: Fault) -> Grounds | None:
    """The self-check finds copies of a weight that differ, and what they were made from agreed."""
    return Grounds.PATTERN if fault.suspect.pattern is Pattern.RANKS_DIFFER else None


# a generator's state is on record, and shows before what an update makes of moments and counts
@hypothesis(STATE, outranks=("optimizer_start", "not_restored", "micro_batch_leaves", "step_leaves"))
def random_numbers(fault: Fault) -> Grounds | None:
    """Other random numbers were drawn."""
    return Grounds.TOKENS if fault.seen.drawn is not None else None


@hypothesis(STATE, source="Megatron-LM issue 761; zoo")
def optimizer_start(fault: Fault) -> Grounds | None:
    """The optimizers start from other moments."""
    return Grounds.TOKENS if fault.seen.first.stage is registry.initial_optimizer_state else None


@hypothesis(STATE, source="the guide, stage 3")
def not_restored(fault: Fault) -> Grounds | None:
    """A step starts from other counts or buffers."""
    return Grounds.TOKENS if fault.seen.first.stage is registry.state else None


@hypothesis(STATE, outranks=("step_leaves",))
def micro_batch_leaves(fault: Fault) -> Grounds | None:
    """Token losses differ in all micro-batches but the first ones."""
    return Grounds.TOKENS if fault.seen.divergence.rows.rows is AffectedRows.LATER else None


@hypothesis(STATE)
def step_leaves(fault: Fault) -> Grounds | None:
    """Token losses differ, and those of an earlier step on equal weights agree."""
    return Grounds.TOKENS if fault.seen.divergence.later else None
