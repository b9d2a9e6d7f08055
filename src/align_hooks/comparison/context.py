"""One comparison under way: the pair, its limits, and what its stages share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from align_hooks.comparison.control_band.banded import Banded, banded
from align_hooks.comparison.data.batches import BatchEvidence
from align_hooks.comparison.data.overridden import DataOverride, changes
from align_hooks.comparison.data.random_states import Drawn, first_difference
from align_hooks.comparison.finding import Finding, Metric, Words, limit_ratio, when
from align_hooks.comparison.findings import Limit, as_finding, contradicted_by, tensor_errors, worse_loss, worst_findings
from align_hooks.comparison.metrics import distances, rounding_alone
from align_hooks.comparison.metrics.limits import limits_for
from align_hooks.comparison.metrics.noise import Noise
from align_hooks.comparison.pair import Pair
from align_hooks.comparison.settings.arguments import recomputes
from align_hooks.comparison.settings.recorded import argument_settings, model_settings
from align_hooks.comparison.verdict import replayed_sides
from align_hooks.messages import Message, Side, all_of, message, terms
from align_hooks.process.work import WorkPool
from align_hooks.quantities.weights import unknown_of
from align_hooks.record.read.batch import Batch
from align_hooks.record.read.batch_statistics import problems_of

Decode: TypeAlias = Callable[[Sequence[int]], str]
"""What makes text of ids."""


@dataclass
class ComparisonContext:
    """What every stage is handed."""

    pair: Pair
    noise: Noise
    allow_missing: tuple[str, ...]
    work: WorkPool
    points: dict[int, list[Finding]] = field(default_factory=dict)
    """The findings of the points of a step, which two stages read; kept, for they take all tensors."""
    decode: Decode | None = None
    """A tokenizer's, where one was named."""

    @cached_property
    def first_batches(self) -> list[Batch]:
        """The batches of the first common step, which three stages look at, read once."""
        return [run.batch(self.pair.first or 0) for run in self.pair.runs]

    def batches(self, step: int) -> list[Batch]:
        """The reference's and the candidate's batch of a step; those of the first are kept."""
        return self.first_batches if step == self.pair.first else [run.batch(step) for run in self.pair.runs]

    @cached_property
    def settings(self) -> list[Finding]:
        """Settings of the model that differ, the compute type first, those that its configuration has no place for last."""
        models = [run.facts.model for run in self.pair.runs]
        subject = message("settings.compute_type")
        types = self.pair.unlike_types
        finding = [Finding(subject, *types, name="compute type", quantity=Metric.MODEL_SETTING)] if types else []
        facts = [run.facts for run in self.pair.runs]
        return finding + (model_settings(*models) + argument_settings(*facts) if all(models) else [])

    @cached_property
    def changes(self) -> dict[Side, tuple[DataOverride, ...]]:
        """What was changed of the configuration of each side that changes numbers."""
        fed = replayed_sides(*(run.facts for run in self.pair.runs))
        return {side: tuple(one for one in changes(run.facts) if not (fed and one.row.is_of_order)) for side, run in self.pair.sides}

    @cached_property
    def drawn(self) -> Drawn | None:
        """Where the runs first drew from generators in different states."""
        return first_difference(self.pair)

    @cached_property
    def near_step(self) -> int | None:
        """The first step whose loss clearly parts although the weights before it are as close as those of honest free-running runs; None
        where the losses follow from weights that parted, or nobody recorded these."""
        pair = self.pair
        clear = 1.0 if self.noise.repeats else pair.limits.clear
        for ours, theirs in pair.rows[1:]:
            distance = worse_loss(ours, theirs, limit := self.loss_limit(ours.step))
            if not pair.is_exact(ours.step) and distance and limit_ratio(distance.error, limit(distance.name)) > clear:
                known = ours.step in pair.known("weights")
                weights = self.tensors(Metric.WEIGHTS.value, ours.step, pair.limits.free) if known else []
                return ours.step if weights and all(finding.limit_ratio <= 1 for finding in weights) else None
        return None

    @cached_property
    def bands(self) -> tuple[Banded, ...]:
        """The numbers that are judged as a whole, against the band that repeats of the reference make."""
        return banded(self.pair, self.noise)

    def is_banded(self, step: int | None) -> bool:
        """Whether a band judges a step: then no limit of one step does, for in a long run some step is always far off."""
        return bool(self.bands) and all(step in band.steps for band in self.bands) and not self.pair.is_exact(step or 0)

    def loss_limit(self, step: int) -> Limit:
        """What the loss of a step may differ by: little on equal weights, more the longer the runs drift."""
        limits = self.pair.limits
        return self.noise.limits("losses", step, limits.loss if self.pair.is_exact(step) else limits.free_loss(step))

    def norms(self, step: int, default: float, *, worst_only: bool = False) -> list[Finding]:
        """Relative differences of the norms of a step, by measured limits, or by ``default``; with ``worst_only`` those alone that a
        judgement of all of them needs."""
        limit = self.noise.limits("local_norms", step, default)
        measured = list(distances.local_norms(*self.pair.runs, step, self.pair.limits.eps))
        if worst_only:
            return worst_findings([(step, distance, limit) for distance in measured], Metric.LOCAL_NORMS)
        return [as_finding(distance, step, limit, Metric.LOCAL_NORMS) for distance in measured]

    def tensors(self, kind: str, step: int, default: float) -> list[Finding]:
        """Gradients or weights of a step, stored or sketched; a ``default`` of 0 is to the bit, whatever noise there is."""
        limit = self.noise.limits(kind, step, default) if default else lambda name: default
        drifts = default and kind == Metric.WEIGHTS
        apart = rounding_alone.drift(*self.pair.runs, step, self.pair.limits.eps) if drifts else {}
        return tensor_errors(self.pair, kind, step, limit, self.work, apart)

    def notes(self, batches: BatchEvidence) -> list[Words]:
        """What a reader should know beside the verdict: where limits come from, why a run is not whole, what makes the pair unequal."""
        notes: list[Words] = [*self.notes_of_data(batches), self._limits_note()]
        sides = self.pair.sides
        notes += [message("notes.of_side", side=side, problem=problem.message) for side, run in sides for problem in run.problems]
        if types := self.pair.unlike_types:
            coarser, _ = limits_for(*types)
            notes.append(message("notes.compute_types", reference=types[0], candidate=types[1], coarser=coarser))
        for side, run in sides:
            if run.unrecorded_inputs:
                notes.append(message("notes.unrecorded_inputs", side=side, names=terms(run.unrecorded_inputs)))
            if unknown := unknown_of(run.facts.model):
                notes.append(message("notes.unknown_settings", side=side, names=terms(unknown)))
        for side, names in self.pair.nameless.items():
            notes.append(message("notes.nameless", side=side, count=len(names), name=min(names)))
        if taught := [step for step in self.pair.steps("activations") if self.pair.is_taught(step)]:
            notes.append(message("notes.taught", steps=terms(map(when, taught))))
        if self.drawn is not None:
            notes.append(self.drawn.words)
        alone = [side for side, run in sides if recomputes(run.facts)]
        if len(alone) == 1 and None not in [recomputes(run.facts) for run in self.pair.runs]:
            notes.append(message("notes.recomputes_alone", side=alone[0]))
        dumped = self.pair.dumped
        notes += [message("notes.log", side=side, resolution=self.pair.resolution) for side in self.pair.converted if side not in dumped]
        notes += [message("notes.dump", side=side, tool=tool) for side, tool in dumped.items()]
        for side, run in sides:
            if run.facts.distilled is not None:
                notes.append(message("notes.distilled", side=side, names=terms(run.facts.distilled.left_out)))
        reference, candidate = (len(run.steps) for run in self.pair.runs)
        if reference != candidate:
            notes.append(message("notes.steps", reference=reference, candidate=candidate))
        return notes

    def notes_of_data(self, batches: BatchEvidence) -> list[Words]:
        """What is wrong with the batches of each side, once where it is the same of both; a loss function that does not fit its mask; that
        batches were fed, so that how they are made was not compared; and what a replay changed that matters without it."""
        problems = [problems_of(batches.statistics.get(side)) for side in Side]
        notes: list[Words] = []
        if problems[0] == problems[1]:
            notes += [message("notes.of_both", problem=problem) for problem in problems[0]]
            problems = [[], []]
        for (side, run), of_side in zip(self.pair.sides, problems, strict=True):
            notes += [message("notes.of_side", side=side, problem=problem) for problem in of_side]
            notes += [contradicted_by(side, contradiction) for contradiction in (run.self_check.of_losses if run.manifests else [])[:1]]
        if fed := replayed_sides(*(run.facts for run in self.pair.runs)):
            notes.append(message("notes.fed", sides=all_of(*fed)))
        for side, changed in self.changes.items():
            tokens = batches.statistics[side].tokens if side in batches.statistics else 0
            told = (change.words(side, batches.affected_tokens[side, change.row.what], tokens) for change in changed)
            notes += [words for words in told if words is not None]
        return notes

    def _limits_note(self) -> Message:
        eps, (kind, _) = self.pair.limits.eps, limits_for(*self.pair.compute_types)
        if not self.noise.repeats and self.pair.layers:
            return message("notes.default_limits_by_layers", type=kind, layers=self.pair.layers, eps=eps)
        if not self.noise.repeats:
            return message("notes.default_limits", type=kind, eps=eps)
        runs = terms(str(run.path) for run in self.noise.repeats)
        times, *others = sorted({self.noise.factor(run, kind) for run in self.noise.repeats for kind in ("local_norms", "gradients")})
        if others:
            return message("notes.limits_of_two_factors", times=times, other=others[0], runs=runs, eps=eps)
        return message("notes.measured_limits", times=times, runs=runs, eps=eps)
