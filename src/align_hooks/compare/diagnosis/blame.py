"""From the stages to one place and a few suspects: what an expert would say on seeing the ladder.

The stage that differs first in training (:mod:`.symptom`) is where a fault *shows*. Where it *sits* takes a second look: a loss that
differs although every token's loss agrees is a matter of its normalisation, gradients that differ under equal losses one of the backward
pass or the reduction, and with no token losses on record a fault that the mean loss hides may still be one of the forward pass. A forward
pass that agreed before, in an earlier micro-batch or an earlier step on equal weights, is not wrong itself: something carries over. One
rank's rows alone are that rank's forward pass, whenever they part.

Suspects of the forward pass are the settings that differ, then the tensors whose gradients are furthest beyond their limits: with limits
measured on noise these are the tensors next to the fault, with defaults queries and keys stand too far up, which any fault moves most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property

from align_hooks.compare.diagnosis.signatures import SIGNATURES, Cause, Sign, Signature
from align_hooks.compare.frontier import Frontier, frontier
from align_hooks.compare.ladder import Ladder
from align_hooks.compare.random_states import Drawn
from align_hooks.compare.rows import Rows
from align_hooks.compare.sharding import common_factor
from align_hooks.compare.stages.first_loss import first_loss
from align_hooks.compare.stages.first_updates import first_updates
from align_hooks.compare.stages.gradients import gradients
from align_hooks.compare.stages.hyper_parameters import hyper_parameters
from align_hooks.compare.stages.initial_optimizer_state import initial_optimizer_state
from align_hooks.compare.stages.initial_weights import initial_weights
from align_hooks.compare.stages.later_losses import later_losses
from align_hooks.compare.stages.local_norms import local_norms
from align_hooks.compare.stages.stage import Stage
from align_hooks.compare.stages.token_losses import token_losses
from align_hooks.compare.stages.weights_after_update import weights_after_update
from align_hooks.compare.token_losses import Parted
from align_hooks.compare.verdict import Blame, Finding, Place, Quantity, StageResult, Status, Suspect, Words, differing
from align_hooks.messages import Message, message, terms

ONE_SIDED = (Rows.RANK, Rows.MICRO_BATCH, Rows.SOME)
"""Rows that no setting of the model singles out."""
TENSORS = (gradients, local_norms)
"""Stages with one finding a tensor, the more telling first."""
SUSPECTS, CAUSES = 5, 2
MOST = 0.5
"""The part of all tensors that a fault of the forward pass moves at least."""


@dataclass(frozen=True)
class Seen:
    """The stages of a comparison by name, the one that differs first, the settings that do, how token losses part, and, where it is early
    enough to be the cause, where both runs first drew other random numbers."""

    first: StageResult
    stages: dict[Stage, StageResult]
    settings: Sequence[Finding]
    parted: Parted
    drawn: Drawn | None

    def status(self, stage: Stage) -> Status:
        """How a stage ended."""
        return self.stages[stage].status if stage in self.stages else Status.NOT_COMPARED

    @property
    def same_loss(self) -> bool:
        """Whether the first losses are equal to the bit, which no fault of the forward pass leaves them."""
        found = self.stages[first_loss].findings if first_loss in self.stages else ()
        return bool(found) and all(finding.error == 0 for finding in found)

    @property
    def tensors(self) -> StageResult | None:
        """The most telling stage of tensors that was compared and differs."""
        return next((self.stages[stage] for stage in TENSORS if self.status(stage) is Status.DIFFERENT), None)

    @cached_property
    def frontier(self) -> Frontier | None:
        """The boundary of an error in the backward pass; None where there is none, or what all gradients have in common is known."""
        return frontier(self.tensors.findings) if self.tensors is not None and not self.tensors.told else None

    @property
    def wrong(self) -> list[Finding]:
        """What is beyond its limit of the tensors, or else of the stage that differs first."""
        return [finding for finding in (self.tensors or self.first).findings if finding.excess > 1]

    @cached_property
    def signs(self) -> dict[Sign, bool]:
        """Which signs the comparison shows."""
        alone = len({finding.name for finding in self.wrong}) == 1
        return {
            Sign.SHIFT: self.parted.shift is not None,
            Sign.DRAWN: self.drawn is not None,
            Sign.BOUNDARY: self.frontier is not None and bool(self.frontier.above),
            Sign.FROM_THE_OUTPUT: self.frontier is not None and not self.frontier.above,
            Sign.ALONE: alone,
            Sign.SCATTERED: self.frontier is None and not alone and not (self.tensors is not None and self.tensors.told),
            Sign.OPTIMIZER_STATE: self.first.stage is initial_optimizer_state,
        }


def blame(first: StageResult | None, stages: Sequence[StageResult], ladder: Ladder) -> Blame | None:
    """Place, suspects and likely causes of the stage that differs first; None where none does."""
    if first is None or first.status is not Status.DIFFERENT:
        return None
    seen_forward = any(one.stage is token_losses and one.status is Status.SAME for one in stages)
    drawn = None if seen_forward and first.stage in (*TENSORS, first_loss) else drawn_before(ladder.drawn, first)
    parted = ladder.parted if first.stage is token_losses else Parted()  # how they part later follows from what differs before
    seen = Seen(first, {one.stage: one for one in stages}, ladder.settings, parted, drawn)
    place = place_of(seen)
    culprits = suspects(seen, place)
    found = causes(seen, place, culprits)
    likely: list[Words] = [*not_ruled_out(seen, place, ladder), *map(in_words, found)]
    if place is Place.WEIGHTS and first.told:
        likely.insert(0, first.told)
    if later := acting_later(seen):
        likely.append(message("blame.acts_later", names=terms(later)))
    return Blame(place, culprits[:SUSPECTS], tuple(likely), found)


def in_words(cause: Cause) -> Message:
    """A cause, with what to look at."""
    return message("blame.cause", cause=cause, look=cause.look)


def not_ruled_out(seen: Seen, place: Place, ladder: Ladder) -> list[Message]:
    """What a fault of the forward pass may be as well, because no record says that it is not."""
    if place is not Place.FORWARD:
        return []
    inputs = sorted({name for run in ladder.pair.both for name in run.unrecorded_inputs})
    unseen = [message("blame.unrecorded_inputs", names=terms(inputs))] if inputs else []
    if seen.status(initial_weights) is Status.NOT_COMPARED:
        unseen.append(message("blame.weights_not_compared"))
    return unseen


def drawn_before(drawn: Drawn | None, first: StageResult) -> Drawn | None:
    """Where other random numbers were drawn, if not after the step at which a stage differs first."""
    steps = [finding.step for finding in first.findings if finding.excess > 1 and finding.step is not None]
    return drawn if drawn is not None and steps and drawn.step <= min(steps) else None


def acting_later(seen: Seen) -> list[Words | str]:
    """Hyper-parameters that differ and can have had no effect yet where the runs part first."""
    if seen.first.stage is hyper_parameters:
        return []
    return [finding.what for finding in differing([*seen.stages.values()], hyper_parameters)]


def place_of(seen: Seen) -> Place:
    """Where the fault sits."""
    stage = seen.first.stage
    if seen.drawn is not None and stage.draws and not seen.settings:
        return Place.STATE
    carried = seen.parted.rows.rows is Rows.LATER or (seen.parted.later and seen.parted.rows.rows is not Rows.RANK)
    if stage is token_losses and carried:
        return Place.STATE
    worst = seen.first.findings[0] if seen.first.findings else None
    if stage is weights_after_update and worst is not None and worst.quantity is Quantity.CLIP_COEFFICIENT:
        return Place.CLIPPING
    if stage is first_updates and not any(seen.status(one) is Status.SAME for one in TENSORS):
        return Place.GRADIENTS  # which nobody saw, and of which updates are made
    if stage is later_losses and not seen.first.told:
        return Place.CURVE
    if stage.place is not None:
        return stage.place
    return place_of_the_first_loss(seen) if stage not in TENSORS else place_of_gradients(seen)


def place_of_the_first_loss(seen: Seen) -> Place:
    """Where a fault sits that the first loss shows: beyond the tokens' losses, where these agree or all gradients share a factor."""
    scaled = bool(seen.first.told) or (seen.tensors is not None and common_factor(seen.tensors.findings) is not None)
    return Place.NORMALISATION if seen.status(token_losses) is Status.SAME or scaled else Place.FORWARD


def place_of_gradients(seen: Seen) -> Place:
    """Where a fault sits that gradients show."""
    if seen.same_loss:
        return Place.GRADIENTS
    hidden = seen.status(token_losses) is Status.NOT_COMPARED and is_of_the_forward_pass(seen.first)
    return Place.FORWARD if hidden or is_of_the_scores(seen.first) else Place.GRADIENTS


def is_of_the_forward_pass(stage: StageResult) -> bool:
    """Whether what differs is what a forward pass moves: most tensors, the output layer's among them, and by no common factor."""
    out = [finding for finding in stage.findings if finding.excess > 1]
    last = "lm_head" if any("lm_head" in finding.name for finding in stage.findings) else "embed_tokens"  # tied
    return len(out) >= MOST * len(stage.findings) and any(last in finding.name for finding in out) and not stage.told


def is_of_the_scores(stage: StageResult) -> bool:
    """Whether what differs most are queries and keys of one layer, the only weights that scores are made of: these faults losses see last,
    where attention is nearly uniform not at all."""
    out = [finding.name for finding in stage.findings if finding.excess > 1][:2]
    found = {tuple(name.rpartition(".self_attn.")[::2]) for name in out}
    return len({layer for layer, _ in found}) == 1 and {name for _, name in found} == {"q_proj.weight", "k_proj.weight"}


def suspects(seen: Seen, place: Place) -> tuple[Suspect, ...]:
    """What to suspect first: settings, what the stage's findings have in common, then tensors."""
    shown = tuple(suspect(finding) for finding in seen.first.findings if finding.excess > 1)
    if seen.first.stage in (first_updates, initial_optimizer_state):
        return (*common(seen.first.told), *shown)
    if place not in (Place.FORWARD, Place.STATE, Place.NORMALISATION, Place.GRADIENTS):
        return shown
    drawn = common(seen.drawn.told) if place is Place.STATE and seen.drawn is not None else ()
    told = [one for stage in (seen.first, seen.tensors) if stage is not None for one in common(stage.told)]
    settings = [suspect(finding) for finding in seen.settings] if place in (Place.FORWARD, Place.STATE) else []
    settled = not settings and (seen.parted.rows.rows in ONE_SIDED or place is Place.STATE)
    listed = [*drawn, *told, *settings] if settled or seen.parted.shift is not None else [*settings, *drawn, *told]
    if place is Place.GRADIENTS and seen.frontier is not None:
        listed += [*common(seen.frontier.told), *map(tensor, (*seen.frontier.below, *seen.frontier.above))]
    if place is not Place.NORMALISATION and seen.tensors is not None:
        listed += [tensor(finding.name) for finding in seen.wrong]
    unlike: dict[object, Suspect] = {}
    for one in listed:
        unlike.setdefault(one.name or one.what, one)
    return tuple(unlike.values()) or shown


def suspect(finding: Finding) -> Suspect:
    """What a finding is of, as it stands in its stage."""
    return Suspect(finding.what, finding.name or finding.term or "")


def tensor(name: str) -> Suspect:
    """A tensor alone."""
    return Suspect(name, name)


def common(told: Words | None) -> tuple[Suspect, ...]:
    """What findings have in common, where that is known."""
    return () if told is None else (Suspect(told),)


def causes(seen: Seen, place: Place, culprits: Sequence[Suspect]) -> tuple[Cause, ...]:
    """The causes whose signatures fit, the first ones of the table."""
    fitting = [signature.cause for signature in SIGNATURES if signature.place is place and fits(signature, seen, culprits)]
    return tuple(dict.fromkeys(fitting))[:CAUSES]


def fits(signature: Signature, seen: Seen, culprits: Sequence[Suspect]) -> bool:
    """Whether every condition of a signature holds."""
    if signature.where not in (None, seen.parted.where) or signature.unless is seen.parted.where:
        return False
    if signature.rows not in (None, seen.parted.rows.rows) or signature.later not in (None, seen.parted.later):
        return False
    if signature.sign is not None and not seen.signs[signature.sign]:
        return False
    asked = culprits if signature.only else culprits[:1]
    if signature.ids and not (asked and all(suspect.id in signature.ids for suspect in asked)):
        return False
    return not signature.first or (bool(asked) and all(any(fnmatchcase(one.name, pattern) for pattern in signature.first) for one in asked))
