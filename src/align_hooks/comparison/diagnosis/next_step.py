"""Choose what to do after a verdict, with its commands (:mod:`.commands`).

The likeliest cause may say it itself; else the place of the fault does, and what both runs have on record."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from align_hooks.comparison.context import ComparisonContext
from align_hooks.comparison.data.token_losses import AffectedRows, LossDivergence
from align_hooks.comparison.diagnosis.advice import AGAIN, BOTH, Advice, Situation, mend, store
from align_hooks.comparison.diagnosis.commands import COMMANDS, can_be_without_draws, commands_of, updates_to_inject
from align_hooks.comparison.diagnosis.hypotheses.registry import BY_CAUSE
from align_hooks.comparison.finding import Term, Words
from align_hooks.comparison.settings.recorded import MICRO_BATCH, HyperParameter, can_be_given, listed
from align_hooks.comparison.stage_result import FaultLocation, Reason, StageResult, Status, differing, evidence_of, first_different
from align_hooks.comparison.stages import registry
from align_hooks.comparison.verdict import Blame, Trial, Verdict
from align_hooks.messages import Side, message, with_commands
from align_hooks.record.format.ending import End
from align_hooks.record.format.state import BUFFER

SETTING_OF_ROWS = {"torch": "next.rows_of_megatron", "ms": "next.rows_of_mindformers"}
"""Each side's setting for the rows of its embedding, with padding."""


def next_step(
    verdict: Verdict, blame: Blame | None, context: ComparisonContext, stages: Sequence[StageResult]
) -> tuple[Words, Trial | None]:
    """Return what to do after a comparison, with its commands, and what of it needs nobody's hand."""
    advice = AFTER[verdict](Situation(context, stages, blame))
    lines = commands_of(advice.commands, context, stages, without_draws=advice.without_draws)
    is_trial = not advice.by_hand and any(name.startswith("compare_") for name in advice.commands)
    trial = Trial(advice.words, tuple(lines), advice.decides) if is_trial else None
    return with_commands(advice.words, *lines) if lines else advice.words, trial


# ---- diverged


def after_diverged(now: Situation) -> Advice:
    """Return what to do where the runs differ."""
    if now.pair.dumped:
        return Advice(message("next.record_dumped"), BOTH)
    place, causes = (now.blame.place, now.blame.causes) if now.blame is not None else (None, ())
    of_cause = BY_CAUSE[causes[0]].advice if causes else None
    if of_cause is not None and (advice := of_cause(now)) is not None:
        return advice
    found = of_settings(now) if place is not FaultLocation.CONFIGURATION else None
    if found is None and place in AT_PLACE:
        found = AT_PLACE[place](now)
    return found or mend(now)


def set_alike(now: Situation) -> Advice:
    """Return that settings are to be set alike, by ``check`` where it knows the arguments."""
    if now.has_arguments:
        return Advice(message("next.set_as_told", setting=now.settings), ("check",))
    return Advice(message("next.set_alike", setting=now.settings))


def make_of_the_family(now: Situation, stranger: Side) -> Advice:
    """Return that a side's model is to be made one of a family."""
    if now.has_arguments:
        return Advice(message("next.make_as_told", stranger=stranger), ("check",))
    return Advice(message("next.make_of_the_family", stranger=stranger))


def of_settings(now: Situation) -> Advice | None:
    """Return what to do where a setting of the model is suspected."""
    if now.suspects[:1] and now.suspects[0].name == MICRO_BATCH and not can_be_given(MICRO_BATCH, now.pair.candidate.facts):
        return Advice(message("next.whole_batch", at_once=now.pair.candidate.facts.training.micro_batch_size))
    if not {suspect.name for suspect in now.suspects} & {finding.name for finding in now.context.settings}:
        return None
    return make_of_the_family(now, now.unrecognised) if now.unrecognised is not None else set_alike(now)


def at_configuration(now: Situation) -> Advice:
    """Return what to do where the optimizers' settings differ: some parameters may decay on one side only, and nothing else differ."""
    found = differing(now.stages, registry.hyper_parameters)
    one = found[0] if len(found) == 1 else None
    if one is None or one.name != HyperParameter.WEIGHT_DECAY or 0 not in (one.reference, one.candidate) or not one.names:
        return set_alike(now)
    decayed = Side.CANDIDATE if one.reference == 0 else Side.REFERENCE
    return Advice(message("next.group_alike", names=listed(one.names), decayed=decayed))


def at_data(now: Situation) -> Advice | None:
    """Return what to do where batches differ."""
    if not now.is_replayable:
        return None
    if now.candidate_used("replay_batches"):
        return Advice(message("next.replay_the_reference_batches"), AGAIN, decides=message("decides.other_batches"))
    return Advice(message("next.replay_batches"), AGAIN, decides=message("decides.own_data"))


def at_weights(now: Situation) -> Advice | None:
    """Return what to do where the initial weights differ."""
    if not now.is_replayable:
        return None
    if not now.candidate_used("load_weights"):
        return Advice(message("next.replay_weights"), AGAIN, decides=message("decides.own_weights"))
    return Advice(message("next.mend_conversion", suspect=now.suspect), AGAIN, decides=message("decides.conversion"))


def without_draws(now: Situation) -> Advice:
    """Return that what draws random numbers is to be left out, by commands that do so where both are Megatron-LM's."""
    if all(can_be_without_draws(run) for run in now.pair.runs):
        return Advice(message("next.without_draws"), BOTH, without_draws=True, decides=message("decides.draws"))
    return Advice(message("next.without_dropout"), BOTH, by_hand=True)


def at_state(now: Situation) -> Advice:
    """Return what to do where a state carries over."""
    if now.is_replayable and now.first > 0:
        return Advice(message("next.look_at_checkpoint"), ("resumed", "compare_fed"), decides=message("decides.place_in_data"))
    if now.is_replayable and now.pair.draws:
        return without_draws(now)
    first = first_different(now.stages)
    if first is not None and first.stage is registry.state and not any(finding.name.startswith(BUFFER) for finding in first.findings):
        # a count, which no forward pass shows; buffers have digests
        return Advice(message("next.read_count", suspect=now.suspect))
    if now.is_arbitrable:
        return Advice(message("next.whose_is_carried", suspect=now.suspect), ("arbitrate",))
    carried = Advice(message("next.read_carried", suspect=now.suspect))
    return now.without_arbitrate(carried) or carried


def at_forward(now: Situation) -> Advice | None:
    """Return what to do where the forward pass differs."""
    if now.is_replayable and evidence_of(now.stages, LossDivergence).rows.rows is AffectedRows.RANK:
        return Advice(message("next.without_overlap"), AGAIN, by_hand=True)
    if now.is_replayable and now.pair.draws:
        return without_draws(now)
    if (found := in_a_pass(now)) is not None:
        return found
    if not now.has_first("weights", "gradients"):
        return Advice(message("next.store_first_step"), ("first_step", "compare_again"))
    return None


def at_normalisation(now: Situation) -> Advice:
    """Return what to do where the loss is normalised differently."""
    if any(result.common and result.status is Status.DIFFERENT for result in now.stages):
        return Advice(message("next.look_at_divisors"))
    return Advice(message("next.one_micro_batch"))


def at_gradients(now: Situation) -> Advice | None:
    """Return what to do where the backward pass or the reduction differs."""
    if now.is_replayable and now.pair.draws:
        return without_draws(now)
    if now.is_replayable and now.pair.candidate.world_size > 1:
        each = now.pair.reference.world_size > 1  # what ranks average or weigh may differ between one rank and several without a fault
        return Advice(message("next.one_rank_each" if each else "next.one_rank"), BOTH if each else AGAIN, by_hand=True)
    return in_a_pass(now)


def in_a_pass(now: Situation) -> Advice | None:
    """Return how a fault of a pass is narrowed down: by points, by measured limits, by a third implementation."""
    explained = now.blame is not None and any(BY_CAUSE[cause].is_of_one_tensor for cause in now.blame.causes)
    if now.is_replayable and not now.has_first("activations") and not explained:
        return Advice(message("next.record_points"), ("points_of_reference", "points_of_candidate", "compare_again"))
    if now.is_replayable and not now.context.noise.repeats and not now.is_clear:
        return Advice(message("next.narrow_down"), ("noise", "compare_with_noise"))
    if now.is_arbitrable:
        return Advice(message("next.third_opinion", suspect=now.suspect), ("arbitrate",))
    return now.without_arbitrate(mend(now))


def at_curve(now: Situation) -> Advice | None:
    """Return what to do where only the course of the run differs."""
    return Advice(message("next.bisect"), ("bisect", "ladder")) if differing(now.stages, registry.band) else at_updates(now)


def at_updates(now: Situation) -> Advice | None:
    """Return what to do where updates differ."""
    if now.suspects[:1] and now.suspects[0].name in Term:
        return Advice(message("next.mend_term", term=Term(now.suspects[0].name)))
    if now.is_injected:
        return Advice(message("next.read_optimizer")) if now.is_replayable else None
    updates, decides = updates_to_inject(now.pair, now.stages), message("decides.own_gradients")
    if now.is_replayable and set(updates) <= set(now.pair.reference.gradient_steps()):
        return Advice(message("next.inject_gradients", count=len(updates)), ("injected", "compare_fed"), decides=decides)
    return Advice(message("next.store_updates"), ("injectable", "injected_again", "compare_again"), decides=decides)


AT_PLACE: dict[FaultLocation, Callable[[Situation], Advice | None]] = {
    FaultLocation.CONFIGURATION: at_configuration,
    FaultLocation.DATA: at_data,
    FaultLocation.WEIGHTS: at_weights,
    FaultLocation.STATE: at_state,
    FaultLocation.FORWARD: at_forward,
    FaultLocation.NORMALISATION: at_normalisation,
    FaultLocation.GRADIENTS: at_gradients,
    FaultLocation.CLIPPING: at_updates,
    FaultLocation.OPTIMIZER: at_updates,
    FaultLocation.NEXT_LOSS: at_updates,
    FaultLocation.CURVE: at_curve,
    FaultLocation.SELF_CHECK: lambda now: Advice(message("next.read_self_check"), ("show_contradictions",)),
}
"""Place of a fault to what to do; its function returns None where neither a record nor the place says anything."""


# ---- other verdicts


def after_inconclusive(now: Situation) -> Advice:
    """Return what to do where neither agreement nor a fault is shown."""
    if any(result.stage is registry.routing and result.open for result in now.stages):
        chosen = now.first in now.pair.reference.steps_of("routing") and not now.candidate_used("replay_routing")
        if chosen and now.is_replayable:
            return Advice(message("next.replay_routing"), ("routed", "compare_fed"))
        return Advice(message("next.record_routing"), ("routable", "compare_again"))
    if now.unrecognised is not None:
        return make_of_the_family(now, now.unrecognised)
    if now.context.settings:
        return set_alike(now)
    if now.context.noise.repeats and now.is_half:
        return Advice(message("next.rehearse"))
    if now.context.noise.repeats:
        return Advice(message("next.measure_more_noise", repeat=COMMANDS["repeat"]))
    if now.is_replayable:
        return Advice(message("next.measure_noise"), ("noise", "compare_with_noise"))
    if now.pair.converted and differing(now.stages, registry.hyper_parameters):
        return Advice(message("next.set_alike_and_record_both", setting=now.settings), BOTH, by_hand=True)
    return Advice(message("next.record_both"), BOTH) if now.pair.converted else store()


def after_not_comparable(now: Situation) -> Advice:
    """Return what to do where the runs cannot be compared."""
    rows, side = [run.facts.padded_vocabulary for run in now.pair.runs], str(now.pair.candidate.facts.side)
    padding = now.stopped_for(Reason.OTHER_PADDING)
    other_rows = padding and None not in rows and rows[0] != rows[1]
    if padding and now.context.settings and not other_rows:
        return Advice(message("next.set_alike", setting=now.settings))
    if any(ending.end is End.REFUSED for ending in now.pair.candidate.endings.values()):
        return Advice(message("next.refused"))
    if not (now.pair.reference.steps and now.pair.candidate.steps):
        return Advice(message("next.see_why"), ("show",))
    if other_rows:
        of_rows = message(SETTING_OF_ROWS[side], rows=rows[0]) if side in SETTING_OF_ROWS else ""
        return Advice(message("next.give_rows", rows=rows[0], setting_of_rows=of_rows))
    if now.stopped_for(Reason.OTHER_MODEL):
        return Advice(message("next.same_sizes"), ("check",))
    for side, run in now.pair.sides:
        for reason in run.unseen[:1]:  # with its way out
            return Advice(message("next.show_unseen", way_out=message("next.unseen_of", side=side, why=reason.words)))
    if now.stopped_for(Reason.MASK_UNSEEN):
        return Advice(message("next.show_mask"))
    if now.stopped_for(Reason.LOSS_NORMALISATION):
        return Advice(message("next.loss_per_token"))
    return Advice(message("next.record_from_reference"), AGAIN) if now.is_replayable else store()


def after_aligned(now: Situation) -> Advice:
    """Return how an agreement is made to say more."""
    if now.pair.is_itself:
        return Advice(message("next.two_runs"), ("compare",))
    if now.pair.dumped:
        return Advice(message("next.record_beside_dump"), ("beside_dump", "compare_again"))
    compared = {result.stage for result in now.stages if result.status is not Status.NOT_COMPARED}
    if not compared & {registry.local_norms, registry.gradients}:
        return Advice(message("next.record_more"), ("norms_and_sketches", "compare_again"))
    return Advice(message("next.your_layout") if now.is_half else message("next.your_precision"))


AFTER = {
    Verdict.DIVERGED: after_diverged,
    Verdict.INCONCLUSIVE: after_inconclusive,
    Verdict.NOT_COMPARABLE: after_not_comparable,
    Verdict.ALIGNED: after_aligned,
}
