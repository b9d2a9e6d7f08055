"""Find how far back an error goes in the backward pass: the last tensors whose gradients agree, and the first that differ.

A backward pass runs from the output to the embedding, and passes its errors on. So where the forward pass is right, gradients that agree
down to a tensor and differ from the next on place the error between both: in a part without tensors of its own (an attention core, an
activation, a residual), or at a tensor whose own gradient is right (a norm)."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from align_hooks.comparison.finding import Finding
from align_hooks.comparison.metrics.model_positions import place
from align_hooks.comparison.settings.recorded import listed
from align_hooks.families.registry import levels
from align_hooks.messages import Message, message

LEVEL = {kind: number for number, kinds in enumerate(levels()) for kind in kinds}
"""Kind of tensor to its place in a forward pass; those of one level are side by side, so that none passes its error to another."""
MOST = 0.8
"""Part of the tensors behind the boundary that must differ. An expert that no token chose has no gradient on either side."""


class BackwardBoundary(Struct, frozen=True):
    """Where gradients stop agreeing."""

    above: tuple[str, ...]
    """The last tensors that agree; empty where the error begins at the output."""
    below: tuple[str, ...]
    """The first tensors that differ."""

    @property
    def words(self) -> Message:
        """Return the boundary in words."""
        below = listed(self.below)
        if not self.above:
            return message("backward_boundary.from_the_output", below=below)
        return message("backward_boundary.boundary", above=listed(self.above), below=below)


def backward_boundary(findings: Sequence[Finding]) -> BackwardBoundary | None:
    """Return the boundary in the gradients, or their norms, of the earliest step that differs; None where differences are scattered."""
    step = min((finding.step for finding in findings if finding.limit_ratio > 1 and finding.step is not None), default=None)
    levels: dict[tuple[float, int], list[Finding]] = {}
    for finding in findings:
        if finding.step == step and (where := level(finding.name)) is not None:
            levels.setdefault(where, []).append(finding)
    backwards = [levels[where] for where in sorted(levels, reverse=True)]
    wrong = [[finding.name for finding in row if finding.limit_ratio > 1] for row in backwards]
    first = next((index for index, names in enumerate(wrong) if names), None)
    if first is None:
        return None
    behind, wrong_behind = (sum(map(len, rows[first + 1 :])) for rows in (backwards, wrong))
    if not wrong_behind or wrong_behind < MOST * behind:
        return None
    return BackwardBoundary(tuple(finding.name for finding in backwards[first - 1]) if first else (), tuple(wrong[first]))


def level(name: str) -> tuple[float, int] | None:
    """Return layer and level of a tensor; None for a kind that has no known place in a forward pass."""
    where = place(name)
    kind = where.kind.partition("#")[0].removesuffix(".bias").removesuffix(".weight")
    return (where.depth, LEVEL[kind]) if kind in LEVEL else None
