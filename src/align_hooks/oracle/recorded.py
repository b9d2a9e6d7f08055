"""What a side recorded of the points of a step, as it is held against the truth."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from align_hooks.comparison.arbitration import PointKind
from align_hooks.names.points import GRADIENT, TOKEN_LOSSES, place
from align_hooks.oracle.points import PointRows
from align_hooks.quantities.activations import ACTIVATIONS
from align_hooks.quantities.gradients import GRADIENTS
from align_hooks.quantities.routing import ROUTING
from align_hooks.record.format.layout import Array
from align_hooks.record.read.activations import Activations
from align_hooks.record.read.batch import Batch
from align_hooks.record.read.sums import Sketches
from align_hooks.record.read.tensors import Tensors
from align_hooks.record.reader import Run


class Recorded:
    """The values of a run's ``step`` at points. ``gradients`` says whether its gradients are judged; they are of the ranks' sum where the
    run sums them, which ``scale`` undoes."""

    def __init__(self, run: Run, step: int, batch: Batch, *, gradients: bool) -> None:
        self.run, self.step, self.batch = run, step, batch
        row = run.row(step)
        self.judges_gradients = gradients and not (row is not None and row.skipped)
        self._terms = (row.terms if row is not None else None) or {}
        ranks = max((manifest.size("dp") for manifest in run.manifests.values()), default=1)
        self._kept: dict[str, Array] = {}
        self._block: str | None = None
        self.scale = float(ranks) if run.facts.training.gradients_summed_over_ranks else 1.0

    @cached_property
    def choices(self) -> Mapping[str, Array]:
        """The experts that tokens were given to, by the name of a layer's router; empty where they are not on record."""
        return self.run.routing(self.step) if self.step in self.run.steps_of(ROUTING.name) else {}

    @cached_property
    def counts(self) -> Mapping[str, Array]:
        """How many tokens each expert was given, by the name of a layer's router."""
        return {} if self.run.made_by_hand else self.run.expert_counts(self.step)

    @cached_property
    def _gradients(self) -> Tensors | None:
        there = self.judges_gradients and self.step in self.run.gradient_steps()
        return self.run.gradients(self.step) if there else None

    @cached_property
    def _sketches(self) -> Sketches:
        there = self.judges_gradients and self._gradients is None and self.step in self.run.sketch_steps(GRADIENTS.name)
        return self.run.sketches(GRADIENTS.name, self.step) if there else {}

    def pair(self, part: PointRows) -> tuple[Array, Array] | None:
        """The truth and what was recorded in its place, of one shape, fp64; None where nothing was. What does not count is 0 in both."""
        if part.kind is PointKind.TERM:
            return (part.array, np.array([self._terms[part.point]])) if part.point in self._terms else None
        if part.kind is PointKind.PARAMETER:
            known = self._gradients is not None and part.point in self._gradients
            return (self.scale * part.array, self._gradients[part.point].astype(np.float64)) if known else None  # type: ignore[index]
        name = self._name(part)
        if name is not None and self._is_whole(name, part):
            rows = slice(part.first, part.first + len(part.array))
            return self.factor(part) * part.array, self._tensor(name)[rows].astype(np.float64).reshape(part.array.shape)
        if part.kind is PointKind.VALUE and part.point == TOKEN_LOSSES and self.batch.token_losses is not None:
            rows = slice(part.first, part.first + len(part.array))
            counts = np.ones(part.array.shape, bool) if self.batch.loss_mask is None else self.batch.loss_mask[rows] > 0
            return np.where(counts, part.array, 0.0), np.where(counts, self.batch.token_losses[rows].astype(np.float64), 0.0)
        return None

    def factor(self, part: PointRows) -> float:
        """What the truth is multiplied by to be what the side differentiates."""
        return self.scale if part.kind in (PointKind.GRADIENT, PointKind.PARAMETER) else 1.0

    @cached_property
    def activations(self) -> Activations | None:
        """What the points of the step put out, and their gradients; None where they are not on record."""
        return self.run.activations(self.step) if self.step in self.run.steps_of(ACTIVATIONS.name) else None

    def sketch(self, part: PointRows) -> NDArray[np.float64] | None:
        """The sketch of all rows of a point, or of a parameter's gradient, where that is what was recorded of it and no whole tensor."""
        if part.kind is PointKind.PARAMETER:
            return self._sketches.get(part.point)
        known, name = self.activations, self._name(part)
        return None if known is None or name is None or self._is_whole(name, part) else known[name].sketch

    def _name(self, part: PointRows) -> str | None:
        """The name under which a point, or its gradient, is on record; None where it is not, or is not judged."""
        if self.activations is None or part.kind not in (PointKind.VALUE, PointKind.GRADIENT):
            return None
        if part.kind is PointKind.VALUE and part.point == TOKEN_LOSSES and self.holds_token_losses:
            return None  # those of the batch are whole
        if part.kind is PointKind.GRADIENT and not self.judges_gradients:
            return None
        name = part.point + (GRADIENT if part.kind is PointKind.GRADIENT else "")
        return name if name in self.activations else None

    def _is_whole(self, name: str, part: PointRows) -> bool:
        return part.tokens is None and self.activations is not None and self.activations.has_tensor(name)

    def _tensor(self, name: str) -> Array:
        """A whole tensor; those of a block are kept, for its points come row by row."""
        block = place(name.removesuffix(GRADIENT)).block
        if block != self._block:
            self._kept, self._block = {}, block
        if name not in self._kept:
            assert self.activations is not None
            self._kept[name] = self.activations.tensor(name)
        return self._kept[name]

    @property
    def holds_gradients(self) -> bool:
        """Whether gradients were recorded that can be judged."""
        of_points = self.judges_gradients and any(name.endswith(GRADIENT) for name in self.activations or ())
        return of_points or self._gradients is not None or bool(self._sketches)

    @property
    def holds_token_losses(self) -> bool:
        """Whether token losses were recorded."""
        return self.batch.token_losses is not None
