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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from align_hooks.compare import token_losses
from align_hooks.compare.batches import differences
from align_hooks.compare.measures import distances, ratio, relative_difference
from align_hooks.compare.pair import Pair
from align_hooks.compare.settings import hyper_parameters, model_settings

FACTOR = 3.0
FLOOR = 8.0
"""Of eps; the smallest limit that is ever measured."""
MOST = 100.0
"""Of a default limit; the largest that is ever measured."""
MOVED = 4.0
"""Of eps; how far a repeat's initial weights may be from the reference's, relative."""
LOSSES = ("loss", "objective_loss")


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
            for name, error in ERRORS[kind](self.pair.reference, run, step, self.pair.limits.eps):
                if math.isfinite(error):
                    worst[name] = max(worst.get(name, 0.0), error)
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
    if first is not None and first in reference.weight_steps() and first in run.weight_steps():
        far = [name for name, error in _tensors("weights")(reference, run, first, eps) if not error <= MOVED * eps]
        if far:
            return f"it starts from other weights, {far[0]}"
    return ""


Errors = Iterator[tuple[str, float]]


def _losses(reference: Any, run: Any, step: int, eps: float) -> Errors:
    ours, theirs = ({row["step"]: row for row in one.scalars()}.get(step, {}) for one in (reference, run))
    for key in LOSSES:
        if None not in (ours.get(key), theirs.get(key)):
            yield key, relative_difference(ours[key], theirs[key])


def _token_losses(reference: Any, run: Any, step: int, eps: float) -> Errors:
    if all(step in one.batch_steps() for one in (reference, run)):
        losses = token_losses.compared(reference.batch(step), run.batch(step))
        if losses is not None:
            yield "token losses", ratio(*distances(*losses)[:2])


def _norms(reference: Any, run: Any, step: int, eps: float) -> Errors:
    if all(step in one.local_norm_steps() for one in (reference, run)):
        ours, theirs = (one.local_norms(step) for one in (reference, run))
        floor = eps * max(ours.values(), default=0.0)
        for name in ours.keys() & theirs.keys():
            yield name, 0.0 if max(ours[name], theirs[name]) < floor else relative_difference(ours[name], theirs[name])


def _tensors(kind: str) -> Callable[[Any, Any, int, float], Errors]:
    def errors(reference: Any, run: Any, step: int, eps: float) -> Errors:
        steps = "gradient_steps" if kind == "gradients" else "weight_steps"
        if not all(step in getattr(one, steps)() for one in (reference, run)):
            return
        ours, theirs = (getattr(one, kind)(step) for one in (reference, run))
        shared = [name for name in ours if name in theirs and ours.shape(name) == theirs.shape(name)]
        found = [(name, *distances(ours[name], theirs[name])) for name in shared]
        floor = eps * max((size for _, _, size, _ in found), default=0.0) if kind == "gradients" else 0.0
        for name, distance, size, other in found:
            yield name, 0.0 if max(size, other) < floor else ratio(distance, size)

    return errors


ERRORS: dict[str, Callable[[Any, Any, int, float], Errors]] = {
    "losses": _losses,
    "token_losses": _token_losses,
    "local_norms": _norms,
    "gradients": _tensors("gradients"),
    "weights": _tensors("weights"),
}
