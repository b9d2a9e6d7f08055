"""Limits measured on the reference itself: how far it is from runs of its own that differ from it by rounding alone.

Such a run is the reference once more on another machine or layout, or with every weight moved by one eps
(``ALIGN_HOOKS_PERTURB``). What these do to a tensor an honest candidate may do too: its limit is :data:`FACTOR` times the worst of
them, tensor by tensor and step by step, and no less than :data:`FLOOR` eps, for one draw may happen to be small.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from align_hooks.compare.measures import distances, ratio, relative_difference
from align_hooks.compare.settings import hyper_parameters, model_settings

FACTOR = 3.0
FLOOR = 8.0
"""Of eps; the smallest limit that is ever measured."""
LOSSES = ("loss", "objective_loss")


@dataclass
class Noise:
    """Errors of ``repeats`` against the ``reference``, each read once. Without a repeat every limit is the default."""

    reference: Any
    repeats: Sequence[Any]
    eps: float
    _seen: dict[tuple[str, int], Mapping[str, float]] = field(default_factory=dict)

    @cached_property
    def problem(self) -> str:
        """Which run is no repeat, and why, in words: it is of another model, other data or another optimizer. Empty where all are."""
        for run in self.repeats:
            if why := unlike(self.reference, run):
                return f"--noise {run.path} is no repeat of {self.reference.path}: {why}; repeat the run that is the reference"
        return ""

    def limit(self, kind: str, step: int, name: str, default: float) -> float:
        """The limit of one quantity at one step: measured where a repeat has it, ``default`` where none does."""
        if (kind, step) not in self._seen:
            self._seen[kind, step] = self._errors(kind, step)
        measured = self._seen[kind, step].get(name)
        return default if measured is None else max(FACTOR * measured, FLOOR * self.eps)

    def limits(self, kind: str, step: int, default: float) -> Callable[[str], float]:
        """The same as a function of the name."""
        return lambda name: self.limit(kind, step, name, default)

    def measured(self) -> dict[str, dict[str, float]]:
        """Everything that was measured, ``kind of step N`` to name to error: what is kept with a verdict."""
        return {f"{kind} of step {step}": dict(errors) for (kind, step), errors in sorted(self._seen.items()) if errors}

    def _errors(self, kind: str, step: int) -> dict[str, float]:
        worst: dict[str, float] = {}
        for run in self.repeats:
            for name, error in ERRORS[kind](self.reference, run, step):
                worst[name] = max(worst.get(name, 0.0), error)
        return worst


def unlike(reference: Any, run: Any) -> str:
    """Why a run is no repeat of the reference, in words; empty where it is."""
    if reference.steps[:1] != run.steps[:1]:
        return "it begins with another step"
    models = [one.manifest.get("model") or {} for one in (reference, run)]
    optimizers = [one.manifest.get("optimizer") for one in (reference, run)]
    found = model_settings(*models) + (hyper_parameters(*optimizers) if all(optimizers) else [])
    if found:
        return f"{found[0].what} is {found[0].reference} there and {found[0].candidate} here"
    first = reference.steps[0] if reference.steps else None
    if first in reference.batch_steps() and first in run.batch_steps():
        one, other = (each.batch(first).arrays() for each in (reference, run))
        if any(
            name in other and (one[name].shape != other[name].shape or (one[name] != other[name]).any()) for name in ("tokens", "labels")
        ):
            return f"it consumed another batch at step {first}"
    return ""


Errors = list[tuple[str, float]]


def _losses(reference: Any, run: Any, step: int) -> Errors:
    ours, theirs = ({row["step"]: row for row in one.scalars()}.get(step, {}) for one in (reference, run))
    return [(key, relative_difference(ours[key], theirs[key])) for key in LOSSES if None not in (ours.get(key), theirs.get(key))]


def _token_losses(reference: Any, run: Any, step: int) -> Errors:
    if not all(step in one.batch_steps() for one in (reference, run)):
        return []
    one, other = (each.batch(step).token_losses for each in (reference, run))
    known = one is not None and other is not None and one.shape == other.shape
    return [("token losses", ratio(*distances(one, other)[:2]))] if known else []


def _norms(reference: Any, run: Any, step: int) -> Errors:
    if not all(step in one.local_norm_steps() for one in (reference, run)):
        return []
    ours, theirs = (one.local_norms(step) for one in (reference, run))
    return [(name, relative_difference(ours[name], theirs[name])) for name in ours.keys() & theirs.keys()]


def _tensors(kind: str) -> Callable[[Any, Any, int], Errors]:
    def errors(reference: Any, run: Any, step: int) -> Errors:
        steps = "gradient_steps" if kind == "gradients" else "weight_steps"
        if not all(step in getattr(one, steps)() for one in (reference, run)):
            return []
        ours, theirs = (getattr(one, kind)(step) for one in (reference, run))
        return [(name, ratio(*distances(ours[name], theirs[name])[:2])) for name in ours if name in theirs]

    return errors


ERRORS: dict[str, Callable[[Any, Any, int], Errors]] = {
    "losses": _losses,
    "token_losses": _token_losses,
    "local_norms": _norms,
    "gradients": _tensors("gradients"),
    "weights": _tensors("weights"),
}
