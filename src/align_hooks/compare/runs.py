"""The ladder: matched of expected, hyper-parameters, batches, weights, first loss, norms, gradients, what came later.

The order is that of a training step, so the first stage that differs is the earliest place where the runs part. Exact
steps, where both runs stand on the same weights, have tight limits; free-running ones only drift (see
:mod:`align_hooks.compare.pair` and :mod:`align_hooks.compare.limits`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

import numpy as np

from align_hooks.compare import token_losses
from align_hooks.compare.acceptance import acceptance
from align_hooks.compare.after_update import weights_after_update
from align_hooks.compare.batches import differences, weights_of_tokens
from align_hooks.compare.blame import blame
from align_hooks.compare.findings import (
    WORST,
    Progress,
    furthest,
    judged,
    labelled,
    losses,
    norm_errors,
    rates_equal,
    steps_text,
    tensor_errors,
    when,
)
from align_hooks.compare.limits import CLIPPING
from align_hooks.compare.measures import relative_difference
from align_hooks.compare.noise import FACTOR, FLOOR, Noise
from align_hooks.compare.pair import Pair
from align_hooks.compare.settings import by_parameter, hyper_parameters, model_settings, show
from align_hooks.compare.sharding import explanation, objective_alone
from align_hooks.compare.verdict import Comparison, Finding, Stage, Status, decide


def compare(
    reference: Any,
    candidate: Any,
    *,
    noise: Sequence[Any] = (),
    allow_missing: Sequence[str] = (),
    progress: Progress = lambda message: None,
) -> Comparison:
    """Compare two runs, made by ``open_run``.

    ``noise`` are repeats of the reference, of which limits are measured; ``allow_missing`` are patterns of canonical names that one
    side may lack.
    """
    pair = Pair(reference, candidate)
    return Ladder(pair, Noise(pair, noise), tuple(allow_missing), progress).climb()


@dataclass
class Ladder:
    """One comparison under way. ``compared`` counts the stages of numbers that really compared some; ``where`` is where along the
    sequence token losses part."""

    pair: Pair
    noise: Noise
    allow_missing: tuple[str, ...]
    progress: Progress
    compared: int = 0
    where: token_losses.Where = token_losses.Where.NOWHERE

    def climb(self) -> Comparison:
        """All stages in order, and their verdict."""
        stages: list[Stage] = []
        for stage in (
            self.match,
            self.self_check,
            self.hyper_parameters,
            self.batches,
            self.initial_weights,
            self.token_losses,
            self.first_loss,
            self.local_norms,
            self.gradients,
            self.clipping,
            self.weights_after_update,
            self.later_losses,
            self.later_tensors,
            self.model_settings,
        ):
            self.progress(stage.__name__.replace("_", " "))
            stages.append(stage())
            if stages[0].status is Status.NOT_COMPARABLE and len(stages) == 4:  # no tensor of one model says anything of the other
                break
        verdict, first = decide(stages, self.compared)
        accepted = acceptance(self.pair.rows)
        settings = tuple(self._settings())
        blamed = blame(first, stages, settings, self.where)
        notes, measured = tuple(self._notes()), self.noise.measured()
        return Comparison(verdict, first, tuple(stages), self.pair.limits.eps, accepted, settings, notes, blamed, measured)

    def _settings(self) -> list[Finding]:
        models = [run.manifest.get("model") or {} for run in self.pair.both]
        return model_settings(*models) if all(models) else []

    def _notes(self) -> list[str]:
        """What a reader should know beside the verdict."""
        notes = [self._limits_note()]
        notes += [f"{side}: {one}" for side, run in zip(("reference", "candidate"), self.pair.both, strict=True) for one in run.problems]
        ours, theirs = self.pair.compute_types
        if ours and theirs and ours != theirs:
            notes.append(f"the reference computes in {ours}, the candidate in {theirs}: a comparison in fp32 would tell more")
        steps = [len(run.steps) for run in self.pair.both]
        if steps[0] != steps[1]:
            notes.append(f"the reference made {steps[0]} steps, the candidate {steps[1]}: only common ones were compared")
        return notes

    def _limits_note(self) -> str:
        if not self.noise.repeats:
            return self.pair.limits_note
        runs = ", ".join(str(run.path) for run in self.noise.repeats)
        least = f"at least {FLOOR:g} eps ({self.pair.limits.eps:.3g})"
        return f"limits are {FACTOR:g} times the noise measured on {runs}, tensor by tensor, {least}"

    # ---- before any number

    def match(self) -> Stage:
        """How much of the two runs can be laid side by side."""
        problems = [
            Finding(problem, side) for side, run in zip(("reference", "candidate"), self.pair.both, strict=True) for problem in run.problems
        ]
        for side, run in zip(("reference", "candidate"), self.pair.both, strict=True):
            if not run.steps:
                return Stage(
                    "match", Status.NOT_COMPARABLE, f"the {side} recorded no whole step; see its log, and record it again", tuple(problems)
                )
            if self.noise.problem:
                return Stage("match", Status.NOT_COMPARABLE, self.noise.problem)
            if (run.manifest.get("settings") or {}).get("perturb"):
                moved = f"of the {side} every weight was moved by ALIGN_HOOKS_PERTURB: it is for --noise; record the run without"
                return Stage("match", Status.NOT_COMPARABLE, moved, tuple(problems))
            if run.missing:
                return Stage("match", Status.NOT_COMPARABLE, f"of the {side} {run.missing}; copy or record every rank", tuple(problems))
        ours, theirs = (self.pair.pieces(run) for run in self.pair.both)
        names, shared = ours.keys() & theirs.keys(), {name for name in ours if ours[name] == theirs.get(name)}
        steps, expected = len(self.pair.rows), max(len(run.steps) for run in self.pair.both)
        elements, total = (sum(map(math.prod, shapes)) for shapes in ([ours[name] for name in shared], (theirs | ours).values()))
        summary = f"steps {steps} of {expected}, names {len(names)} of {len(ours.keys() | theirs.keys())}, elements {elements} of {total}"
        padding = sorted(name for name in (ours.keys() | theirs.keys()) - shared if name.endswith("#padding"))
        if padding:
            return Stage("match", Status.NOT_COMPARABLE, f"vocabulary padding differs ({', '.join(padding)}); {summary}", tuple(problems))
        apart = [Finding(f"shape of {name}", show(list(ours[name])), show(list(theirs[name]))) for name in sorted(names - shared)]
        missing = [name for name in sorted(ours.keys() ^ theirs.keys()) if not any(fnmatchcase(name, one) for one in self.allow_missing)]
        apart += [Finding(f"{name} is missing", *(("there", "-") if name in ours else ("-", "there"))) for name in missing]
        if apart:
            return Stage("match", Status.NOT_COMPARABLE, f"the models differ in parameters; {summary}", tuple(apart + problems))
        if not steps:
            return Stage("match", Status.NOT_COMPARABLE, f"no step was completed by both; {summary}", tuple(problems))
        return Stage("match", Status.INCOMPLETE if problems else Status.SAME, summary, tuple(problems))

    def self_check(self) -> Stage:
        """Whether each record holds every element once, by the norm that its framework took, and copies that are copies."""
        checks = {side: run.self_check for side, run in zip(("reference", "candidate"), self.pair.both, strict=True) if run.manifests}
        found = [
            Finding(f"the {side}'s {one.what} at {when(one.step)}", one.one, one.other)
            for side, check in checks.items()
            for one in check.contradictions
        ]
        held = [f"{len(check.steps)} of {len(check.steps) + len(check.unchecked)} of the {side}" for side, check in checks.items()]
        copies, inexact = sum(check.copies for check in checks.values()), max((check.inexact for check in checks.values()), default=0.0)
        of_steps = " and ".join(held) or "of none"
        summary = f"norms of steps {of_steps} are the frameworks' own (their rounding {inexact:.1e}), {copies} copies alike"
        if found:
            said = f"a record contradicts itself in {len(found)} ways: its layout loses, repeats or does not reduce something"
            return Stage("self-check", Status.DIFFERENT, said, tuple(found[:WORST]))
        checked = bool(checks) and all(check.steps or not check.unchecked for check in checks.values())
        checked = checked and any(check.steps for check in checks.values())
        bare = [side for side, check in checks.items() if not check.steps]
        none = (
            f"of the {' and the '.join(bare) or 'runs'} no step's norms were recorded beside the framework's own (ALIGN_HOOKS_LOCAL_NORMS)"
        )
        none += f"; {copies} copies alike" if copies else ""
        return Stage("self-check", Status.SAME if checked else Status.NOT_COMPARED, summary if checked else none)

    def hyper_parameters(self) -> Stage:
        """What the optimizers were built with, and the learning rate of every step."""
        name = "hyper-parameters"
        one, other = (run.manifest.get("optimizer") for run in self.pair.both)
        if not one or not other:
            return Stage(name, Status.NOT_COMPARED, "a run has no run.json, so they are not known")
        findings = hyper_parameters(one, other)
        rates = [(ours, theirs) for ours, theirs in self.pair.rows if not rates_equal(ours["learning_rate"], theirs["learning_rate"])]
        if rates:
            ours, theirs = rates[0]
            more = f" (and at {len(rates) - 1} later steps)" if len(rates) > 1 else ""
            findings.append(
                Finding(f"learning rate at {when(ours['step'])}{more}", show(ours["learning_rate"]), show(theirs["learning_rate"]))
            )
        shared = by_parameter(one).keys() & by_parameter(other).keys()
        summary = f"of {len(shared)} parameters, learning rate of {len(self.pair.rows)} steps"
        status = Status.DIFFERENT if findings else Status.SAME if shared else Status.INCOMPLETE
        return Stage(name, status, summary, tuple(findings))

    def batches(self) -> Stage:
        """What the models consumed, element by element, and the number of tokens that count."""
        counts = [
            Finding(f"valid tokens at {when(ours['step'])}", str(ours["valid_tokens"]), str(theirs["valid_tokens"]))
            for ours, theirs in self.pair.rows
            if None not in (ours["valid_tokens"], theirs["valid_tokens"]) and ours["valid_tokens"] != theirs["valid_tokens"]
        ]
        steps, gaps = self.pair.steps("batches"), self.pair.gaps("batches")
        findings: list[Finding] = []
        for step in steps:
            self.progress(f"batch of step {step}")
            ours, theirs = self._first_batches if step == self.pair.first else [run.batch(step) for run in self.pair.both]
            found, alone = differences(ours, theirs, when(step))
            findings += found
            gaps += [f"{what} in one run only" for what in alone]
        findings += counts
        if not findings and self.pair.first in steps and (why := self._normalisation()):
            return Stage("batches", Status.NOT_COMPARABLE, why)
        summary = f"{len(steps)} steps, every element" if steps else f"{self.pair.why_not('batches')}; numbers of valid tokens compared"
        status = Status.DIFFERENT if findings else Status.INCOMPLETE if gaps else Status.SAME if steps else Status.NOT_COMPARED
        return Stage("batches", status, "; ".join([summary, *gaps[:1]]), tuple(findings[:WORST]))

    @cached_property
    def _first_batches(self) -> list[Any]:
        """Both batches of the first common step, which three stages look at, read once."""
        return [run.batch(self.pair.first) for run in self.pair.both]

    def _normalisation(self) -> str | None:
        """Why the two sides weigh the same tokens differently in what they differentiate, None where they do not."""
        per_token = [bool(run.manifest.get("training", {}).get("per_token_loss")) for run in self.pair.both]
        one, other = (weights_of_tokens(batch, whole) for batch, whole in zip(self._first_batches, per_token, strict=True))
        if one is None or other is None or one.shape != other.shape or np.allclose(one, other, rtol=1e-9, atol=0):
            return None
        return (
            "loss normalisation differs: tokens of micro-batches with unequal masks weigh differently on the two sides; "
            "train both with the same micro-batches, or with a per-token loss on both"
        )

    # ---- exact steps

    def initial_weights(self) -> Stage:
        """The weights that both runs start from; equal to the bit where they were handed over."""
        steps = [step for step in self.pair.steps("weights") if step == self.pair.first]
        stage = self._exact_stage("initial weights", "weights", steps, lambda step: self._tensors("weights", step, 0.0))
        if stage.status is Status.DIFFERENT and not (self.pair.candidate.manifest.get("settings") or {}).get("load_weights"):
            return replace(stage, summary=f"{stage.summary}; the candidate loaded none: set ALIGN_HOOKS_LOAD_WEIGHTS")
        return stage

    def token_losses(self) -> Stage:
        """Each token's loss at the first common step, before the mask: the forward computation alone."""
        name, first = "token losses", self.pair.first
        if first is None or first not in self.pair.steps("batches"):
            return Stage(name, Status.NOT_COMPARED, self.pair.why_not("batches"))
        losses = token_losses.compared(*self._first_batches)
        if losses is None:
            return Stage(name, Status.NOT_COMPARED, "a run shows none: its script or loss keeps them to itself")
        self.compared += 1
        limit = self.noise.limit("token_losses", first, "token losses", self.pair.limits.tokens)
        found, self.where = token_losses.finding(losses, first, limit)
        return judged(name, f"{losses[0].size} tokens at {when(first)}", [found])

    def first_loss(self) -> Stage:
        """The loss of the first common step: the forward computation."""
        rows = self.pair.rows[:1]
        name = "step-0 loss" if self.pair.first in (0, None) else f"first loss (step {self.pair.first})"
        findings = [
            finding
            for ours, theirs in rows
            for finding in losses(ours, theirs, self.noise.limits("losses", ours["step"], self.pair.limits.loss))
        ]
        if not findings:
            return Stage(name, Status.INCOMPLETE, "a run has no loss at its first step")
        self.compared += 1
        stage = judged(name, f"loss and objective at {when(rows[0][0]['step'])}", findings)
        why = objective_alone(self.pair.both, findings) if stage.status is Status.DIFFERENT else ""
        return stage.telling(why)

    def local_norms(self) -> Stage:
        """Norms of exact steps."""
        steps = [step for step in self.pair.steps("local_norms") if self.pair.is_exact(step)]
        return self._exact_stage("local norms", "local_norms", steps, lambda step: self._norms(step, self.pair.limits.norm))

    def gradients(self) -> Stage:
        """Gradients of exact steps, tensor by tensor."""
        steps = [step for step in self.pair.steps("gradients") if self.pair.is_exact(step)]
        return self._exact_stage("gradients", "gradients", steps, lambda step: self._tensors("gradients", step, self.pair.limits.gradient))

    def _exact_stage(self, name: str, kind: str, steps: list[int], errors: Callable[[int], list[Finding]]) -> Stage:
        gaps = self.pair.gaps(kind)
        by_step = {step: errors(step) for step in steps}
        found = [finding for one in by_step.values() for finding in one]
        if found:
            self.compared += 1
            exact = "to the bit" if kind == "weights" else f"at {steps_text(steps)}"
            stage = judged(name, "; ".join([f"{len(found)} tensors, {exact}", *gaps[:1]]), found, incomplete=bool(gaps), most=None)
            why = explanation(self.pair.both, kind, steps[0], by_step[steps[0]]) if stage.status is Status.DIFFERENT else ""
            return stage.telling(why)
        if gaps or steps:
            return Stage(name, Status.INCOMPLETE, gaps[0] if gaps else "the two runs have no tensor in common")
        free = "no recorded step stands on equal weights in both runs"
        return Stage(name, Status.NOT_COMPARED, free if self.pair.steps(kind) else self.pair.why_not(kind))

    def _norms(self, step: int, default: float) -> list[Finding]:
        return norm_errors(self.pair, step, self.noise.limits("local_norms", step, default))

    def _tensors(self, kind: str, step: int, default: float) -> list[Finding]:
        limit = self.noise.limits(kind, step, default) if default else lambda name: default  # to the bit, whatever noise there is
        return tensor_errors(self.pair, kind, step, limit, self.progress)

    # ---- every step, and what came later

    def clipping(self) -> Stage:
        """The global norm that each framework clipped by, its coefficient, and skipped updates, at every step."""
        findings, skipped = [], []
        for ours, theirs in self.pair.rows:
            for key in ("grad_norm", "clip_coefficient") if ours["step"] not in self.pair.skipped else ():
                if ours[key] is not None and theirs[key] is not None:
                    error = relative_difference(ours[key], theirs[key])
                    findings.append(Finding(f"{key} at {when(ours['step'])}", f"{ours[key]:.9g}", f"{theirs[key]:.9g}", error, CLIPPING))
            if ours["skipped"] != theirs["skipped"]:
                skipped.append(Finding(f"skipped at {when(ours['step'])}", str(ours["skipped"]), str(theirs["skipped"])))
        summary = f"global norm, coefficient and skipped updates of {len(self.pair.rows)} steps"
        if skipped:
            return Stage("clipping", Status.DIFFERENT, f"an overflow skipped an update on one side only; {summary}", tuple(skipped[:WORST]))
        if not findings:
            return Stage("clipping", Status.NOT_COMPARED, "a run has no gradient norm")
        exact = [finding for finding in findings[:2] if self.pair.first is not None]
        stage = judged("clipping", summary, exact)
        return stage if stage.status is not Status.SAME else self._drifting("clipping", summary, [], findings)

    def weights_after_update(self) -> Stage:
        """Weights after injected updates, and what each optimizer made of its gradients."""
        stage = weights_after_update(self.pair, self.progress)
        self.compared += stage.status in (Status.SAME, Status.DIFFERENT)
        return stage

    def later_losses(self) -> Stage:
        """Losses after the first."""
        exact: list[Finding] = []
        free: list[Finding] = []
        for ours, theirs in self.pair.rows[1:]:
            still = self.pair.is_exact(ours["step"])
            limit = self.pair.limits.loss if still else self.pair.limits.free_loss(ours["step"])
            (exact if still else free).extend(losses(ours, theirs, self.noise.limits("losses", ours["step"], limit))[:1])
        if not exact and not free:
            status = Status.INCOMPLETE if len(self.pair.rows) > 1 else Status.NOT_COMPARED
            return Stage("later losses", status, "the runs have no later loss in common")
        self.compared += 1
        out = next((finding.what for finding in [*exact, *free] if finding.excess > 1), None)
        summary = f"{len(exact) + len(free)} steps" + (f"; first beyond its limit: {out}" if out else "")
        lost = len(self.pair.rows) - 1 - len(exact) - len(free)
        stage = self._drifting("later losses", summary, exact, free)
        return (
            replace(stage, status=Status.INCOMPLETE, summary=f"{summary}; {lost} without a loss")
            if lost and stage.status is Status.SAME
            else stage
        )

    def later_tensors(self) -> Stage:
        """Norms, gradients and weights of free-running steps, beside what an honest pair gives; weights at a rate of 0."""
        exact: list[Finding] = []
        free: list[Finding] = []
        parts, gaps = [], []
        limit = self.pair.limits.free
        kinds: tuple[tuple[str, Callable[[int, float], list[Finding]]], ...] = (
            ("local_norms", self._norms),
            ("gradients", lambda step, limit: self._tensors("gradients", step, limit)),
            ("weights", lambda step, limit: self._tensors("weights", step, limit)),
        )
        for kind, errors in kinds:
            steps = [
                step for step in self.pair.steps(kind) if step != self.pair.first and not (kind != "weights" and self.pair.is_exact(step))
            ]
            if kind == "weights":
                steps = [step for step in steps if step not in self.pair.handed]
            for step in steps:
                still = kind == "weights" and self.pair.is_still(step)
                (exact if still else free).extend(labelled(kind, errors(step, 0.0 if still else limit)))
            parts += [f"{kind.replace('_', ' ')} of {len(steps)} steps"] if steps else []
            gaps += self.pair.gaps(kind)
        if not exact and not free:
            return Stage("free-running steps", Status.NOT_COMPARED, "no tensors or norms of later steps in both runs")
        stage = self._drifting("free-running steps", ", ".join(parts), exact, free)
        return (
            replace(stage, status=Status.INCOMPLETE, summary=f"{stage.summary}; {gaps[0]}")
            if gaps and stage.status is Status.SAME
            else stage
        )

    def model_settings(self) -> Stage:
        """Settings of the model that differ although nothing recorded shows it: some faults hide from losses for long."""
        found = self._settings()
        if not all(run.manifest.get("model") for run in self.pair.both):
            return Stage("model settings", Status.NOT_COMPARED, "a run has no run.json, so they are not known")
        status = Status.INCONCLUSIVE if found else Status.SAME
        return Stage("model settings", status, "as the built models hold them", tuple(found))

    def _drifting(self, name: str, summary: str, exact: Sequence[Finding], free: Sequence[Finding]) -> Stage:
        """Exact findings are in or out; free ones drift, and between limit and ``clear`` only measured noise could tell."""
        found = [*exact, *free]
        bad = max((finding.excess for finding in exact), default=0.0) > 1
        worst = max((finding.excess for finding in free), default=0.0)
        if worst <= 1 and not bad:
            return Stage(name, Status.SAME, summary, furthest(found))
        if bad or worst > self.pair.limits.clear:
            return judged(name, summary, found)
        return Stage(name, Status.INCONCLUSIVE, summary, furthest(found))
