"""State that the stages of one comparison share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TypeAlias

from msgspec import Struct, field

from align_hooks.comparison import distances
from align_hooks.comparison.control_band.banded import Banded, banded
from align_hooks.comparison.data.batches import BatchEvidence
from align_hooks.comparison.data.overridden import DataOverride, changes, rehearsed
from align_hooks.comparison.data.random_states import Drawn, first_difference
from align_hooks.comparison.finding import Finding, Metric, Words, limit_ratio, when
from align_hooks.comparison.findings import Limit, as_finding, contradicted_by, tensor_errors, worse_loss, worst_findings
from align_hooks.comparison.noise import Noise
from align_hooks.comparison.pair import Pair
from align_hooks.comparison.settings.arguments import recomputes
from align_hooks.comparison.settings.recorded import argument_settings, model_settings
from align_hooks.comparison.verdict import replayed_sides
from align_hooks.messages import Message, Side, all_of, message, terms
from align_hooks.process.work import WorkPool
from align_hooks.quantities.weights import unknown_of
from align_hooks.record.batch_statistics import problems_of
from align_hooks.record.read.batch import Batch

Decode: TypeAlias = Callable[[Sequence[int]], str]
"""Turns token ids into text."""


class ComparisonContext(Struct, dict=True):
    """One comparison under way."""

    pair: Pair
    noise: Noise
    allow_missing: tuple[str, ...]
    """Patterns of names that one side may lack."""
    work: WorkPool
    points: dict[int, list[Finding]] = field(default_factory=dict)
    """Step to findings of its points; a cache that two stages read, since they take all tensors."""
    decode: Decode | None = None
    """None without a tokenizer."""

    @cached_property
    def first_batches(self) -> list[Batch]:
        """Return the reference's and the candidate's batch of the first common step, read once for three stages."""
        return [run.batch(self.pair.first or 0) for run in self.pair.runs]

    def batches(self, step: int) -> list[Batch]:
        """Return the reference's and the candidate's batch of a step."""
        return self.first_batches if step == self.pair.first else [run.batch(step) for run in self.pair.runs]

    @cached_property
    def settings(self) -> list[Finding]:
        """Return differing settings of the model: compute type, format of products, those of ``config.json``, and those of arguments."""
        (ours, theirs), subject = (run.facts for run in self.pair.runs), message("settings.compute_type")
        types = self.pair.differing_types
        first = [Finding(subject, *types, name="compute type", quantity=Metric.MODEL_SETTING)] if types else []
        if products := self.pair.differing_products:
            first.append(Finding(message("settings.products"), *products, name="products", quantity=Metric.MODEL_SETTING))
        known = ours.model and theirs.model
        return [*first, *model_settings(ours.model, theirs.model), *argument_settings(ours, theirs)] if known else first

    @cached_property
    def changes(self) -> dict[Side, tuple[DataOverride, ...]]:
        """Return each side's overridden settings that change numbers."""
        replayed = replayed_sides(*(run.facts for run in self.pair.runs))
        return {side: tuple(one for one in changes(run.facts) if not (replayed and one.row.is_of_order)) for side, run in self.pair.sides}

    @cached_property
    def drawn(self) -> Drawn | None:
        """Return where the runs first drew from generators in different states."""
        return first_difference(self.pair)

    @cached_property
    def near_step(self) -> int | None:
        """Return the first step whose loss differs clearly on weights as close as those of honest free-running runs.

        None where weights differ before, or are not on record."""
        pair = self.pair
        clear = 1.0 if self.noise.repeats else pair.limits.clear
        for ours, theirs in pair.rows[1:]:
            distance = worse_loss(ours, theirs, limit := self.loss_limit(ours.step))
            if not pair.is_exact(ours.step) and distance and limit_ratio(distance.error, limit(distance.name)) > clear:
                known = ours.step in pair.known("weights")
                weights = self.tensors(Metric.WEIGHTS, ours.step, pair.limits.weights) if known else []
                return ours.step if weights and all(finding.limit_ratio <= 1 for finding in weights) else None
        return None

    @cached_property
    def bands(self) -> tuple[Banded, ...]:
        """Return the numbers that are judged over the whole run, by the band that repeats of the reference make."""
        return banded(self.pair, self.noise)

    def is_banded(self, step: int | None) -> bool:
        """Return whether a band judges a step, and no limit of one step does: in a long run some step is always far off."""
        return bool(self.bands) and all(step in band.steps for band in self.bands) and not self.pair.is_exact(step or 0)

    def loss_limit(self, step: int) -> Limit:
        """Return the limit of a step's loss: tight on equal weights, wider the longer the runs drift."""
        limits = self.pair.limits
        return self.noise.limits("losses", step, limits.loss if self.pair.is_exact(step) else limits.free_loss(step))

    def norms(self, step: int, default: float, *, worst_only: bool = False) -> list[Finding]:
        """Return findings of a step's norms; ``worst_only`` keeps those that a judgement of all of them needs."""
        limit, eps = self.noise.limits("local_norms", step, default), self.pair.limits.eps
        measured = [(step, distance, limit) for distance in distances.local_norms(*self.pair.runs, step, eps)]
        if worst_only:
            return worst_findings(measured, Metric.LOCAL_NORMS)
        return [as_finding(distance, step, limit, Metric.LOCAL_NORMS) for _, distance, _ in measured]

    def tensors(self, kind: str, step: int, default: float) -> list[Finding]:
        """Return findings of a step's gradients or weights, stored or sketched; a ``default`` of 0 is to the bit, despite noise."""
        if not default:
            return tensor_errors(self.pair, kind, step, lambda name: 0.0, self.work)
        drifts = distances.rounding_drift(*self.pair.runs, step, self.pair.limits.eps) if kind == Metric.WEIGHTS else {}
        return tensor_errors(self.pair, kind, step, self.noise.limits(kind, step, default), self.work, drifts)

    def notes(self, batches: BatchEvidence) -> list[Words]:
        """Return what a reader should know beside the verdict: sources of limits, incomplete records, unequal conditions."""
        pair, sides = self.pair, self.pair.sides
        notes: list[Words] = [*self._data_notes(batches), self._limits_note()]
        notes += [message("notes.of_side", side=side, problem=problem.message) for side, run in sides for problem in run.problems]
        if pair.differing_types or pair.differing_products:
            ours, theirs = (run.facts.training.precision for run in pair.runs)
            notes.append(message("notes.compute_types", reference=ours, candidate=theirs, coarser=pair.coarser))
        for side, run in sides:
            if run.unrecorded_inputs:
                notes.append(message("notes.unrecorded_inputs", side=side, names=terms(run.unrecorded_inputs)))
            if unknown := unknown_of(run.facts.model):
                notes.append(message("notes.unknown_settings", side=side, names=terms(unknown)))
        notes += [message("notes.nameless", side=side, count=len(names), name=min(names)) for side, names in pair.nameless.items()]
        if forced := [step for step in pair.steps("activations") if pair.is_forced(step)]:
            notes.append(message("notes.taught", steps=terms(map(when, forced))))
        if self.drawn is not None:
            notes.append(self.drawn.words)
        recomputing = {recomputes(run.facts): side for side, run in sides}
        if recomputing.keys() == {True, False}:
            notes.append(message("notes.recomputes_alone", side=recomputing[True]))
        notes += [message("notes.log", side=side, resolution=pair.resolution) for side in pair.converted if side not in pair.dumped]
        notes += [message("notes.dump", side=side, tool=tool) for side, tool in pair.dumped.items()]
        distilled = [(side, run.facts.distilled) for side, run in sides]
        notes += [message("notes.distilled", side=side, names=terms(facts.left_out)) for side, facts in distilled if facts is not None]
        reference, candidate = (len(run.steps) for run in pair.runs)
        if reference != candidate:
            notes.append(message("notes.steps", reference=reference, candidate=candidate))
        return notes

    def untried(self) -> list[Message]:
        """Return for each side what a rehearsal on a CPU turned off or replaced, which a reader of *aligned* must not take for tried."""
        levelled = [(side, sorted(rehearsed(run.facts))) for side, run in self.pair.sides]
        return [message("notes.untried", side=side, names=terms(names)) for side, names in levelled if names]

    def _data_notes(self, batches: BatchEvidence) -> list[Words]:
        """Return notes on batches: problems (once where both sides have them), odd loss functions, replays and what these override."""
        ours, theirs = (problems_of(batches.statistics.get(side)) for side in Side)
        notes: list[Words] = [message("notes.of_both", problem=problem) for problem in ours] if ours == theirs else []
        for (side, run), problems in zip(self.pair.sides, (ours, theirs), strict=True):
            notes += [message("notes.of_side", side=side, problem=problem) for problem in problems] if ours != theirs else []
            notes += [contradicted_by(side, contradiction) for contradiction in (run.self_check.of_losses if run.manifests else [])[:1]]
        if replayed := replayed_sides(*(run.facts for run in self.pair.runs)):
            notes.append(message("notes.fed", sides=all_of(*replayed)))
        for side, changed in self.changes.items():
            tokens = batches.statistics[side].tokens if side in batches.statistics else 0
            words = (change.words(side, batches.affected_tokens[side, change.row.what], tokens) for change in changed)
            notes += filter(None, words)
        return notes

    def _limits_note(self) -> Message:
        eps, kind = self.pair.limits.eps, self.pair.coarser
        if not self.noise.repeats:
            by_layers = message("notes.default_limits_by_layers", type=kind, layers=self.pair.layers, eps=eps)
            return by_layers if self.pair.layers else message("notes.default_limits", type=kind, eps=eps)
        runs = terms(str(run.path) for run in self.noise.repeats)
        times, *others = sorted({self.noise.factor(run, kind) for run in self.noise.repeats for kind in ("local_norms", "gradients")})
        if others:
            return message("notes.limits_of_two_factors", times=times, other=others[0], runs=runs, eps=eps)
        return message("notes.measured_limits", times=times, runs=runs, eps=eps)
