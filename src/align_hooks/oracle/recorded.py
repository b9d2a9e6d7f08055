"""A side's record of a step's points, for comparison with the truth."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from align_hooks.comparison.arbitration import PointKind
from align_hooks.names.points import GRADIENT, TOKEN_LOSSES, place
from align_hooks.oracle.points import PointRows
from align_hooks.quantities.activations import ACTIVATIONS
from align_hooks.quantities.gradients import GRADIENTS
from align_hooks.quantities.routing import ROUTING
from align_hooks.record.format.layout import Array
from align_hooks.record.read.batch import Batch
from align_hooks.record.reader import Run


class Recorded:
    """The values of a run's ``step`` at points, whose gradients are judged where ``gradients`` says so."""

    def __init__(self, run: Run, step: int, batch: Batch, *, gradients: bool) -> None:
        row = run.row(step)
        self.batch, self.holds_token_losses = batch, batch.token_losses is not None
        self.judges_gradients = gradients and not (row is not None and row.skipped)
        self._terms = (row.terms if row is not None else None) or {}
        self.choices: Mapping[str, Array] = run.routing(step) if step in run.steps_of(ROUTING.name) else {}
        """Router name to the experts of each token; empty where they are not on record."""
        self.counts: Mapping[str, Array] = {} if run.made_by_hand else run.expert_counts(step)
        """Router name to the number of each expert's tokens."""
        self.activations = run.activations(step) if step in run.steps_of(ACTIVATIONS.name) else None
        """The values of the step's points and their gradients; None where they are not on record."""
        self._gradients = run.gradients(step) if self.judges_gradients and step in run.gradient_steps() else None
        has_sketches = self.judges_gradients and self._gradients is None and step in run.sketch_steps(GRADIENTS.name)
        self._sketches = run.sketches(GRADIENTS.name, step) if has_sketches else {}
        of_points = self.judges_gradients and any(name.endswith(GRADIENT) for name in self.activations or ())
        self.holds_gradients = of_points or self._gradients is not None or bool(self._sketches)
        """Whether gradients that can be judged were recorded."""
        self._kept: dict[str, Array] = {}
        self._block: str | None = None
        ranks = max((manifest.size("dp") for manifest in run.manifests.values()), default=1)
        # recorded gradients may be sums over ranks, and the truth has means
        self.scale = float(ranks) if run.facts.training.gradients_summed_over_ranks else 1.0

    def pair(self, part: PointRows) -> tuple[Array, Array] | None:
        """Return the truth and its counterpart on record, fp64, 0 in both for tokens that do not count; None without a counterpart."""
        if part.kind is PointKind.TERM:
            return (part.array, np.array([self._terms[part.point]])) if part.point in self._terms else None
        if part.kind is PointKind.PARAMETER:
            known = self._gradients is not None and part.point in self._gradients
            return (self.scale * part.array, self._gradients[part.point].astype(np.float64)) if known else None  # type: ignore[index]
        name, rows = self._name(part), slice(part.first, part.first + len(part.array))
        if name is not None and self._has_tensor(name, part):
            return self.factor(part) * part.array, self._tensor(name)[rows].astype(np.float64).reshape(part.array.shape)
        if part.kind is PointKind.VALUE and part.point == TOKEN_LOSSES and self.batch.token_losses is not None:
            counts = np.ones(part.array.shape, bool) if self.batch.loss_mask is None else self.batch.loss_mask[rows] > 0
            return np.where(counts, part.array, 0.0), np.where(counts, self.batch.token_losses[rows].astype(np.float64), 0.0)
        return None

    def factor(self, part: PointRows) -> float:
        """Return the factor from the truth's objective to the side's."""
        return self.scale if part.kind in (PointKind.GRADIENT, PointKind.PARAMETER) else 1.0

    def sketch(self, part: PointRows) -> NDArray[np.float64] | None:
        """Return the recorded sketch of all rows of a point or of a parameter's gradient; None where a tensor was recorded, or nothing."""
        if part.kind is PointKind.PARAMETER:
            return self._sketches.get(part.point)
        known, name = self.activations, self._name(part)
        return None if known is None or name is None or self._has_tensor(name, part) else known[name].sketch

    def _name(self, part: PointRows) -> str | None:
        """Return the name of a point, or of its gradient, on record; None where it is not on record, or not judged."""
        if self.activations is None or part.kind not in (PointKind.VALUE, PointKind.GRADIENT):
            return None
        if part.kind is PointKind.VALUE and part.point == TOKEN_LOSSES and self.holds_token_losses:
            return None  # the batch has all token losses
        if part.kind is PointKind.GRADIENT and not self.judges_gradients:
            return None
        name = part.point + (GRADIENT if part.kind is PointKind.GRADIENT else "")
        return name if name in self.activations else None

    def _has_tensor(self, name: str, part: PointRows) -> bool:
        return part.tokens is None and self.activations is not None and self.activations.has_tensor(name)

    def _tensor(self, name: str) -> Array:
        block = place(name.removesuffix(GRADIENT)).block
        if block != self._block:  # points come row by row, so the tensors of one block are kept
            self._kept, self._block = {}, block
        if name not in self._kept:
            assert self.activations is not None
            self._kept[name] = self.activations.tensor(name)
        return self._kept[name]
