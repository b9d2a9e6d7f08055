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

from align_hooks.compare.frontier import Frontier, frontier
from align_hooks.compare.ladder import Ladder
from align_hooks.compare.random_states import Drawn
from align_hooks.compare.rows import Rows
from align_hooks.compare.sharding import common_factor
from align_hooks.compare.signatures import SIGNATURES, Sign, Signature
from align_hooks.compare.token_losses import Parted
from align_hooks.compare.verdict import Blame, Finding, Quantity, Stage, Status, differing

FORWARD, STATE, NORMALISATION, GRADIENTS, OPTIMIZER = "forward", "state", "loss normalisation", "reduced gradients", "optimizer"
PLACES = {
    "match": "match",
    "self-check": "self-check",
    "hyper-parameters": "configuration",
    "batches": "data",
    "initial weights": "weights",
    "initial optimizer state": STATE,
    "token losses": FORWARD,
    "clipping": "clipping",
    "weights after an update": OPTIMIZER,
    "first updates": OPTIMIZER,
    "later losses": "next loss",
    "curve": "curve",
    "free-running steps": "next loss",
}
"""Stages that show a fault where it sits."""
DRAWN_INTO = ("token losses", "step-0 loss", "local norms", "gradients", "later losses", "curve", "free-running steps")
"""Stages whose numbers depend on what is drawn at random."""
ONE_SIDED = (Rows.RANK, Rows.MICRO_BATCH, Rows.SOME)
"""Rows that no setting of the model singles out."""
TENSORS = ("gradients", "local norms")
"""Stages with one finding a tensor, the more telling first."""
SUSPECTS, CAUSES = 5, 2
MOST = 0.5
"""The part of all tensors that a fault of the forward pass moves at least."""


@dataclass(frozen=True)
class Seen:
    """The stages of a comparison by name, the one that differs first, the settings that do, how token losses part, and, where it is early
    enough to be the cause, where both runs first drew other random numbers."""

    first: Stage
    stages: dict[str, Stage]
    settings: Sequence[Finding]
    parted: Parted
    drawn: Drawn | None

    def status(self, name: str) -> Status:
        """How a stage ended; a first loss has its step in its name."""
        return self.stages[name].status if name in self.stages else Status.NOT_COMPARED

    @property
    def same_loss(self) -> bool:
        """Whether the first losses are equal to the bit, which no fault of the forward pass leaves them."""
        found = self.stages["step-0 loss"].findings if "step-0 loss" in self.stages else ()
        return bool(found) and all(finding.error == 0 for finding in found)

    @property
    def tensors(self) -> Stage | None:
        """The most telling stage of tensors that was compared and differs."""
        return next((self.stages[name] for name in TENSORS if self.status(name) is Status.DIFFERENT), None)

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
            Sign.OPTIMIZER_STATE: self.first.name == "initial optimizer state",
        }


def blame(first: Stage | None, stages: Sequence[Stage], ladder: Ladder) -> Blame | None:
    """Place, suspects and likely causes of the stage that differs first; None where none does."""
    if first is None or first.status is not Status.DIFFERENT:
        return None
    named = {("step-0 loss" if stage.name.startswith("first loss") else stage.name): stage for stage in stages}
    seen_forward = any(stage.name == "token losses" and stage.status is Status.SAME for stage in stages)
    drawn = None if seen_forward and first.name in (*TENSORS, "step-0 loss") else drawn_before(ladder.drawn, first)
    parted = ladder.parted if first.name == "token losses" else Parted()  # how they part later follows from what differs before
    seen = Seen(first, named, ladder.settings, parted, drawn)
    place = place_of(seen)
    culprits = suspects(seen, place)
    told = [f"{one.cause}: {one.look}" for one in causes(seen, place, culprits)]
    if place == "weights" and first.told:
        told.insert(0, first.told)
    if place == FORWARD and seen.status("initial weights") is Status.NOT_COMPARED:
        told.insert(0, "not ruled out: initial weights, which were not compared: record both runs with ALIGN_HOOKS_WEIGHTS=0")
    if place == FORWARD and (unseen := sorted({name for run in ladder.pair.both for name in run.unrecorded_inputs})):
        told.insert(0, f"not ruled out: inputs of the model that are not recorded, {', '.join(unseen)}")
    if later := acting_later(seen):
        told.append(f"acts later, and does not explain this: {', '.join(later)}")
    return Blame(place, culprits[:SUSPECTS], tuple(told))


def drawn_before(drawn: Drawn | None, first: Stage) -> Drawn | None:
    """Where other random numbers were drawn, if not after the step at which a stage differs first."""
    steps = [finding.step for finding in first.findings if finding.excess > 1 and finding.step is not None]
    return drawn if drawn is not None and steps and drawn.step <= min(steps) else None


def acting_later(seen: Seen) -> list[str]:
    """Hyper-parameters that differ and can have had no effect yet where the runs part first."""
    name = "hyper-parameters"
    return [finding.what for finding in differing([*seen.stages.values()], name)] if seen.first.name != name else []


def place_of(seen: Seen) -> str:
    """Where the fault sits."""
    name = seen.first.name
    if seen.drawn is not None and name in DRAWN_INTO and not seen.settings:
        return STATE
    carried = seen.parted.rows.rows is Rows.LATER or (seen.parted.later and seen.parted.rows.rows is not Rows.RANK)
    if name == "token losses" and carried:
        return STATE
    if name == "weights after an update" and seen.first.findings and seen.first.findings[0].quantity is Quantity.CLIP_COEFFICIENT:
        return "clipping"
    if name == "first updates" and not any(seen.status(one) is Status.SAME for one in TENSORS):
        return GRADIENTS  # which nobody saw, and of which updates are made
    if name == "later losses" and not seen.first.told:
        return "curve"
    if name in PLACES:
        return PLACES[name]
    tokens = seen.status("token losses")
    if name not in TENSORS:  # the first loss
        scaled = bool(seen.first.told) or (seen.tensors is not None and common_factor(seen.tensors.findings) is not None)
        return NORMALISATION if tokens is Status.SAME or scaled else FORWARD
    if seen.same_loss:
        return GRADIENTS
    hidden = tokens is Status.NOT_COMPARED and is_of_the_forward_pass(seen.first)
    return FORWARD if hidden or is_of_the_scores(seen.first) else GRADIENTS


def is_of_the_forward_pass(stage: Stage) -> bool:
    """Whether what differs is what a forward pass moves: most tensors, the output layer's among them, and by no common factor."""
    out = [finding for finding in stage.findings if finding.excess > 1]
    last = "lm_head" if any("lm_head" in one.what for one in stage.findings) else "embed_tokens"  # tied
    return len(out) >= MOST * len(stage.findings) and any(last in one.what for one in out) and not stage.told


def is_of_the_scores(stage: Stage) -> bool:
    """Whether what differs most are queries and keys of one layer, the only weights that scores are made of: these faults losses see last,
    where attention is nearly uniform not at all."""
    out = [finding.name for finding in stage.findings if finding.excess > 1][:2]
    found = {tuple(name.rpartition(".self_attn.")[::2]) for name in out}
    return len({layer for layer, _ in found}) == 1 and {name for _, name in found} == {"q_proj.weight", "k_proj.weight"}


def suspects(seen: Seen, place: str) -> tuple[str, ...]:
    """What to suspect first: settings, what the stage's findings have in common, then names."""
    shown = tuple(finding.what for finding in seen.first.findings if finding.excess > 1)
    if seen.first.name in ("first updates", "initial optimizer state"):
        return (*filter(None, [seen.first.told]), *shown)
    if place not in (FORWARD, STATE, NORMALISATION, GRADIENTS):
        return shown
    drawn = [seen.drawn.told] if place == STATE and seen.drawn is not None else []
    told = [stage.told for stage in (seen.first, seen.tensors) if stage is not None and stage.told]
    settings = [finding.what for finding in seen.settings] if place in (FORWARD, STATE) else []
    settled = not settings and (seen.parted.rows.rows in ONE_SIDED or place == STATE)
    found = [*drawn, *told, *settings] if settled or seen.parted.shift is not None else [*settings, *drawn, *told]
    if place == GRADIENTS and seen.frontier is not None:
        found += [seen.frontier.told, *seen.frontier.below, *seen.frontier.above]
    if place != NORMALISATION and seen.tensors is not None:
        found += [finding.name for finding in seen.wrong]
    return tuple(dict.fromkeys(found)) or shown


def causes(seen: Seen, place: str, culprits: Sequence[str]) -> list[Signature]:
    """The rows of the table that fit, the first ones."""
    return [one for one in SIGNATURES if one.place == place and fits(one, seen, culprits)][:CAUSES]


def fits(signature: Signature, seen: Seen, culprits: Sequence[str]) -> bool:
    """Whether every condition of a signature holds."""
    if signature.where not in (None, seen.parted.where) or signature.unless is seen.parted.where:
        return False
    if signature.rows not in (None, seen.parted.rows.rows) or signature.later not in (None, seen.parted.later):
        return False
    if signature.sign is not None and not seen.signs[signature.sign]:
        return False
    asked = culprits if signature.only else culprits[:1]
    return not signature.first or (bool(asked) and all(any(fnmatchcase(one, pattern) for pattern in signature.first) for one in asked))
