"""Limits measured on the reference itself: its distance from repeats that differ from it by rounding only.

A repeat runs on another machine or layout, or with every weight moved by one eps (``ALIGN_HOOKS_PERTURB``). A candidate's limit is
:data:`FACTOR` times the repeats' worst error, tensor by tensor and step by step, and at least a part of the default (:data:`LEAST`), for
one draw may happen to be small. Free-running steps, where one draw says little, are never judged more strictly than by default.

A run that is no repeat must not make faults honest: it is refused where its record shows another run, and no limit exceeds :data:`MOST`
times its default."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from statistics import median
from typing import TypeAlias

from msgspec import Struct, field

from align_hooks.comparison.data.batches import differences
from align_hooks.comparison.distances import MEASURED, weights
from align_hooks.comparison.finding import Words, when
from align_hooks.comparison.findings import rates_equal
from align_hooks.comparison.pair import Pair
from align_hooks.comparison.settings.recorded import argument_settings, hyper_parameters, model_settings, show
from align_hooks.messages import Joined, Message, message
from align_hooks.process.work import ALONE, WorkPool
from align_hooks.record.format.rows import ScalarRow
from align_hooks.record.reader import Run

# In half precision sums are in fp32, so all the rounding of a step is less than one eps a weight: 0.15 (median) to 0.25 of that in the
# gradients of the zoo's model, by the same run in fp32; in fp32, where sums round too, an honest pair is at 0.9.
FACTOR, MOVED_IN_HALF = 3.0, 1.0
"""Times the error of a repeat, and times that of many numbers of a repeat with moved weights in half precision."""
LEAST = {"token_losses": 0.25, "local_norms": 0.125, "gradients": 0.125, "activations": 0.125}
"""The smallest measured limit, of the default. A loss is one number, which a draw may leave where it was: never less than the default."""
MOST = 100.0
"""Of a default limit; the largest that is ever measured."""
HALF = ("bfloat16", "float16")
MANY = ("token_losses", "gradients", "weights", "updates", "activations")
"""Kinds whose error is of many numbers together, so that one draw shows its size."""
MOVED = 4.0
"""Times eps that a repeat's initial weights may be from the reference's, relative."""


Measured: TypeAlias = tuple[Mapping[str, float], Mapping[str, float]]
"""Name to the repeats' worst relative error, and to what a candidate is allowed, of one kind at one step."""


class Noise(Struct, dict=True):
    """Errors of ``repeats`` against the pair's reference, each read once. Without repeats every limit is the default."""

    pair: Pair
    repeats: Sequence[Run]
    work: WorkPool = ALONE
    _seen: dict[tuple[str, int], Measured] = field(default_factory=dict)

    @cached_property
    def problem(self) -> Message | None:
        """Return which run is no repeat, and why; None where all are."""
        sides, known = [side.path.resolve() for side in self.pair.runs], {side.facts.run_id for side in self.pair.runs} - {None}
        for run in self.repeats:
            is_known = run.path.resolve() in sides or run.facts.run_id in known
            why = message("noise.compared_itself") if is_known else why_no_repeat(self.pair.reference, run, self.pair.limits.eps)
            if why is not None:
                return message("noise.no_repeat", path=str(run.path), reference=str(self.pair.reference.path), why=why)
            known |= {run.facts.run_id} - {None}
        return None

    def limit(self, kind: str, step: int, name: str, default: float) -> float:
        """Return the limit of one quantity at one step: measured where a repeat has it, ``default`` where none does."""
        if not self.repeats:
            return default
        if (kind, step) not in self._seen:
            self._seen[kind, step] = self._errors(kind, step)
        _, allowed = self._seen[kind, step]
        if name not in allowed or not any(allowed.values()):  # a repeat that is the same to the bit measured nothing
            return default
        least = default * (LEAST.get(kind, 1.0) if self.pair.is_exact(step) else 1.0)
        usual = median(allowed.values()) if kind == "local_norms" else 0.0  # a single number may happen to be close
        return min(max(allowed[name], usual, least), MOST * default)

    def limits(self, kind: str, step: int, default: float) -> Callable[[str], float]:
        """Return :meth:`limit` as a function of the name."""
        return partial(self.limit, kind, step, default=default)

    def measured(self) -> dict[str, dict[str, float]]:
        """Return all measured errors, ``kind of step N`` to name to error."""
        return {f"{kind} of step {step}": dict(errors) for (kind, step), (errors, _) in sorted(self._seen.items()) if errors}

    def rows(self) -> list[list[tuple[ScalarRow, ScalarRow]]]:
        """Return each repeat's rows of the steps that the reference completed too; nothing where a run is no repeat."""
        return [] if self.problem else [Pair(self.pair.reference, repeat).rows for repeat in self.repeats]

    def factor(self, repeat: Run, kind: str) -> float:
        """Return how many times the error of a repeat an honest candidate may have."""
        moved, training = repeat.facts.settings.get("perturb"), self.pair.reference.facts.training
        is_half = training.compute_type in HALF and not (training.products and training.products.format)
        return MOVED_IN_HALF if moved and is_half and kind in MANY else FACTOR

    def _errors(self, kind: str, step: int) -> Measured:
        """Return the worst over all repeats by name; an error that is not finite measures nothing."""
        errors: dict[str, float] = {}
        allowed: dict[str, float] = {}
        for run in self.repeats:
            for distance in MEASURED[kind](self.pair.reference, run, step, self.pair.limits.eps, self.work):
                name, error = distance.name, distance.error
                if math.isfinite(error):
                    errors[name] = max(errors.get(name, 0.0), error)
                    allowed[name] = max(allowed.get(name, 0.0), self.factor(run, kind) * error)
        return errors, allowed


def why_no_repeat(reference: Run, run: Run, eps: float) -> Words | None:
    """Return why a run is no repeat of the reference; None where it is one."""
    if run.missing is not None:
        return run.missing.message
    if reference.steps[:1] != run.steps[:1]:
        return message("noise.other_step")
    ours, theirs = (each.facts.training for each in (reference, run))
    if (ours.compute_type, ours.products) != (theirs.compute_type, theirs.products):
        return message("noise.compute_type", reference=ours.precision, candidate=theirs.precision)
    return _other_settings(reference, run) or _other_batch(reference, run) or _other_weights(reference, run, eps)


def _other_settings(reference: Run, run: Run) -> Message | None:
    """Name the first differing setting of the model or the optimizer, or learning rate."""
    ours, theirs = reference.facts, run.facts
    optimizers = hyper_parameters(ours.optimizer, theirs.optimizer) if ours.optimizer and theirs.optimizer else []
    for finding in model_settings(ours.model, theirs.model) + argument_settings(ours, theirs) + optimizers:
        if not finding.name:  # it is about parameters, and not a setting with a value
            return message("noise.optimizer", what=finding.what)
        # words, such as *none*, stay a message, which each language words itself
        values = [value if isinstance(value, Message | Joined) else show(value) for value in (finding.reference, finding.candidate)]
        return message("noise.setting", what=finding.what, reference=values[0], candidate=values[1])
    for step, rate, repeated in Pair(reference, run).numbers("learning_rate"):
        if not rates_equal(rate, repeated):
            return message("noise.learning_rate", step=when(step), reference=show(rate), candidate=show(repeated))
    return None


def _other_batch(reference: Run, run: Run) -> Message | None:
    """Name the first batch that differs, of the steps of which both are recorded."""
    for step in sorted(set(reference.batch_steps()) & set(run.batch_steps())):
        digests = _digests(reference, step)
        if not digests or digests != _digests(run, step):
            findings, _ = differences(reference.batch(step), run.batch(step), step)
            if findings:
                return message("noise.batch", what=findings[0].what)
    return None


def _other_weights(reference: Run, run: Run, eps: float) -> Message | None:
    """Name the first initial weight that is further from the reference's than a repeat moves one."""
    distances = weights(reference, run, reference.steps[0], eps) if reference.steps else ()
    far = next((distance.name for distance in distances if not distance.error <= MOVED * eps), None)
    return None if far is None else message("noise.weights", name=far)


def _digests(run: Run, step: int) -> dict[int, dict[str, str]]:
    """Return rank to name to digest of a step's inputs; token losses are no input."""
    arrays = {rank: batch.arrays.items() for rank, batch in run.batch_descriptions(step).items()}
    return {rank: {name: stored.sha256 for name, stored in of_rank if name != "token_losses"} for rank, of_rank in arrays.items()}
