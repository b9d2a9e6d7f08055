"""Two runs side by side: the steps and records that they have in common, and where both stand on the same weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Container
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from align_hooks.comparison.distances import weights
from align_hooks.comparison.finding import when
from align_hooks.comparison.metrics.limits import SAME_SKETCH, Limits, limits_for
from align_hooks.comparison.metrics.streams import Task, measure
from align_hooks.messages import Message, Side, message
from align_hooks.quantities.kind import Quantity
from align_hooks.quantities.registry import BY_NAME, SKETCHES
from align_hooks.record.format.rows import ScalarRow
from align_hooks.record.reader import Run


@dataclass(frozen=True)
class Pair:
    """A reference and a candidate, both made by ``open_run``."""

    reference: Run
    candidate: Run

    @property
    def runs(self) -> tuple[Run, Run]:
        """Return reference and candidate."""
        return self.reference, self.candidate

    @property
    def sides(self) -> tuple[tuple[Side, Run], tuple[Side, Run]]:
        """Return each run with the name of its side."""
        return (Side.REFERENCE, self.reference), (Side.CANDIDATE, self.candidate)

    @property
    def is_itself(self) -> bool:
        """Return whether both are one run: the same directory, or a copy of it."""
        ours, theirs = (run.facts.run_id for run in self.runs)
        return bool(self.reference.path == self.candidate.path or (ours and ours == theirs))

    @cached_property
    def rows(self) -> list[tuple[ScalarRow, ScalarRow]]:
        """Return the scalar rows of the steps that both completed."""
        theirs = {row.step: row for row in self.candidate.rows}
        return [(row, theirs[row.step]) for row in self.reference.rows if row.step in theirs]

    def numbers(self, name: str) -> list[tuple[int, Any, Any]]:
        """Return step, reference and candidate of a number, for each common step at which both have it."""
        values = ((ours.step, getattr(ours, name), getattr(theirs, name)) for ours, theirs in self.rows)
        return [each for each in values if None not in each]

    @property
    def has_one_layout(self) -> bool:
        """Return whether both have one framework and the same ranks at the same places, so that rank can be compared with rank."""
        ours, theirs = self.runs
        if (ours.facts.framework, ours.world_size) != (theirs.facts.framework, theirs.world_size) or not ours.manifests:
            return False
        others = theirs.manifests
        return all(rank in others and others[rank].place == manifest.place for rank, manifest in ours.manifests.items())

    @property
    def compute_types(self) -> list[str | None]:
        """Return each side's compute type; None where it is unknown."""
        return [run.facts.training.compute_type for run in self.runs]

    @property
    def draws(self) -> bool:
        """Return whether the model of either side is known to draw random numbers."""
        return any(run.facts.training.draws for run in self.runs)

    @property
    def unlike_types(self) -> tuple[str, str] | None:
        """Return both compute types where they are known and differ, else None."""
        ours, theirs = self.compute_types
        return (ours, theirs) if ours and theirs and ours != theirs else None

    @cached_property
    def limits(self) -> Limits:
        """Return the default limits of the coarser compute type, for a model of this depth and losses of this resolution."""
        return limits_for(*self.compute_types)[1].deep(self.layers).coarse(self.resolution, self.resolution_of("local_norms"))

    @property
    def converted(self) -> list[Side]:
        """Return the sides whose record was made from a log or a dump."""
        return [side for side, run in self.sides if run.facts.converted]

    @property
    def dumped(self) -> dict[Side, str]:
        """Return the sides whose record was made from another tool's dump, and the tool."""
        said = {side: run.facts.converted for side, run in self.sides}
        return {side: str(facts.get("tool")) for side, facts in said.items() if isinstance(facts, dict) and "dump" in facts}

    @cached_property
    def resolution(self) -> float:
        """Return the rounding of printed losses relative to the smallest of them; 0 where both were recorded."""
        open_digits = self.resolution_of("loss")
        if not open_digits:
            return 0.0
        losses = [abs(loss) for pair in self.rows for row in pair if (loss := row.loss) and math.isfinite(loss)]
        return open_digits / min(losses) if losses else 0.0

    def resolution_of(self, quantity: str) -> float:
        """Return the relative rounding of printed ``local_norms`` or ``learning_rate``; 0 where both were recorded."""
        return math.fsum(max(run.facts.resolution.get(quantity, 0.0), 0.0) for run in self.runs)

    @property
    def layers(self) -> int:
        """Return the number of layers of the deeper model; 0 where no run says."""
        counts = [run.facts.model.get("num_hidden_layers") for run in self.runs]
        return max((count for count in counts if type(count) is int), default=0)

    def pieces(self, run: Run) -> dict[str, tuple[int, ...]]:
        """Return name to shape of everything in a run's parameter tables."""
        return {shard.name: shard.shape for rank in run.manifests for shard in run.shards(rank)}

    @cached_property
    def nameless(self) -> dict[Side, frozenset[str]]:
        """Return, for two frameworks, each run's tensors that have only that framework's own names."""
        if self.reference.facts.side == self.candidate.facts.side:
            return {}
        own = {side: {shard.name for rank in run.manifests for shard in run.shards(rank) if shard.own} for side, run in self.sides}
        return {side: frozenset(names) for side, names in own.items() if names}

    @cached_property
    def incomparable(self) -> frozenset[str]:
        """Return the tensors of either run that the other framework does not know."""
        return frozenset[str]().union(*self.nameless.values())

    # ---- what was asked and what is there

    def steps(self, kind: str) -> list[int]:
        """Return the steps for which both runs recorded ``kind``; weights N where a common step leads from or to them."""
        return self._common(kind, lambda run: run.steps_of(kind))

    def sketched(self, kind: str) -> list[int]:
        """Return the steps of which both runs have sketches of ``kind``, and not both the tensors."""
        sketches = self._common(kind, lambda run: run.sketch_steps(kind)) if kind in SKETCHES else []
        return sorted({*sketches} - {*self.steps(kind)}) if sketches else []

    def both_stored(self, kind: str, step: int) -> bool:
        """Return whether both runs have ``kind`` of a step, in constant time."""
        return all(run.has(kind, step) for run in self.runs)

    def known(self, kind: str) -> list[int]:
        """Return the steps of which both runs have ``kind``, stored or sketched."""
        return sorted({*self.steps(kind), *self.sketched(kind)})

    def _common(self, name: str, steps_of: Callable[[Run], list[int]]) -> list[int]:
        """Return the steps at which ``name`` can be compared and both runs have it."""
        kind = BY_NAME[name]
        possible = kind.possible(self._made) - (self.skipped if kind.of_gradients else set())
        return sorted(possible.intersection(*map(steps_of, self.runs)))

    @cached_property
    def skipped(self) -> set[int]:
        """Return the steps whose update both sides skipped for an overflow: gradients are not finite, and weights stay."""
        return {ours.step for ours, theirs in self.rows if ours.skipped and theirs.skipped}

    def gaps(self, kind: str) -> list[Message]:
        """Describe what both runs were asked for, could have recorded, and at least one lacks."""
        gaps = self._lacking(BY_NAME[kind], "gaps.lacks", lambda run: run.steps_of(kind))
        if kind in SKETCHES:
            gaps += self._lacking(SKETCHES[kind], "gaps.lacks_sketches", lambda run: run.sketch_steps(kind))
        return gaps

    def _lacking(self, kind: Quantity, id: str, steps_of: Callable[[Run], list[int]]) -> list[Message]:
        wanted = kind.possible(self._made)
        for asked in self._asked(kind):
            wanted = {step for step in wanted if step in asked}
        lost = {side: sorted(wanted - set(steps_of(run))) for side, run in self.sides}
        return [message(id, side=side, count=len(steps), all=len(wanted), step=when(steps[0])) for side, steps in lost.items() if steps]

    def why_not(self, kind: str) -> Message:
        """Say why there is nothing of ``kind`` to compare."""
        kinds = [BY_NAME[kind], *([SKETCHES[kind]] if kind in SKETCHES else [])]
        asked = [any(wanted) for wanted in zip(*map(self._asked, kinds), strict=True)]
        if all(asked):
            return message("gaps.skipped" if self.skipped and BY_NAME[kind].of_gradients else "gaps.different_steps")
        recorded = [side for (side, _), wanted in zip(self.sides, asked, strict=True) if wanted]
        return message("gaps.one_recorded", side=recorded[0]) if recorded else message("gaps.neither_recorded")

    def is_taught(self, step: int) -> bool:
        """Return whether blocks of one run were given, at a step, the inputs of the other's."""
        ours, theirs = (run.facts.taught for run in self.runs)
        return any(
            step in taught.steps and taught.run_id is not None and taught.run_id == run.facts.run_id
            for taught, run in ((theirs, self.reference), (ours, self.candidate))
        )

    def _asked(self, kind: Quantity) -> list[Container[int]]:
        """Return the steps at which each run was asked for ``kind``."""
        return [run.asked(kind.variable) for run in self.runs]

    @cached_property
    def _made(self) -> set[int]:
        """Return the steps that both completed."""
        return {ours.step for ours, _ in self.rows}

    def may_differ(self, column: str) -> list[int]:
        """Return the common steps at which ranks of one layout may differ in ``random`` or ``state``; elsewhere the texts are equal."""
        steps = sorted(self._made)
        ours, theirs = (run.columns(steps) for run in self.runs)
        unlike = np.zeros(len(steps), bool)
        for rank, of_rank in ours.items():
            other = theirs[rank]
            unlike |= of_rank["kept"] | other["kept"] | (of_rank[column] != other[column])
        return [step for step, apart in zip(steps, unlike.tolist(), strict=True) if apart]

    def tokens(self) -> tuple[list[int], list[int]]:
        """Return common steps by the digests of tokens that the same ranks of both runs have: those known, and those that differ."""
        steps = sorted(self._made)
        ours, theirs = (run.columns(steps) for run in self.runs)
        known, alone, apart = np.zeros((3, len(steps)), bool)
        for rank, of_rank in ours.items():
            mine, other = of_rank["token_digest"], theirs[rank]["token_digest"]
            here, there = mine > 0, other > 0
            known |= here & there
            alone |= here != there
            apart |= here & there & (mine != other)
        at = np.array(steps, np.int64)
        return at[known & ~alone].tolist(), at[apart].tolist()

    # ---- where both stand on the same weights

    @property
    def first(self) -> int | None:
        """Return the first common step."""
        return self.rows[0][0].step if self.rows else None

    def is_exact(self, step: int) -> bool:
        """Return whether both runs stand on the same weights: at the start, by equal records, or by a rate of 0 since."""
        return step in self._exact

    @cached_property
    def handed(self) -> list[int]:
        """Return weights N whose every update before used the same gradients in both runs: either run's, or a third run's."""
        ours, theirs = (run.facts.injected for run in self.runs)
        of_candidate = ours.steps if ours.run_id and ours.run_id == self.candidate.facts.run_id else ()
        of_reference = theirs.steps if theirs.run_id and theirs.run_id == self.reference.facts.run_id else ()
        of_a_third = {*ours.steps} & {*theirs.steps} if ours.run_id and ours.run_id == theirs.run_id else ()
        steps = max(of_candidate, of_reference, of_a_third, key=len)
        until = next((index for index, (row, _) in enumerate(self.rows) if row.step not in steps), len(self.rows))
        known = self.known("weights")
        return [row.step + 1 for row, _ in self.rows[:until] if row.step + 1 in known]

    @cached_property
    def still(self) -> set[int]:
        """Return the steps before which no update since the start moved the weights: all rates were 0."""
        still: set[int] = set()
        for ours, theirs in self.rows:
            still.add(ours.step)
            if _any_rate(ours) or _any_rate(theirs):
                return still
        return still | ({self.rows[-1][0].step + 1} if self.rows else set())

    @cached_property
    def _exact(self) -> set[int]:
        starts = [run.steps[0] for run in self.runs if run.steps]
        same = len(starts) == 2 and starts[0] == starts[1]
        equal = {step for step in self.known("weights") if self._weights_equal(step)}
        exact: set[int] = set()
        for ours, theirs in self.rows:
            same = same or ours.step in equal
            if same:
                exact.add(ours.step)
            same = same and not _any_rate(ours) and not _any_rate(theirs)
        return exact

    def _weights_equal(self, step: int) -> bool:
        """Return whether the weights are equal to the bit, or by their sketches where not both stored them."""
        if not self.both_stored("weights", step):
            errors = [distance.error for distance in weights(*self.runs, step, self.limits.eps)]
            return bool(errors) and all(error <= SAME_SKETCH for error in errors)
        ours, theirs = self.reference.weights(step), self.candidate.weights(step)
        if set(ours) != set(theirs) or any(ours.shape(name) != theirs.shape(name) for name in ours):
            return False
        tasks = [Task(ours.whole(name), theirs.whole(name)) for name in ours]
        return all(measure(task).apart == 0.0 for task in tasks if not task.equal_by_digest)


def _any_rate(row: ScalarRow) -> bool:
    """Return whether the step's update could move a weight."""
    rates = row.learning_rate
    return not row.skipped and (any(rates) if isinstance(rates, list) else rates != 0)
