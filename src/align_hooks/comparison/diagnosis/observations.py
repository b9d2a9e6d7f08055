"""What a comparison shows of a fault: its stages, the tensors that are wrong, the furthest first, and the signs that causes are told by.

Tensors that have nothing left in common with the reference's, or whose gradients are gone, are told from those that are merely far beyond
their limits.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property

from align_hooks.comparison.data.random_states import Drawn
from align_hooks.comparison.data.token_losses import LossDivergence
from align_hooks.comparison.diagnosis.backward_boundary import Frontier, frontier
from align_hooks.comparison.diagnosis.signatures import ROUTERS
from align_hooks.comparison.finding import Finding, Unit
from align_hooks.comparison.metrics import model_positions
from align_hooks.comparison.settings.arguments import ACTS
from align_hooks.comparison.stage_result import FaultLocation, Phase, StageInfo, StageResult, Status
from align_hooks.comparison.stages import registry
from align_hooks.comparison.verdict import Suspect
from align_hooks.messages import Side

TENSORS = (registry.gradients, registry.local_norms)
"""Stages with one finding a tensor, the more telling first."""
PHASES = {
    FaultLocation.FORWARD: Phase.FORWARD,
    FaultLocation.STATE: Phase.FORWARD,
    FaultLocation.GRADIENTS: Phase.BACKWARD,
    FaultLocation.OPTIMIZER: Phase.UPDATE,
    FaultLocation.NEXT_LOSS: Phase.UPDATE,
    FaultLocation.CURVE: Phase.UPDATE,
}
"""Places of which settings of the model can be the fault, and the phase in which these act."""
LEADING = 3
EXPERT = re.compile(r"(?P<layer>.+)\.experts\.(?P<expert>\d+)\.")
LOST = 0.5
"""Relative error from which on a tensor says little of where it comes from."""
LEFT = 0.1
"""The largest part of a gradient that is next to nothing."""


@dataclass(frozen=True)
class Observations:
    """The stages of a comparison, the first that differs, the settings that differ, and how token losses part. ``drawn`` is where both runs
    first drew other random numbers, where that is early enough to be the cause. ``layers`` are those of the decoder; any behind them
    predict further tokens. ``own_optimizers`` are the sides' optimizers whose class no framework has. ``tied``: both models'
    embeddings share their weight with the output layer. ``logits_agree``: the first loss differs, and all points agree, the logits among
    them. ``estimated``: errors of gradients are estimated from sketches, by a few tens of percent."""

    first: StageResult
    stages: dict[StageInfo, StageResult]
    settings: Sequence[Finding]
    divergence: LossDivergence
    drawn: Drawn | None
    layers: int
    own_optimizers: tuple[Suspect, ...] = ()
    tied: bool = False
    logits_agree: bool = False
    estimated: bool = False
    draws: bool = False
    """Whether either model draws random numbers."""

    def status(self, stage: StageInfo) -> Status:
        """How a stage ended."""
        return self.stages[stage].status if stage in self.stages else Status.NOT_COMPARED

    def acting(self, place: FaultLocation) -> list[Finding]:
        """The settings that differ and act where a fault sits."""
        return [finding for finding in self.settings if ACTS.get(finding.name, Phase.FORWARD) is PHASES.get(place)]

    def predicts(self, name: str) -> bool:
        """Whether a tensor is of a layer that predicts further tokens."""
        return 0 < self.layers <= model_positions.place(name).depth < math.inf

    @property
    def same_loss(self) -> bool:
        """Whether the first losses are equal to the bit, which no fault of the forward pass leaves them."""
        findings = self.stages[registry.first_loss].findings if registry.first_loss in self.stages else ()
        return bool(findings) and all(finding.error == 0 for finding in findings)

    @property
    def tensors(self) -> StageResult | None:
        """The most telling stage of tensors that was compared and differs."""
        return next((self.stages[stage] for stage in TENSORS if self.status(stage) is Status.DIFFERENT), None)

    @cached_property
    def frontier(self) -> Frontier | None:
        """The boundary of an error in the backward pass; None where there is none, or what all gradients have in common is known."""
        return frontier(self.tensors.findings) if self.tensors is not None and not self.tensors.common else None

    @cached_property
    def wrong(self) -> list[Finding]:
        """The findings beyond their limits of the tensors, or else of the stage that differs first, the furthest first. Of tensors that
        have nothing left in common with the reference's those come first that are furthest by themselves: how many limits they are off
        says how small a limit is. Estimated errors that large say nothing of which is the furthest."""
        wrong = (self.tensors or self.first).beyond
        estimated = self.estimated and self.tensors is not None and self.tensors.stage is registry.gradients
        far = (lambda finding: lost(finding) == math.inf) if estimated else lost
        return sorted(wrong, key=far, reverse=True)  # which leaves all others in their order

    @property
    def gone(self) -> dict[Side, list[str]]:
        """The parameters whose gradients are all zeros on one side alone. An expert's are where no token chose it, so it is passed over
        where it is not known that tokens chose alike."""
        if self.tensors is None:
            return {}
        of_sides = {side: [finding.name for finding in self.wrong if gone_from(finding) is side] for side in Side}
        routed = self.status(registry.routing) is Status.SAME
        kept = {side: [name for name in names if routed or not EXPERT.match(name)] for side, names in of_sides.items()}
        return {side: names for side, names in kept.items() if names}

    @property
    def starts_at_routers(self) -> bool:
        """Whether gradients agree from the output back to experts, and differ from their routers on."""
        return self.frontier is not None and all(is_like(name, ROUTERS) for name in self.frontier.below)

    @property
    def router_is_lost(self) -> bool:
        """Whether next to nothing is left of the gradients of the routers that differ first."""
        first = [finding for finding in self.wrong if self.frontier is not None and finding.name in self.frontier.below]
        return self.starts_at_routers and bool(first) and all(map(is_next_to_gone, first))

    @cached_property
    def signs(self) -> dict[str, bool]:
        """Which signs the comparison shows."""
        alone = len({finding.name for finding in self.wrong}) == 1
        return {
            "SHIFT": self.divergence.shift is not None,
            "DRAWN": self.drawn is not None,
            "SEVERAL_EXPERTS": router_of([finding.name for finding in self.wrong]) is not None,
            "ROUTER": self.starts_at_routers,
            "ROUTER_LOST": self.router_is_lost,
            "PREDICTED": self.frontier is not None and not self.frontier.above and self.predicts(self.wrong[0].name),
            "BOUNDARY": self.frontier is not None and bool(self.frontier.above),
            "FROM_THE_OUTPUT": self.frontier is not None and not self.frontier.above,
            "ALONE": alone,
            "TIED_ALONE": alone and self.tied,
            "DRAWS": self.draws,
            "SCATTERED": self.frontier is None and not alone and not (self.tensors is not None and self.tensors.common),
            "LOGITS_AGREE": self.logits_agree,
            "OPTIMIZER_STATE": self.first.stage is registry.initial_optimizer_state,
            "NOT_RESTORED": self.first.stage is registry.state,
        }


def lost(finding: Finding) -> float:
    """The error of a tensor that has nothing left in common with the reference's, infinite of what is not finite or is gone; 0 of any
    other."""
    error = finding.error
    if finding.unit is not Unit.RELATIVE or error is None:
        return 0.0
    if not math.isfinite(error) or gone_from(finding) is not None:
        return math.inf
    return error if error >= LOST else 0.0


def gone_from(finding: Finding) -> Side | None:
    """The side whose tensor is all zeros where the other's is not; None where neither's is."""
    if finding.error == math.inf:
        return Side.REFERENCE
    return Side.CANDIDATE if finding.error == 1 and not finding.scale and finding.direction is None else None


def is_next_to_gone(finding: Finding) -> bool:
    """Whether at most a tenth of the reference's tensor is left in the candidate's."""
    small = finding.scale is not None and abs(finding.scale) <= LEFT
    return gone_from(finding) is Side.CANDIDATE or (small and finding.error is not None and abs(finding.error - 1) <= LEFT)


def router_of(names: Sequence[str]) -> str | None:
    """The router of the experts that differ most, where these are several of one layer, and it differs too."""
    leading = [EXPERT.match(name) for name in names[:LEADING]]
    layers = {found and found["layer"] for found in leading}
    if len(layers) != 1 or len({found and found["expert"] for found in leading}) < 2:
        return None
    router = f"{layers.pop()}.gate.weight"
    return router if router in names else None


def is_like(name: str, patterns: Sequence[str]) -> bool:
    """Whether a name matches one of some patterns."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)
