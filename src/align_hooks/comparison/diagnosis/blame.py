"""Conclude from the stages where a fault is, and what to suspect.

A fault *shows* in the stage that differs first in training (:mod:`.symptom`). Where it *is* takes more: a loss that differs although
every token's loss agrees was normalised differently; gradients that differ under equal losses diverge in the backward pass or in the
reduction; without token losses the mean loss may hide a fault of the forward pass. A forward pass that agreed before, in an earlier
micro-batch or an earlier step on equal weights, is not wrong itself: some state carries over. Wrong rows of a single rank are that rank's
forward pass, at any step.

Suspects of the forward pass are the settings that differ, then the tensors whose gradients are furthest beyond their limits. With limits
measured on noise these are next to the fault; with defaults queries and keys rank too high, which any fault moves most. Where several
experts of one layer lead, their router is suspected too, which gives them their tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import align_hooks.names.points as points
from align_hooks.comparison.context import ComparisonContext
from align_hooks.comparison.data.token_losses import AffectedRows, LossDivergence
from align_hooks.comparison.diagnosis.observations import LEADING, TENSORS, Observations, is_like, router_of
from align_hooks.comparison.diagnosis.signatures import SIGNATURES, Signature
from align_hooks.comparison.diagnosis.tied import part_that_is_off
from align_hooks.comparison.finding import Finding, Metric, Words
from align_hooks.comparison.optimizer.formula import ADAMS
from align_hooks.comparison.patterns.sharding import common_factor
from align_hooks.comparison.settings.recorded import FAMILY, listed
from align_hooks.comparison.stage_result import ErrorOrigin, FaultLocation, StageInfo, StageResult, Status, differing, evidence_of
from align_hooks.comparison.stages import registry
from align_hooks.comparison.verdict import Blame, Suspect
from align_hooks.messages import Message, Side, message, sentences, terms

ONE_SIDED = (AffectedRows.RANK, AffectedRows.MICRO_BATCH, AffectedRows.SOME)
"""Rows that no setting of the model singles out."""
OF_UPDATES = (FaultLocation.OPTIMIZER, FaultLocation.NEXT_LOSS, FaultLocation.CURVE)
"""Places at which an optimizer's own code can be the fault."""
SUSPECTS, CAUSES = 5, 2
NEAR = 10.0
"""Times a default limit within which an error may be rounding that grew over many points, so that a suspect is a guess."""
MOST = 0.5
"""Part of all tensors that a fault of the forward pass moves at least."""


def blame(first: StageResult | None, stages: Sequence[StageResult], context: ComparisonContext) -> Blame | None:
    """Return place, suspects and likely causes of the stage that differs first; None where none does."""
    if first is None or first.status is not Status.DIFFERENT:
        return None
    forward_agrees = any(result.stage is registry.token_losses and result.status is Status.SAME for result in stages)
    steps = [finding.step for finding in first.beyond if finding.step is not None]
    drawn = context.drawn
    if drawn and (not steps or drawn.step > min(steps) or (forward_agrees and first.stage in (*TENSORS, registry.first_loss))):
        drawn = None  # too late to be the cause, or of no effect
    divergence = evidence_of([first], LossDivergence)  # how they part later follows from the first difference
    tied = all(run.facts.model.get("tie_word_embeddings") for run in context.pair.runs)
    by_stage, own = {result.stage: result for result in stages}, own_optimizers(context)
    seen = Observations(
        *(first, by_stage, context.settings, divergence, drawn, context.pair.layers, own, tied),
        logits_agree=first.stage is registry.first_loss and logits_agree(by_stage, context),
        estimated=not context.pair.steps("gradients"),
        draws=context.pair.draws,
    )
    place = place_of(seen)
    culprits = suspects(seen, place)
    fitting = causes(seen, place, culprits)
    one_sided = lone_token_losses(context) if place is FaultLocation.FORWARD and not seen.signs["LOGITS_AGREE"] else None
    if one_sided is not None:  # a loss function may differ as well, and no tensor tells the two apart
        culprits, fitting = tuple(suspect(finding) for finding in seen.acting(place)), ()
    likely: list[Words] = [first.common] if place is FaultLocation.WEIGHTS and first.common and first.place is None else []
    likely += [one_sided] if one_sided is not None else []
    likely += not_ruled_out(seen, place, context)
    of_a_pass = place in (FaultLocation.FORWARD, FaultLocation.GRADIENTS) and first.place is None
    if of_a_pass and not context.noise.repeats and (times := largest(stages)) < NEAR:
        likely, fitting = [message("blame.measure_first", times=times)], ()  # any other name would be a guess
    for cause in fitting:
        part = part_that_is_off(context) if cause == "tied_weight" else None
        likely.append(sentences(message("blame.cause", cause=message(f"cause.{cause}"), look=message(f"look.{cause}")), part))
    later = [] if first.stage is registry.hyper_parameters else [finding.what for finding in differing(stages, registry.hyper_parameters)]
    if later:  # they can have had no effect yet where the runs part first
        likely.append(message("blame.acts_later", names=terms(later)))
    numbers = place in (FaultLocation.FORWARD, FaultLocation.STATE) or (place is FaultLocation.GRADIENTS and first.common is None)
    side_is_open = numbers and first.place is None and not seen.acting(place) and not seen.signs["LOGITS_AGREE"]
    return Blame(place, culprits[:SUSPECTS], tuple(likely), fitting, side_is_open)


def largest(stages: Sequence[StageResult]) -> float:
    """Return how many times its limit the worst finding of all stages that differ is."""
    return max(finding.limit_ratio for stage in stages if stage.status is Status.DIFFERENT for finding in stage.beyond)


def own_optimizers(context: ComparisonContext) -> tuple[Suspect, ...]:
    """Return optimizers of the user's own class, where the other side's class is a framework's."""
    types = {side: str(run.facts.optimizer.type) for side, run in zip(Side, context.pair.runs, strict=True) if run.facts.optimizer}
    own = {side: kind for side, kind in types.items() if kind not in ADAMS and "adam" in kind.lower()}
    if len(own) == len(types):
        return ()
    return tuple(Suspect(message("blame.own_optimizer", side=side, type=kind), kind) for side, kind in own.items())


def logits_agree(stages: Mapping[StageInfo, StageResult], context: ComparisonContext) -> bool:
    """Return whether all points of the first step agree, and the logits are among them."""
    looked_at = context.points.get(context.pair.first or 0, ())
    compared = stages.get(registry.activations)
    return compared is not None and compared.status is Status.SAME and any(one.name == points.LOGITS for one in looked_at)


def lone_token_losses(context: ComparisonContext) -> Message | None:
    """Say that only one side has token losses at the first step, though both recorded its batch; None otherwise."""
    if context.pair.first not in context.pair.steps("batches"):
        return None
    without = [side for side, batch in zip(Side, context.first_batches, strict=True) if batch.token_losses is None]
    return message("blame.no_token_losses", side=without[0]) if len(without) == 1 else None


def not_ruled_out(seen: Observations, place: FaultLocation, context: ComparisonContext) -> list[Message]:
    """Return other sources of a fault of the forward pass, which no record rules out."""
    inputs = sorted({name for run in context.pair.runs for name in run.unrecorded_inputs})
    unseen = [message("blame.unrecorded_inputs", names=terms(inputs))] if inputs else []
    if seen.status(registry.initial_weights) is Status.NOT_COMPARED:
        unseen.append(message("blame.weights_not_compared"))
    return unseen if place is FaultLocation.FORWARD else []


def place_of(seen: Observations) -> FaultLocation:
    """Return where the fault is."""
    stage, rows = seen.first.stage, seen.divergence.rows.rows
    if seen.drawn is not None and stage.draws and not seen.acting(FaultLocation.FORWARD):
        return FaultLocation.STATE
    carried = rows is AffectedRows.LATER or (seen.divergence.later and rows is not AffectedRows.RANK)
    if stage is registry.token_losses and carried:
        return FaultLocation.STATE
    worst = seen.first.findings[0] if seen.first.findings else None
    if stage is registry.weights_after_update and worst is not None and worst.quantity is Metric.CLIP_COEFFICIENT:
        return FaultLocation.CLIPPING
    if stage is registry.first_updates and not any(seen.status(compared) is Status.SAME for compared in TENSORS):
        return FaultLocation.GRADIENTS  # which nobody saw, and of which updates are made
    if stage is registry.later_losses and not seen.first.common:
        return FaultLocation.CURVE
    decided = seen.first.place or stage.place
    if decided is not None:
        return decided
    if stage in TENSORS:
        return place_of_gradients(seen)
    # the first loss: the fault is beyond the tokens' losses where these agree, or where all gradients share a factor
    scaled = bool(seen.first.common) or (seen.tensors is not None and common_factor(seen.tensors.findings) is not None)
    return FaultLocation.NORMALISATION if seen.status(registry.token_losses) is Status.SAME or scaled else FaultLocation.FORWARD


def place_of_gradients(seen: Observations) -> FaultLocation:
    """Return where a fault is that gradients show."""
    if seen.same_loss:
        return FaultLocation.GRADIENTS
    hidden = seen.status(registry.token_losses) is Status.NOT_COMPARED and is_of_the_forward_pass(seen.first)
    return FaultLocation.FORWARD if hidden or is_of_the_scores(seen.first) else FaultLocation.GRADIENTS


def is_of_the_forward_pass(stage: StageResult) -> bool:
    """Return whether a forward pass explains what differs: most tensors, with the output layer's, and by no common factor."""
    out = stage.beyond
    last = "lm_head" if any("lm_head" in finding.name for finding in stage.findings) else "embed_tokens"  # tied
    return len(out) >= MOST * len(stage.findings) and any(last in finding.name for finding in out) and not stage.common


def is_of_the_scores(stage: StageResult) -> bool:
    """Return whether queries and keys of one layer, of which scores are made, differ most.

    Losses see such faults last, and not at all where attention is nearly uniform."""
    out = [finding.name for finding in stage.beyond[:2]]
    parts = {tuple(name.rpartition(".self_attn.")[::2]) for name in out}
    return len({layer for layer, _ in parts}) == 1 and {name for _, name in parts} == {"q_proj.weight", "k_proj.weight"}


def suspects(seen: Observations, place: FaultLocation) -> tuple[Suspect, ...]:
    """Return what to suspect first: settings, what the stage's findings have in common, then tensors."""
    shown = tuple(map(suspect, seen.first.beyond))
    settings = [suspect(finding) for finding in seen.acting(place)]
    if place is FaultLocation.FORWARD and seen.signs["LOGITS_AGREE"]:
        return (Suspect(message("blame.loss_function")), *settings)
    is_state = seen.first.stage in (registry.initial_optimizer_state, registry.state)
    if place is FaultLocation.DATA or seen.first.place is not None or is_state:
        return (*common(seen.first.common), *shown)
    if seen.first.stage is registry.first_updates:
        return (*settings, *common(seen.first.common), *shown)
    if place not in (FaultLocation.FORWARD, FaultLocation.STATE, FaultLocation.NORMALISATION, FaultLocation.GRADIENTS):
        return (*(seen.own_optimizers if place in OF_UPDATES else ()), *settings, *shown)
    drawn = common(seen.drawn.words) if place is FaultLocation.STATE and seen.drawn is not None else ()
    patterns = [*common(seen.first.common), *common(seen.tensors.common if seen.tensors else None), *without_gradient(seen.gone)]
    routed = shown if seen.first.stage in (registry.routing, registry.loss_terms) else ()
    settled = not settings and (seen.divergence.rows.rows in ONE_SIDED or place is FaultLocation.STATE)
    ordered = [*drawn, *patterns, *settings] if settled or seen.divergence.shift is not None else [*settings, *drawn, *patterns]
    ordered += routed
    if place is not FaultLocation.NORMALISATION:
        ordered[len(settings) : len(settings)] = [Suspect(origin.name, origin.name) for origin in origins_of(seen, place)]
    tensors: list[str] = []
    wrong = [finding.name for finding in seen.wrong]
    if place is FaultLocation.GRADIENTS and seen.frontier is not None:
        ordered += common(seen.frontier.words)
        own = filter(seen.predicts, wrong) if seen.signs["PREDICTED"] else ()  # what stands below has the model's own loss as well
        tensors += [*own, *seen.frontier.below, *seen.frontier.above]
    if place is not FaultLocation.NORMALISATION and seen.tensors is not None:
        router = router_of(wrong) if place is FaultLocation.FORWARD else None
        tensors += wrong if router is None else [*wrong[: LEADING - 1], router, *wrong[LEADING - 1 :]]
    unique: dict[object, Suspect] = {}
    for suspected in (*ordered, *(Suspect(name, name) for name in tensors)):
        unique.setdefault(suspected.name or suspected.what, suspected)
    return tuple(unique.values()) or shown


def origins_of(seen: Observations, place: FaultLocation) -> tuple[ErrorOrigin, ...]:
    """Return the points at which the error arises, in the pass with the fault."""
    stage = registry.activation_gradients if place is FaultLocation.GRADIENTS else registry.activations
    return seen.stages[stage].origins if seen.status(stage) is Status.DIFFERENT else ()


def suspect(finding: Finding) -> Suspect:
    """Return the subject of a finding; for a model of no family, why it is of none."""
    sides = zip(Side, (finding.reference, finding.candidate), strict=True)
    strange = (message("blame.family", side=side, why=value) for side, value in sides if isinstance(value, Message))
    what = next(strange, finding.what) if finding.name == FAMILY else finding.what
    return Suspect(what, finding.name or finding.term or "")


def common(words: Words | None) -> tuple[Suspect, ...]:
    """Return a suspect for what findings have in common, where that is known."""
    return () if words is None else (Suspect(words),)


def without_gradient(gone: Mapping[Side, Sequence[str]]) -> tuple[Suspect, ...]:
    """Return a suspect for each side's parameters without gradients, under the name of a single one."""
    return tuple(
        Suspect(message("blame.gone", side=side, names=listed(names)), names[0] if len(names) == 1 else "") for side, names in gone.items()
    )


def causes(seen: Observations, place: FaultLocation, culprits: Sequence[Suspect]) -> tuple[str, ...]:
    """Return the causes whose signatures fit, the first of the table."""
    kinds = [points.place(origin.name).kind for origin in origins_of(seen, place)]
    of_kinds = [[signature for signature in SIGNATURES if fits(signature, seen, place, culprits, kind)] for kind in kinds or [""]]
    certain = next((found[0].cause for found in of_kinds if found and is_certain(found[0])), None)
    if certain is not None:
        return (certain,)
    fitting = [signature.cause for found in of_kinds for signature in first_of_points(found)]
    return tuple(dict.fromkeys(fitting))[: max(CAUSES, len(kinds))]


def is_certain(signature: Signature) -> bool:
    """Return whether a signature is the cause itself (a setting, a term, words of a stage), not a hint of a tensor or a point."""
    named = any(not pattern.startswith(("*", "model.", "lm_head")) for pattern in signature.first)
    return bool(signature.ids) or named or signature.rows is AffectedRows.DOCUMENTS


def first_of_points(found: Sequence[Signature]) -> list[Signature]:
    """Return the signatures, of those that a kind of point identifies only the first: the others are less specific."""
    of_points = [signature for signature in found if signature.points]
    return [signature for signature in found if not signature.points or signature is of_points[0]]


def fits(signature: Signature, seen: Observations, place: FaultLocation, culprits: Sequence[Suspect], kind: str = "") -> bool:
    """Return whether every condition of a signature holds; ``kind`` is that of the error's point, empty where unknown."""
    if signature.place is not place or (signature.points and not (kind and is_like(kind, signature.points))):
        return False
    of_tensors = not signature.points and any("*" in pattern for pattern in signature.first)
    if kind and of_tensors and place in (FaultLocation.FORWARD, FaultLocation.GRADIENTS):  # a point says more than tensors
        return False
    if signature.where not in (None, seen.divergence.where) or signature.unless is seen.divergence.where:
        return False
    if signature.rows not in (None, seen.divergence.rows.rows) or signature.later not in (None, seen.divergence.later):
        return False
    if signature.sign is not None and not seen.signs[signature.sign]:
        return False
    asked = culprits if signature.only else culprits[:1]
    if signature.ids and not (asked and all(suspect.id in signature.ids for suspect in asked)):
        return False
    named = all(is_like(suspect.name, signature.first) for suspect in asked)
    return not signature.first or (bool(asked) and named)
