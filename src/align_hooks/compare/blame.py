"""From the stages to one place and a few suspects: what an expert would say on seeing the ladder.

The first stage that differs is where a fault *shows*, in the order of a training step. Where it *sits* takes a second look: a loss that
differs although every token's loss agrees is a matter of its normalisation, gradients that differ under equal losses one of the backward
pass or the reduction, and with no token losses on record a fault that the mean loss hides may still be one of the forward pass.

Suspects of the forward pass are the settings that differ, then the tensors whose gradients are furthest beyond their limits: with limits
measured on noise these are the tensors next to the fault, with defaults queries and keys stand too far up, which any fault moves most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from align_hooks.compare.sharding import common_factor
from align_hooks.compare.signatures import SIGNATURES, Signature
from align_hooks.compare.token_losses import Where
from align_hooks.compare.verdict import Blame, Finding, Stage, Status

FORWARD, NORMALISATION, GRADIENTS, OPTIMIZER = "forward", "loss normalisation", "reduced gradients", "optimizer"
PLACES = {
    "match": "match",
    "self-check": "self-check",
    "hyper-parameters": "configuration",
    "batches": "data",
    "initial weights": "weights",
    "token losses": FORWARD,
    "clipping": "clipping",
    "weights after an update": OPTIMIZER,
    "first updates": OPTIMIZER,
    "later losses": "next loss",
    "curve": "curve",
    "free-running steps": "next loss",
}
"""Stages that show a fault where it sits."""
TENSORS = ("gradients", "local norms")
"""Stages with one finding a tensor, the more telling first."""
SUSPECTS, CAUSES = 5, 2
MOST = 0.5
"""The part of all tensors that a fault of the forward pass moves at least."""


@dataclass(frozen=True)
class Seen:
    """The stages of a comparison by name, the first that differs, the settings that do, and where along the sequence token losses part."""

    first: Stage
    stages: dict[str, Stage]
    settings: Sequence[Finding]
    where: Where

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


def blame(first: Stage | None, stages: Sequence[Stage], settings: Sequence[Finding], where: Where = Where.NOWHERE) -> Blame | None:
    """Place, suspects and likely causes of the first stage that differs; None where none does."""
    if first is None or first.status is not Status.DIFFERENT:
        return None
    named = {("step-0 loss" if stage.name.startswith("first loss") else stage.name): stage for stage in stages}
    seen = Seen(first, named, settings, where)
    place = place_of(seen)
    culprits = suspects(seen, place)
    told = [f"{one.cause}: {one.look}" for one in causes(seen, place, culprits)]
    if place == "weights" and first.told:
        told.insert(0, first.told)
    if place == FORWARD and seen.status("initial weights") is Status.NOT_COMPARED:
        told.insert(0, "not ruled out: initial weights, which were not compared: record both runs with ALIGN_HOOKS_WEIGHTS=0")
    return Blame(place, culprits[:SUSPECTS], tuple(told))


def place_of(seen: Seen) -> str:
    """Where the fault sits."""
    name = seen.first.name
    if name == "weights after an update" and seen.first.findings and seen.first.findings[0].what.startswith("clip coefficient"):
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
    if seen.first.name == "first updates":
        return (*filter(None, [seen.first.told]), *shown)
    if place not in (FORWARD, NORMALISATION, GRADIENTS):
        return shown
    told = next((stage.told for stage in (seen.first, seen.tensors) if stage is not None and stage.told), "")
    found = [finding.what for finding in seen.settings] if place == FORWARD else []
    found += [told] if told else []
    if place != NORMALISATION and seen.tensors is not None:
        found += [finding.name for finding in seen.tensors.findings if finding.excess > 1]
    return tuple(dict.fromkeys(found)) or shown


def causes(seen: Seen, place: str, culprits: Sequence[str]) -> list[Signature]:
    """The rows of the table that fit, the first ones."""
    return [one for one in SIGNATURES if one.place == place and fits(one, seen, culprits)][:CAUSES]


def fits(signature: Signature, seen: Seen, culprits: Sequence[str]) -> bool:
    """Whether every condition of a signature holds."""
    if signature.where not in (None, seen.where) or signature.unless is seen.where:
        return False
    asked = culprits if signature.only else culprits[:1]
    return not signature.first or (bool(asked) and all(any(fnmatchcase(one, pattern) for pattern in signature.first) for one in asked))
