"""Causes of what a step starts from: batches, weights, moments, counts, random numbers, and what else is carried over."""

from __future__ import annotations

from align_hooks.comparison.data.batch_differences import Made
from align_hooks.comparison.data.token_losses import AffectedRows
from align_hooks.comparison.diagnosis.advice import mend_cause, mend_making, mend_ranks, refresh_main_parameters
from align_hooks.comparison.diagnosis.hypothesis import Fault, Grounds, Hypothesis
from align_hooks.comparison.finding import Pattern
from align_hooks.comparison.stage_result import FaultLocation
from align_hooks.comparison.stages import registry
from align_hooks.record.batch_statistics import SampleRelation

NORMALISATION = (FaultLocation.NORMALISATION,)
DATA, STATE = (FaultLocation.DATA,), (FaultLocation.STATE,)
WEIGHTS, WEIGHTS_AND_UPDATES = (FaultLocation.WEIGHTS,), (FaultLocation.WEIGHTS, FaultLocation.OPTIMIZER)
LABELS = tuple(made for made in Made if made.name.startswith("LABELS"))
MASKS = tuple(made for made in Made if made.name.startswith("MASK") and made is not Made.MASK_HIDES_PADDING)
PADDING, EOD = "MindFormers 1.9: pad_token_id", "Megatron-LM 0.19: --eod-mask-loss; zoo"
DOCUMENTS = (Made.POSITIONS_ANEW_AFTER, Made.POSITIONS_ANEW, Made.DOCUMENTS_MEET, Made.ATTENTION_OF_ITS_OWN)
POSITIONS = (Made.POSITIONS_FROM, Made.POSITIONS, Made.ATTENTION)
PACKED = "Megatron-LM 0.19: cu_seqlens of its data sets and scripts"
STALE = "Megatron's load_checkpoint: reload_model_params; field"
RESUMED = "Megatron-LM: groups of the optimizer that a load replaces"
CLAMPED = "Megatron-LM: a divisor of at least 1; field"
OFFSETS = "Megatron-LM a77a883e: get_transformer_layer_offset"
NAMED = (
    Hypothesis("other_order", DATA, patterns=(SampleRelation.OTHER_ORDER,)),
    Hypothesis("other_rows", DATA, patterns=(SampleRelation.OTHER_TIMES,)),
    Hypothesis("other_data", DATA, patterns=(SampleRelation.OTHER_SAMPLES,)),
    Hypothesis("id_replaced", DATA, patterns=(Made.ID_REPLACED,), source="Megatron-LM 75c07217", advice=mend_making),
    Hypothesis("other_cut", DATA, patterns=(Made.BEGINS_LATER,)),
    Hypothesis("padding_hidden", DATA, patterns=(Made.MASK_HIDES_PADDING,), source=PADDING, advice=mend_making),
    Hypothesis("mask_made", DATA, patterns=MASKS, source=EOD, advice=mend_making),
    Hypothesis("labels_made", DATA, patterns=LABELS, advice=mend_making),
    Hypothesis("documents_apart", DATA, patterns=DOCUMENTS, advice=mend_making),
    Hypothesis("documents_end", DATA, patterns=(Made.DOCUMENTS_LATER, Made.DOCUMENTS), source=PACKED, advice=mend_making),
    Hypothesis("positions_made", DATA, patterns=POSITIONS, advice=mend_making),
    Hypothesis("divided_by_nothing", NORMALISATION, patterns=(Pattern.DIVIDED_BY_NOTHING,), source=CLAMPED, advice=mend_cause),
    Hypothesis("rate_stands", STATE, patterns=(Pattern.RATE_STANDS,), source=RESUMED, advice=mend_cause),
    Hypothesis("main_parameters", WEIGHTS, patterns=(Pattern.STALE_MAIN_PARAMETERS,), source=STALE, advice=refresh_main_parameters),
    Hypothesis("numbered_alike", WEIGHTS, patterns=(Pattern.NAMED_ALIKE,), source=OFFSETS, advice=mend_ranks),
    Hypothesis("ranks_updated_apart", WEIGHTS_AND_UPDATES, patterns=(Pattern.RANKS_DIFFER,), advice=mend_ranks),
)
CARRIED = ("optimizer_start", "not_restored", "micro_batch_leaves", "step_leaves")
"""What a difference is concluded from that begins later, or is in an update, while a generator's state is on record and acts at once."""


@Hypothesis("random_numbers", STATE, outranks=CARRIED).by(Grounds.TOKENS)
def random_numbers(fault: Fault) -> bool:
    """Other random numbers were drawn."""
    return fault.seen.drawn is not None


@Hypothesis("optimizer_start", STATE, source="Megatron-LM issue 761; zoo").by(Grounds.TOKENS)
def optimizer_start(fault: Fault) -> bool:
    """The optimizers start from other moments."""
    return fault.seen.first.stage is registry.initial_optimizer_state


@Hypothesis("not_restored", STATE, source="the guide, stage 3").by(Grounds.TOKENS)
def not_restored(fault: Fault) -> bool:
    """A step starts from other counts or buffers."""
    return fault.seen.first.stage is registry.state


@Hypothesis("initial_draws", WEIGHTS, source="Megatron-LM 1113758d and 08c37719").by(Grounds.EXTENT)
def initial_draws(fault: Fault) -> bool:
    """Initial weights are as far apart as independent draws of one spread, and neither side loaded them."""
    loaded = any(run.facts.settings.get("load_weights") for run in fault.seen.pair.runs)
    errors = [finding.error for finding in fault.seen.first.beyond if finding.error is not None]
    drawn = sum(abs(error - 2**0.5) < INDEPENDENT for error in errors)
    return fault.seen.first.stage is registry.initial_weights and not loaded and len(errors) > 1 and drawn > MOST_DRAWN * len(errors)


INDEPENDENT, MOST_DRAWN = 0.1, 0.8
"""How far an error of independent draws is from the root of 2, and the part of the tensors that differ which have it."""


@Hypothesis("micro_batch_leaves", STATE, outranks=("step_leaves",)).by(Grounds.TOKENS)
def micro_batch_leaves(fault: Fault) -> bool:
    """Token losses differ in all micro-batches but the first ones."""
    return fault.seen.divergence.rows.rows is AffectedRows.LATER


@Hypothesis("step_leaves", STATE).by(Grounds.TOKENS)
def step_leaves(fault: Fault) -> bool:
    """Token losses, or a term of the loss, differ, and those of an earlier step on equal weights agree."""
    return fault.seen.divergence.later or fault.seen.first.stage is registry.loss_terms
