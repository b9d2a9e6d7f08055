"""Find that gradients were clipped by a norm of each group of tensors, and not by one of all.

The first moment of Adam keeps the clipped gradient, so each tensor's own coefficient is on record::

    c = ⟨m' - β1 m, g⟩ / ((1 - β1) ⟨g, g⟩)

Tensors of one coefficient are a group that was clipped alone, if it is the limit over the norm of just these tensors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from align_hooks.comparison.optimizer.formula import Array, Evidence, RecordedUpdate, clip_coefficient
from align_hooks.comparison.optimizer.recorded_updates import OnRecord
from align_hooks.record.reader import Run

CLOSE = 1e-3
"""Largest relative distance of a group's coefficient from that of its norm."""


class ClippedGroup(Struct, frozen=True):
    """Tensors that were clipped by their own norm."""

    names: tuple[str, ...]
    norm: float


def clipped_apart(run: Run, record: OnRecord) -> Sequence[ClippedGroup]:
    """Return the groups of a run's first checked update, the one of fewest tensors first; none where it was clipped by one norm, in another
    way, or where moments or norms are not on record."""
    update = record.evidence.updates[0]
    if not record.clip_grad or not update.coefficient or len(update.after) < 3 or (len(update.before) < 3 and update.count > 1):
        return ()
    norms = run.local_norms(update.step) if update.step in run.local_norm_steps() else {}
    if not norms.keys() >= {*record.evidence.names}:
        return ()
    coefficients = coefficients_of(record.evidence, update, record.settings.beta1)
    order = np.argsort(coefficients)[: np.isfinite(coefficients).sum()]
    edges = np.flatnonzero(np.diff(coefficients[order]) > CLOSE * coefficients[order][1:]) + 1
    groups = []
    for members in np.split(order, edges):
        names = tuple(record.evidence.names[index] for index in sorted(members))
        norm = norm_of(norms, names)
        expected = clip_coefficient(norm, record.clip_grad)
        if not np.allclose(coefficients[members], expected, rtol=CLOSE):
            return ()
        groups.append(ClippedGroup(names, norm))
    return sorted(groups, key=lambda group: len(group.names)) if len(groups) > 1 else ()


def by_own_norms(run: Run, record: OnRecord, groups: Sequence[ClippedGroup]) -> Evidence:
    """Return the updates of a run whose norms are on record, their gradients clipped by the norm of each group."""
    evidence, limit = record.evidence, record.clip_grad or math.inf
    index = {name: position for position, name in enumerate(evidence.names)}
    updates = []
    for update in evidence.updates:
        if update.coefficient and update.step in run.local_norm_steps():
            norms, factors = run.local_norms(update.step), np.ones(len(evidence.names))
            for group in groups:
                own = clip_coefficient(norm_of(norms, group.names), limit)
                factors[[index[name] for name in group.names]] = own / update.coefficient
            updates.append(replace(update, gradient=update.gradient * factors[evidence.tensor]))
    return replace(evidence, updates=tuple(updates))


def norm_of(norms: Mapping[str, float], names: Iterable[str]) -> float:
    """Return the norm of some tensors together."""
    return math.sqrt(math.fsum(norms[name] ** 2 for name in names))


def coefficients_of(evidence: Evidence, update: RecordedUpdate, beta1: float) -> Array:
    """Return the clip coefficient of each tensor of an update; NaN for one without a gradient."""
    before = update.before[1] if len(update.before) > 1 else 0.0
    products = np.bincount(evidence.tensor, (update.after[1] - beta1 * before) * update.gradient, minlength=len(evidence.names))
    squares = np.bincount(evidence.tensor, np.square(update.gradient), minlength=len(evidence.names))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(products / ((1 - beta1) * squares))
