"""Limits measured on the reference itself: how far it is from runs of its own that differ from it by rounding alone.

Such a run is the reference once more on another machine or layout, or with every weight moved by one eps
(``ALIGN_HOOKS_PERTURB``). What these do to a tensor an honest candidate may do too: its limit is :data:`FACTOR` times the worst of
them, tensor by tensor and step by step, and no less than :data:`FLOOR` eps, for one draw may happen to be small.

A repeat that is none must not make faults honest: it is refused where its record shows that it is another run, and no limit is more
than :data:`MOST` times its default. A repeat that is the same to the bit measured nothing, and free-running steps, where one draw says
little, are never judged more strictly than by default.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from align_hooks.compare.batches import differences
from align_hooks.compare.distances import MEASURED, weights
from align_hooks.compare.pair import Pair
from align_hooks.compare.settings import hyper_parameters, model_settings

FACTOR = 3.0
FLOOR = 8.0
"""Of eps; the smallest limit that is ever measured."""
MOST = 100.0
"""Of a default limit; the largest that is ever measured."""
MOVED = 4.0
"""Of eps; how far a repeat's initial weights may be from the reference's, relative."""


@dataclass
class Noise:
    """Errors of ``repeats`` against the pair's reference, each read once. Without a repeat every limit is the default."""

    pair: Pair
    repeats: Sequence[Any]
    _seen: dict[tuple[str, int], Mapping[str, float]] = field(default_factory=dict)

    @cached_property
    def problem(self) -> str:
        """Which run is no repeat, and why, in words: it is of another model, other data or another optimizer. Empty where all are."""
        for run in self.repeats:
            why = unlike(self.pair.reference, run, self.pair.limits.eps)
            if run.path.resolve() in [one.path.resolve() for one in self.pair.both]:
                why = "it is one of the two runs that are compared"
            if why:
                return f"--noise {run.path} is no repeat of {self.pair.reference.path}: {why}; repeat the run that is the reference"
        return ""

    def limit(self, kind: str, step: int, name: str, default: float) -> float:
        """The limit of one quantity at one step: measured where a repeat has it, ``default`` where none does."""
        if (kind, step) not in self._seen:
            self._seen[kind, step] = self._errors(kind, step)
        errors = self._seen[kind, step]
        if name not in errors or not any(errors.values()):
            return default
        floor = FLOOR * self.pair.limits.eps if self.pair.is_exact(step) else default
        return min(max(FACTOR * errors[name], floor), MOST * default)

    def limits(self, kind: str, step: int, default: float) -> Callable[[str], float]:
        """The same as a function of the name."""
        return lambda name: self.limit(kind, step, name, default)

    def measured(self) -> dict[str, dict[str, float]]:
        """Everything that was measured, ``kind of step N`` to name to error: what is kept with a verdict."""
        return {f"{kind} of step {step}": dict(errors) for (kind, step), errors in sorted(self._seen.items()) if errors}

    def _errors(self, kind: str, step: int) -> dict[str, float]:
        """The worst error of each name over all repeats; one that is not finite measures nothing."""
        worst: dict[str, float] = {}
        for run in self.repeats:
            for one in MEASURED[kind](self.pair.reference, run, step, self.pair.limits.eps):
                if math.isfinite(one.error):
                    worst[one.name] = max(worst.get(one.name, 0.0), one.error)
        return worst


def unlike(reference: Any, run: Any, eps: float) -> str:
    """Why a run is no repeat of the reference, in words; empty where it is."""
    if run.missing:
        return run.missing  # type: ignore[no-any-return]
    if reference.steps[:1] != run.steps[:1]:
        return "it begins with another step"
    types = [(one.manifest.get("training") or {}).get("compute_type") for one in (reference, run)]
    if types[0] != types[1]:
        return f"it computes in {types[1]}, the reference in {types[0]}"
    models = [one.manifest.get("model") or {} for one in (reference, run)]
    optimizers = [one.manifest.get("optimizer") for one in (reference, run)]
    found = model_settings(*models) + (hyper_parameters(*optimizers) if all(optimizers) else [])
    if found:
        return f"{found[0].what} is {found[0].reference} there and {found[0].candidate} here"
    for step in sorted(set(reference.batch_steps()) & set(run.batch_steps())):
        other, _ = differences(reference.batch(step), run.batch(step), f"step {step}")
        if other:
            return f"it consumed another batch, {other[0].what}"
    first = reference.steps[0] if reference.steps else None
    if first is not None:
        far = [one.name for one in weights(reference, run, first, eps) if not one.error <= MOVED * eps]
        if far:
            return f"it starts from other weights, {far[0]}"
    return ""
