"""Everything that a comparison shows of a fault: its stages, the wrong tensors, and what is known of the two runs.

Tensors that have nothing left in common with the reference's, or whose gradients are gone, are distinguished from those merely far beyond
their limits."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property

from msgspec import Struct

from align_hooks.comparison.context import ComparisonContext
from align_hooks.comparison.data.random_states import Drawn
from align_hooks.comparison.data.token_losses import LossDivergence
from align_hooks.comparison.diagnosis.backward_boundary import BackwardBoundary, backward_boundary
from align_hooks.comparison.finding import Finding, Unit
from align_hooks.comparison.metrics import model_positions
from align_hooks.comparison.optimizer.formula import ADAMS
from align_hooks.comparison.pair import Pair
from align_hooks.comparison.settings.arguments import ACTS
from align_hooks.comparison.stage_result import FaultLocation, Phase, StageInfo, StageResult, Status, evidence_of
from align_hooks.comparison.stages import registry
from align_hooks.families.registry import routers
from align_hooks.messages import Side
from align_hooks.names.points import LOGITS

TENSORS = (registry.gradients, registry.local_norms)
"""Stages with one finding a tensor, the more specific first."""
PHASES = {
    FaultLocation.FORWARD: Phase.FORWARD,
    FaultLocation.STATE: Phase.FORWARD,
    FaultLocation.GRADIENTS: Phase.BACKWARD,
    FaultLocation.OPTIMIZER: Phase.UPDATE,
    FaultLocation.NEXT_LOSS: Phase.UPDATE,
    FaultLocation.CURVE: Phase.UPDATE,
}
"""Place at which a setting of the model can be the fault, to the phase in which such a setting acts."""
ROUTERS = tuple(f"*.{kind}.weight" for kind in routers())
LEADING = 3
EXPERT = re.compile(r"(?P<layer>.+)\.experts\.(?P<expert>\d+)\.")
LOST = 0.5
"""Relative error from which on a tensor says little of where it comes from."""
LEFT = 0.1
"""Largest part of a gradient that is next to nothing."""


class Observations(Struct, frozen=True, dict=True):
    """What a comparison shows of a fault."""

    first: StageResult
    """The stage that differs first."""
    results: Sequence[StageResult]
    context: ComparisonContext

    @property
    def pair(self) -> Pair:
        """Return the two runs."""
        return self.context.pair

    @cached_property
    def stages(self) -> Mapping[StageInfo, StageResult]:
        """Return how each stage came out."""
        return {result.stage: result for result in self.results}

    def status(self, stage: StageInfo) -> Status:
        """Return how a stage ended."""
        return self.stages[stage].status if stage in self.stages else Status.NOT_COMPARED

    def acting(self, place: FaultLocation) -> list[Finding]:
        """Return the settings that differ and act where a fault is."""
        return [finding for finding in self.context.settings if ACTS.get(finding.name, Phase.FORWARD) is PHASES.get(place)]

    @cached_property
    def divergence(self) -> LossDivergence:
        """Return how token losses first differ, where they differ first of all: how they differ later follows from the first difference."""
        return evidence_of([self.first], LossDivergence)

    @cached_property
    def drawn(self) -> Drawn | None:
        """Return where both runs first drew different random numbers; None unless early enough to be the cause, and of any effect."""
        drawn, steps = self.context.drawn, [finding.step for finding in self.first.beyond if finding.step is not None]
        forward_agrees = self.status(registry.token_losses) is Status.SAME
        if drawn is None or not steps or drawn.step > min(steps):
            return None
        return None if forward_agrees and self.first.stage in (*TENSORS, registry.first_loss) else drawn

    @cached_property
    def own_optimizers(self) -> Mapping[Side, str]:
        """Return the classes of optimizers of the user's own, where the other side's class is a framework's."""
        types = {side: str(run.facts.optimizer.type) for side, run in self.pair.sides if run.facts.optimizer}
        own = {side: kind for side, kind in types.items() if kind not in ADAMS and "adam" in kind.lower()}
        return {} if len(own) == len(types) else own

    @cached_property
    def logits_agree(self) -> bool:
        """Return whether the first loss differs although all points of the first step agree, the logits among them."""
        if self.first.stage is not registry.first_loss or self.status(registry.activations) is not Status.SAME:
            return False
        return any(point.name == LOGITS for point in self.context.points.get(self.pair.first or 0, ()))

    @property
    def values_differ(self) -> bool:
        """Return whether the values of the attention differ in the layer at whose queries or keys the error arises."""
        origin = next(iter(self.stages[registry.activations].origins), None) if registry.activations in self.stages else None
        if origin is None:
            return False
        name = f"{origin.name.rpartition('.self_attn.')[0]}.self_attn.value"
        points = self.context.points.get(origin.finding.step or 0, ())
        return any(point.name == name and point.limit_ratio > 1 for point in points)

    def predicts(self, name: str) -> bool:
        """Return whether a tensor is of a layer that predicts further tokens, behind the layers of the decoder."""
        return 0 < self.pair.layers <= model_positions.place(name).depth < math.inf

    @property
    def tensors(self) -> StageResult | None:
        """Return the most specific stage of tensors that differs."""
        return next((self.stages[stage] for stage in TENSORS if self.status(stage) is Status.DIFFERENT), None)

    @cached_property
    def boundary(self) -> BackwardBoundary | None:
        """Return the boundary of an error in the backward pass; None without one, or where all gradients have something in common."""
        return backward_boundary(self.tensors.findings) if self.tensors is not None and not self.tensors.common else None

    @cached_property
    def wrong(self) -> list[Finding]:
        """Return violations of the tensors, or else of the first stage that differs, the furthest first.

        Tensors with nothing left in common with the reference's come first, by their error: how many limits they are off says how small a
        limit is. Errors of that size have no order where sketches estimate them, to a few tens of percent."""
        wrong = (self.tensors or self.first).beyond
        estimated = self.tensors is not None and self.tensors.stage is registry.gradients and not self.pair.steps("gradients")
        far = (lambda finding: lost(finding) == math.inf) if estimated else lost
        return sorted(wrong, key=far, reverse=True)  # which leaves all others in their order

    @property
    def only_tensor(self) -> str | None:
        """Return the one tensor that differs; None where several do."""
        names = {finding.name for finding in self.wrong}
        return names.pop() if len(names) == 1 else None

    @property
    def gone(self) -> dict[Side, list[str]]:
        """Return the parameters whose gradients are all zeros on one side only.

        An expert's are where no token chose it, so experts are left out unless tokens are known to have chosen alike."""
        if self.tensors is None:
            return {}
        of_sides = {side: [finding.name for finding in self.wrong if gone_from(finding) is side] for side in Side}
        routed = self.status(registry.routing) is Status.SAME
        kept = {side: [name for name in names if routed or not EXPERT.match(name)] for side, names in of_sides.items()}
        return {side: names for side, names in kept.items() if names}

    @property
    def starts_at_routers(self) -> bool:
        """Return whether gradients agree from the output back to experts, and differ from their routers on."""
        return self.boundary is not None and all(is_like(name, ROUTERS) for name in self.boundary.below)

    @property
    def starts_at_prediction(self) -> bool:
        """Return whether gradients differ from the output on, and those of a layer that predicts further tokens most."""
        return self.boundary is not None and not self.boundary.above and self.predicts(self.wrong[0].name)


def lost(finding: Finding) -> float:
    """Return the error of a tensor with nothing left in common with the reference's, infinite without finite error; 0 of any other."""
    error = finding.error
    if finding.unit is not Unit.RELATIVE or error is None:
        return 0.0
    if not math.isfinite(error) or gone_from(finding) is not None:
        return math.inf
    return error if error >= LOST else 0.0


def gone_from(finding: Finding) -> Side | None:
    """Return the side whose tensor is all zeros where the other's is not; None where neither's is."""
    if finding.error == math.inf:
        return Side.REFERENCE
    return Side.CANDIDATE if finding.error == 1 and not finding.scale and finding.direction is None else None


def is_next_to_gone(finding: Finding) -> bool:
    """Return whether at most a tenth of the reference's tensor is left in the candidate's."""
    small = finding.scale is not None and abs(finding.scale) <= LEFT
    return gone_from(finding) is Side.CANDIDATE or (small and finding.error is not None and abs(finding.error - 1) <= LEFT)


def router_of(names: Sequence[str]) -> str | None:
    """Return the router of the experts that differ most, where these are several of one layer, and it differs too."""
    leading = [EXPERT.match(name) for name in names[:LEADING]]
    layers = {found and found["layer"] for found in leading}
    if len(layers) != 1 or len({found and found["expert"] for found in leading}) < 2:
        return None
    router = f"{layers.pop()}.gate.weight"
    return router if router in names else None


def is_like(name: str, patterns: Sequence[str]) -> bool:
    """Return whether a name matches one of some patterns."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)
