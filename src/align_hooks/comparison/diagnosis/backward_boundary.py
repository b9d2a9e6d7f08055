"""How far back an error goes in the backward pass: the last tensors whose gradients agree, and the first that differ.

A backward pass runs from the output to the embedding, and an error that it makes on the way is handed on to everything before. So where the
forward pass is right, gradients that agree down to a tensor and differ from the next on place the error between the two: in the backward
pass of what stands there. That may hold no tensor of its own (an attention core, an activation, a residual), or a tensor whose own gradient
is right (a norm).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from align_hooks.comparison.finding import Finding
from align_hooks.comparison.metrics.model_positions import place
from align_hooks.comparison.settings.recorded import listed
from align_hooks.families.registry import levels
from align_hooks.messages import Message, message

LEVEL = {kind: number for number, kinds in enumerate(levels()) for kind in kinds}
"""Kinds of tensors to their place in a forward pass; those of one level stand side by side, so that none hands its error to another."""
MOST = 0.8
"""The part of the tensors behind the boundary that must differ. An expert that no token chose has no gradient on either side."""


@dataclass(frozen=True, slots=True)
class Frontier:
    """``above`` are the last tensors that agree, empty where the error comes in at the output; ``below`` the first that differ."""

    above: tuple[str, ...]
    below: tuple[str, ...]

    @property
    def words(self) -> Message:
        """The same in words."""
        below = listed(self.below)
        if not self.above:
            return message("frontier.from_the_output", below=below)
        return message("frontier.boundary", above=listed(self.above), below=below)


def frontier(findings: Sequence[Finding]) -> Frontier | None:
    """The boundary in the gradients, or their norms, of the earliest step that differs; None where a single tensor or scattered ones do."""
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
    return Frontier(tuple(finding.name for finding in backwards[first - 1]) if first else (), tuple(wrong[first]))


def level(name: str) -> tuple[float, int] | None:
    """Layer and level of a tensor; None for a kind that has no known place in a forward pass."""
    where = place(name)
    kind = where.kind.partition("#")[0].removesuffix(".bias").removesuffix(".weight")
    return (where.depth, LEVEL[kind]) if kind in LEVEL else None
