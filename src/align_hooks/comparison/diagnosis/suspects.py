"""List what to suspect of a fault.

Suspects of the forward pass are the settings that differ, then the tensors whose gradients are furthest beyond their limits. With limits
measured on noise these are next to the fault; with defaults queries and keys rank too high, which any fault moves most. Where several
experts of one layer lead, their router is suspected too, which gives them their tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from align_hooks.comparison.data.token_losses import AffectedRows
from align_hooks.comparison.diagnosis.observations import LEADING, Observations, router_of
from align_hooks.comparison.finding import Finding, Pattern
from align_hooks.comparison.settings.recorded import FAMILY, listed
from align_hooks.comparison.stage_result import ErrorOrigin, FaultLocation, StageResult, Status
from align_hooks.comparison.stages import registry
from align_hooks.comparison.verdict import Suspect
from align_hooks.messages import Message, Side, message
from align_hooks.record.format.terms import PREDICTION

ONE_SIDED = (AffectedRows.RANK, AffectedRows.MICRO_BATCH, AffectedRows.SOME)
"""Rows that no setting of the model singles out."""
OF_UPDATES = (FaultLocation.OPTIMIZER, FaultLocation.NEXT_LOSS, FaultLocation.CURVE)
"""Places at which an optimizer's own code can be the fault."""


def suspects(seen: Observations, place: FaultLocation) -> tuple[Suspect, ...]:
    """Return what to suspect first: settings, what the stage's findings have in common, then tensors."""
    shown = tuple(map(suspect, seen.first.beyond))
    settings = [suspect(finding) for finding in seen.acting(place)]
    if place is FaultLocation.FORWARD and seen.logits_agree:
        return (Suspect(message("blame.loss_function")), *settings)
    is_state = seen.first.stage in (registry.initial_optimizer_state, registry.state)
    if place is FaultLocation.DATA or seen.first.place is not None or is_state:
        return (*in_common(seen.first), *shown)
    if seen.first.stage is registry.first_updates:
        return (*settings, *in_common(seen.first), *shown)
    if place not in (FaultLocation.FORWARD, FaultLocation.STATE, FaultLocation.NORMALISATION, FaultLocation.GRADIENTS):
        of_users = seen.own_optimizers.items() if place in OF_UPDATES else ()
        optimizers = (Suspect(message("blame.own_optimizer", side=side, type=kind), kind) for side, kind in of_users)
        kept = in_common(seen.first) if seen.first.pattern is Pattern.GRADIENTS_KEPT else ()
        return (*kept, *optimizers, *settings, *shown)
    drawn = [Suspect(seen.drawn.words)] if place is FaultLocation.STATE and seen.drawn is not None else []
    patterns = [*in_common(seen.first), *in_common(seen.tensors), *without_gradient(seen.gone)]
    routed = shown if seen.first.stage in (registry.routing, registry.loss_terms) else ()
    settled = not settings and (seen.divergence.rows.rows in ONE_SIDED or place is FaultLocation.STATE)
    ordered = [*drawn, *patterns, *settings] if settled or seen.divergence.shift is not None else [*settings, *drawn, *patterns]
    ordered += routed
    if place is not FaultLocation.NORMALISATION:
        origins = (Suspect(origin.name, origin.name) for origin in origins_of(seen, place))
        ordered[len(settings) : len(settings)] = [*own_terms(seen, shown), *origins]
    tensors: list[str] = []
    wrong = [finding.name for finding in seen.wrong]
    if place is FaultLocation.GRADIENTS and seen.boundary is not None:
        ordered.append(Suspect(seen.boundary.words))
        own = filter(seen.predicts, wrong) if seen.starts_at_prediction else ()  # what stands below has the model's own loss as well
        tensors += [*own, *seen.boundary.below, *seen.boundary.above]
    if place is not FaultLocation.NORMALISATION and seen.tensors is not None:
        router = router_of(wrong) if place is FaultLocation.FORWARD else None
        tensors += wrong if router is None else [*wrong[: LEADING - 1], router, *wrong[LEADING - 1 :]]
    unique: dict[object, Suspect] = {}
    for suspected in (*ordered, *(Suspect(name, name) for name in tensors)):
        unique.setdefault(suspected.name or suspected.what, suspected)
    return tuple(unique.values()) or shown


def own_terms(seen: Observations, shown: Sequence[Suspect]) -> list[Suspect]:
    """Return the terms of the loss that differ first of all: no value before them does.

    The loss of a predicting layer may differ by the layer, which its points alone clear."""
    cleared = seen.status(registry.activations) is Status.SAME
    return [one for one in shown if seen.first.stage is registry.loss_terms and (cleared or one.name != PREDICTION)]


def origins_of(seen: Observations, place: FaultLocation) -> tuple[ErrorOrigin, ...]:
    """Return the points at which the error arises, in the pass with the fault."""
    stage = registry.activation_gradients if place is FaultLocation.GRADIENTS else registry.activations
    return seen.stages[stage].origins if seen.status(stage) is Status.DIFFERENT else ()


def suspect(finding: Finding) -> Suspect:
    """Return the subject of a finding; for a model of no family, why it is of none."""
    sides = zip(Side, (finding.reference, finding.candidate), strict=True)
    strange = (message("blame.family", side=side, why=value) for side, value in sides if isinstance(value, Message))
    what = next(strange, finding.what) if finding.name == FAMILY else finding.what
    return Suspect(what, finding.name or finding.term or "", finding.pattern)


def in_common(result: StageResult | None) -> tuple[Suspect, ...]:
    """Return a suspect for what the findings of a stage have in common, where that is known."""
    return () if result is None or result.common is None else (Suspect(result.common, pattern=result.pattern),)


def without_gradient(gone: Mapping[Side, Sequence[str]]) -> tuple[Suspect, ...]:
    """Return a suspect for each side's parameters without gradients, under the name of a single one."""
    return tuple(
        Suspect(message("blame.gone", side=side, names=listed(names)), names[0] if len(names) == 1 else "") for side, names in gone.items()
    )
