"""The ladder: matched of expected, hyper-parameters, batches, weights, first loss, norms, gradients, what came later.

The order is that of a training step, so the first stage that differs is the earliest place where the runs part. A step
is *exact* when both runs stand on the same weights: their first common step, one whose recorded weights are equal, or
one after updates with a learning rate of 0. Exact steps have tight limits; free-running ones only drift.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

import numpy as np

from align_hooks.compare.acceptance import acceptance
from align_hooks.compare.limits import Limits, limits_for
from align_hooks.compare.measures import relative_difference, relative_error
from align_hooks.compare.settings import equal, hyper_parameters, model_settings, show
from align_hooks.compare.verdict import Comparison, Finding, Stage, Status, decide

WORST = 10
Progress = Callable[[str], None]


def compare(reference: Any, candidate: Any, *, allow_missing: Sequence[str] = (), progress: Progress = lambda message: None) -> Comparison:
    """Compare two runs, made by ``open_run``; ``allow_missing`` are patterns of canonical names that one side may lack."""
    return Ladder(reference, candidate, tuple(allow_missing), progress).climb()


@dataclass
class Ladder:
    """One comparison under way. ``compared`` counts the stages of numbers that really compared some."""

    reference: Any
    candidate: Any
    allow_missing: tuple[str, ...]
    progress: Progress
    compared: int = 0

    def climb(self) -> Comparison:
        """All stages in order, and their verdict."""
        stages: list[Stage] = []
        for stage in (
            self.match,
            self.hyper_parameters,
            self.batches,
            self.initial_weights,
            self.first_loss,
            self.local_norms,
            self.gradients,
            self.later_losses,
            self.later_tensors,
        ):
            stages.append(stage())
        verdict, first = decide(stages, self.compared)
        settings = model_settings(self.reference.manifest.get("model", {}), self.candidate.manifest.get("model", {}))
        return Comparison(verdict, first, tuple(stages), self.limits.eps, acceptance(self.rows), tuple(settings), (self.limits_note,))

    # ---- what both have

    @cached_property
    def rows(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Rows of scalars of the steps that both completed."""
        theirs = {row["step"]: row for row in self.candidate.scalars()}
        return [(row, theirs[row["step"]]) for row in self.reference.scalars() if row["step"] in theirs]

    @cached_property
    def limits(self) -> Limits:
        """Default limits of the coarser of the two compute types."""
        return limits_for(*self._compute_types)[1]

    @property
    def _compute_types(self) -> list[str | None]:
        return [run.manifest.get("training", {}).get("compute_type") for run in (self.reference, self.candidate)]

    @property
    def limits_note(self) -> str:
        """Where the limits come from."""
        name, limits = limits_for(*self._compute_types)
        return f"limits are the defaults for {name} (eps {limits.eps:.3g}); they were not measured on this pair"

    def is_exact(self, step: int) -> bool:
        """Whether both runs stand on the same weights at ``step``."""
        return step in self._exact

    @cached_property
    def _exact(self) -> set[int]:
        exact: set[int] = set()
        firsts = [run.steps[0] for run in (self.reference, self.candidate) if run.steps]
        still = len(firsts) == 2 and firsts[0] == firsts[1]
        equal_weights = {step for step in self._both("weight_steps") if self._weights_equal(step)}
        for ours, theirs in self.rows:
            step = ours["step"]
            still = still or step in equal_weights
            if still:
                exact.add(step)
            still = still and not _any_rate(ours) and not _any_rate(theirs)
        return exact

    def _weights_equal(self, step: int) -> bool:
        one, other = self.reference.weights(step), self.candidate.weights(step)
        return set(one) == set(other) and all(
            one.shape(name) == other.shape(name) and np.array_equal(one[name], other[name]) for name in one
        )

    def _both(self, steps: str) -> list[int]:
        return sorted(set(getattr(self.reference, steps)()) & set(getattr(self.candidate, steps)()))

    def _only_one(self, steps: str) -> str | None:
        """Why a kind of record cannot be compared at all, None where it can."""
        have = [bool(getattr(run, steps)()) for run in (self.reference, self.candidate)]
        if all(have):
            return None
        return "neither run recorded them" if not any(have) else f"only the {'reference' if have[0] else 'candidate'} recorded them"

    # ---- stages

    def match(self) -> Stage:
        """How much of the two runs can be laid side by side."""
        self.progress("matching")
        findings = [Finding(problem, "reference") for problem in self.reference.problems] + [
            Finding(problem, "candidate") for problem in self.candidate.problems
        ]
        ours, theirs = (self._pieces(run) for run in (self.reference, self.candidate))
        names, missing = ours.keys() & theirs.keys(), self._missing(ours, theirs)
        steps = len(self.rows)
        expected = max(len(self.reference.steps), len(self.candidate.steps))
        elements = sum(math.prod(ours[name]) for name in names if ours[name] == theirs[name])
        total = sum(math.prod(shape) for shape in (theirs | ours).values())
        summary = f"steps {steps} of {expected}, names {len(names)} of {len(ours.keys() | theirs.keys())}, elements {elements} of {total}"
        padding = [name for name in ours.keys() ^ theirs.keys() if name.endswith("#padding")] + [
            name for name in names if ours[name] != theirs[name] and name.endswith("#padding")
        ]
        if padding:
            return Stage(
                "match", Status.NOT_COMPARABLE, f"vocabulary padding differs ({', '.join(sorted(padding))}); {summary}", tuple(findings)
            )
        wrong = [
            Finding(f"shape of {name}", show(list(ours[name])), show(list(theirs[name])))
            for name in sorted(names)
            if ours[name] != theirs[name]
        ]
        if missing or wrong:
            lacking = [Finding(f"{name} is missing", *(("there", "") if name in ours else ("", "there"))) for name in missing]
            return Stage("match", Status.NOT_COMPARABLE, f"the models differ in parameters; {summary}", tuple(lacking + wrong + findings))
        if not steps:
            return Stage("match", Status.NOT_COMPARABLE, f"no step was completed by both; {summary}", tuple(findings))
        return Stage("match", Status.INCOMPLETE if findings else Status.SAME, summary, tuple(findings))

    @staticmethod
    def _pieces(run: Any) -> dict[str, tuple[int, ...]]:
        return {shard.name: shard.shape for rank in run.manifests for shard in run.shards(rank)}

    def _missing(self, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
        return [
            name for name in sorted(ours.keys() ^ theirs.keys()) if not any(fnmatchcase(name, pattern) for pattern in self.allow_missing)
        ]

    def hyper_parameters(self) -> Stage:
        """What the optimizers were built with, and the learning rate of every step."""
        self.progress("hyper-parameters")
        one, other = (run.manifest.get("optimizer") for run in (self.reference, self.candidate))
        if not one or not other:
            return Stage("hyper-parameters", Status.NOT_COMPARED, "a run has no run.json, so they are not known")
        findings = hyper_parameters(one, other)
        rates = [(ours, theirs) for ours, theirs in self.rows if not _rates_equal(ours["learning_rate"], theirs["learning_rate"])]
        if rates:
            ours, theirs = rates[0]
            what = (
                f"learning rate at {_when(ours['step'])} (and {len(rates) - 1} later steps)"
                if len(rates) > 1
                else f"learning rate at {_when(ours['step'])}"
            )
            findings.append(Finding(what, show(ours["learning_rate"]), show(theirs["learning_rate"])))
        status = Status.DIFFERENT if findings else Status.SAME
        return Stage(
            "hyper-parameters",
            status,
            f"{len(one['groups'])} and {len(other['groups'])} groups, learning rate of {len(self.rows)} steps",
            tuple(findings),
        )

    def batches(self) -> Stage:
        """What the models consumed, element by element, and the number of tokens that count."""
        self.progress("batches")
        counts = [
            Finding(f"valid tokens at {_when(ours['step'])}", str(ours["valid_tokens"]), str(theirs["valid_tokens"]))
            for ours, theirs in self.rows
            if ours["valid_tokens"] != theirs["valid_tokens"]
        ]
        why = self._only_one("batch_steps")
        if why:
            status = Status.DIFFERENT if counts else Status.NOT_COMPARED
            return Stage("batches", status, f"{why}; valid tokens of {len(self.rows)} steps compared", tuple(counts[:WORST]))
        steps = self._both("batch_steps")
        findings = []
        for step in steps:
            self.progress(f"batch of step {step}")
            findings += _batch_differences(self.reference.batch(step), self.candidate.batch(step), step)
        findings += counts
        lost = self._lost("batch_steps")
        status = Status.DIFFERENT if findings else Status.INCOMPLETE if lost else Status.SAME
        return Stage("batches", status, f"{len(steps)} steps, every element{lost}", tuple(findings[:WORST]))

    def _lost(self, steps: str) -> str:
        """Steps that both runs made and one did not record although it recorded the kind; empty where all is there."""
        ours, theirs = (set(getattr(run, steps)()) for run in (self.reference, self.candidate))
        common = {row["step"] for row, _ in self.rows}
        settings = [run.manifest.get("settings", {}).get(_SETTING[steps]) for run in (self.reference, self.candidate)]
        differing = sorted((ours ^ theirs) & common)
        if not differing or settings[0] != settings[1]:
            return f" ({len(differing)} recorded by one only)" if differing and not ours & theirs else ""
        return f"; missing in one: step {differing[0]}" + (f" and {len(differing) - 1} more" if len(differing) > 1 else "")

    def initial_weights(self) -> Stage:
        """The weights that both runs start from; equal to the bit where they were handed over."""
        why = self._only_one("weight_steps")
        first = self.rows[0][0]["step"] if self.rows else 0
        if why or first not in self._both("weight_steps"):
            return Stage("initial weights", Status.NOT_COMPARED, why or f"not both recorded weights {first}")
        self.compared += 1
        found = self._tensor_errors("weights", first, 0.0)
        wrong = [finding for finding in found if finding.excess > 1]
        return Stage("initial weights", Status.DIFFERENT if wrong else Status.SAME, f"{len(found)} tensors, to the bit", _worst(found))

    def first_loss(self) -> Stage:
        """The loss of the first common step: the forward computation."""
        if not self.rows:
            return Stage("step-0 loss", Status.NOT_COMPARED, "no common step")
        ours, theirs = self.rows[0]
        findings = self._loss_findings(ours, theirs, self.limits.loss)
        if not findings:
            return Stage("step-0 loss", Status.NOT_COMPARED, "a run has no loss at its first step")
        if any(not math.isfinite(ours[key]) for key in ("loss", "objective_loss") if ours[key] is not None):
            return Stage(
                "step-0 loss", Status.NOT_COMPARABLE, f"the reference's loss is {ours['loss']}; record a healthy reference", findings
            )
        self.compared += 1
        wrong = any(finding.excess > 1 for finding in findings)
        name = "step-0 loss" if ours["step"] == 0 else f"first loss (step {ours['step']})"
        return Stage(name, Status.DIFFERENT if wrong else Status.SAME, f"loss and objective at {_when(ours['step'])}", findings)

    def _loss_findings(self, ours: dict[str, Any], theirs: dict[str, Any], limit: float) -> tuple[Finding, ...]:
        found: list[Finding] = []
        for key in ("loss", "objective_loss"):
            if ours[key] is not None and theirs[key] is not None:
                error = relative_difference(ours[key], theirs[key])
                found.append(Finding(f"{key} at {_when(ours['step'])}", f"{ours[key]:.9g}", f"{theirs[key]:.9g}", error, limit))
        return tuple(sorted(found, key=lambda finding: -finding.excess))

    def local_norms(self) -> Stage:
        """Norms of exact steps."""
        return self._exact_stage("local norms", "local_norm_steps", self._norm_errors, self.limits.norm)

    def gradients(self) -> Stage:
        """Gradients of exact steps, tensor by tensor."""
        return self._exact_stage(
            "gradients", "gradient_steps", lambda step, limit: self._tensor_errors("gradients", step, limit), self.limits.gradient
        )

    def _exact_stage(self, name: str, steps: str, errors: Callable[[int, float], list[Finding]], limit: float) -> Stage:
        why = self._only_one(steps)
        exact = [step for step in self._both(steps) if self.is_exact(step)]
        if why or not exact:
            return Stage(name, Status.NOT_COMPARED, why or "no recorded step stands on equal weights in both runs")
        self.compared += 1
        found = [finding for step in exact for finding in errors(step, limit)]
        bad = [finding for finding in found if finding.excess > 1]
        lost = self._lost(steps)
        if any(finding.reference == "nan" for finding in bad):
            return Stage(name, Status.NOT_COMPARABLE, "the reference holds NaN or infinity; record a healthy reference", _worst(bad))
        status = Status.DIFFERENT if bad else Status.INCOMPLETE if lost else Status.SAME
        return Stage(name, status, f"{len(found)} tensors at {_steps(exact)}{lost}", _worst(found))

    def _norm_errors(self, step: int, limit: float) -> list[Finding]:
        self.progress(f"local norms of step {step}")
        ours, theirs = self.reference.local_norms(step), self.candidate.local_norms(step)
        largest = max(ours.values(), default=0.0)
        return [
            Finding(
                f"{name} at {_when(step)}",
                f"{ours[name]:.9g}",
                f"{theirs[name]:.9g}",
                _norm_error(ours[name], theirs[name], largest),
                limit,
            )
            for name in ours.keys() & theirs.keys()
        ]

    def _tensor_errors(self, kind: str, step: int, limit: float) -> list[Finding]:
        ours, theirs = getattr(self.reference, kind)(step), getattr(self.candidate, kind)(step)
        found: list[Finding] = []
        for name in ours:
            if name in theirs and ours.shape(name) == theirs.shape(name):
                self.progress(f"{kind} of step {step}: {name}")
                one, other = ours[name], theirs[name]
                error = relative_error(one, other)
                found.append(Finding(f"{name} at {_when(step)}", _finite(one), _finite(other), error, limit))
        return found

    def later_losses(self) -> Stage:
        """Losses and skipped steps after the first."""
        later = self.rows[1:]
        if not later:
            return Stage("later losses", Status.NOT_COMPARED, "the runs have one step in common")
        self.compared += 1
        found: list[Finding] = []
        skipped: list[Finding] = []
        for ours, theirs in later:
            limit = self.limits.loss if self.is_exact(ours["step"]) else self.limits.free_loss(ours["step"])
            found += self._loss_findings(ours, theirs, limit)[:1]
            if ours["skipped"] != theirs["skipped"]:
                skipped.append(Finding(f"skipped at {_when(ours['step'])}", str(ours["skipped"]), str(theirs["skipped"])))
        if skipped:
            return Stage("later losses", Status.DIFFERENT, "an overflow skipped an update on one side only", tuple(skipped[:WORST]))
        return Stage("later losses", self._drift(found), f"{len(later)} steps{self._first_out(found)}", _worst(found))

    def later_tensors(self) -> Stage:
        """Norms, gradients and weights of free-running steps, beside what an honest pair gives."""
        found: list[Finding] = []
        first = self.rows[0][0]["step"] if self.rows else 0
        parts = []
        for kind, steps in (("local norms", "local_norm_steps"), ("gradients", "gradient_steps"), ("weights", "weight_steps")):
            free = [step for step in self._both(steps) if not self.is_exact(step) and step > first]
            for step in free:
                errors = (
                    self._norm_errors(step, self.limits.free)
                    if kind == "local norms"
                    else self._tensor_errors(kind, step, self.limits.free)
                )
                found += [Finding(f"{kind}: {one.what}", one.reference, one.candidate, one.error, one.limit) for one in errors]
            if free:
                parts.append(f"{kind} of {len(free)} steps")
        if not found:
            return Stage("free-running steps", Status.NOT_COMPARED, "no tensors or norms of later steps in both runs")
        return Stage("free-running steps", self._drift(found), ", ".join(parts), _worst(found))

    def _drift(self, found: list[Finding]) -> Status:
        worst = max((finding.excess for finding in found), default=0.0)
        return Status.SAME if worst <= 1 else Status.INCONCLUSIVE if worst <= self.limits.clear else Status.DIFFERENT

    @staticmethod
    def _first_out(found: list[Finding]) -> str:
        out = next((finding for finding in found if finding.excess > 1), None)
        return f"; first beyond its limit: {out.what}" if out else ""


_SETTING = {"batch_steps": "batches", "local_norm_steps": "local_norms", "gradient_steps": "gradients", "weight_steps": "weights"}


def _batch_differences(ours: Any, theirs: Any, step: int) -> list[Finding]:
    one, other = ours.arrays(), theirs.arrays()
    found: list[Finding] = []
    counts = one.get("loss_mask")
    for name in ("tokens", "labels", "loss_mask", "position_ids"):
        if name not in one or name not in other:
            continue
        if one[name].shape != other[name].shape:
            found.append(Finding(f"{name} of {_when(step)}: shape", show(list(one[name].shape)), show(list(other[name].shape))))
            continue
        wrong = one[name] != other[name]
        if name == "labels" and counts is not None and counts.shape == wrong.shape:
            wrong = wrong & (counts > 0)  # a label that does not count may be anything
        if wrong.any():
            place = tuple(int(index) for index in np.argwhere(wrong)[0])
            found.append(
                Finding(
                    f"{name} of {_when(step)}: {int(wrong.sum())} of {wrong.size} differ, first at {list(place)}",
                    str(one[name][place]),
                    str(other[name][place]),
                )
            )
    return found


def _norm_error(ours: float, theirs: float, largest: float) -> float:
    """Relative error of a norm; below 1e-7 of the largest norm of the step, rounding makes it, so it is taken of that."""
    return (
        relative_difference(ours, theirs)
        if not (ours < 1e-7 * largest)
        else abs(theirs - ours) / (1e-7 * largest)
        if largest
        else relative_difference(ours, theirs)
    )


def _finite(array: Any) -> str:
    return "" if np.isfinite(array).all() else "nan"


def _any_rate(row: Mapping[str, Any]) -> bool:
    rates = row["learning_rate"]
    return any(rates) if isinstance(rates, list) else rates != 0


def _rates_equal(one: Any, other: Any) -> bool:
    """Rates are per group where groups differ; groups may be counted differently, so their distinct values are compared."""
    ours, theirs = (sorted(set(rate)) if isinstance(rate, list) else [rate] for rate in (one, other))
    return equal(ours, theirs)


def _when(step: int) -> str:
    """A step as people meet it: our number, and the iteration that both frameworks print."""
    return f"step {step} (iteration {step + 1})"


def _steps(steps: Sequence[int]) -> str:
    return _when(steps[0]) if len(steps) == 1 else f"{len(steps)} steps, {steps[0]} to {steps[-1]}"


def _worst(found: Sequence[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(found, key=lambda finding: -finding.excess)[:WORST])
