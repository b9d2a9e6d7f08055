"""Two runs side by side: their common steps and records, and the steps on equal weights."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from itertools import takewhile
from typing import Any

import numpy as np
from msgspec import Struct

from align_hooks.comparison.data.routing import is_given
from align_hooks.comparison.distances import weights
from align_hooks.comparison.finding import when
from align_hooks.comparison.metrics.limits import SAME_SKETCH, Limits, limits_for, with_products
from align_hooks.comparison.metrics.measures import Task, measure
from align_hooks.messages import Message, Side, message
from align_hooks.quantities.registry import BY_NAME, SKETCHES
from align_hooks.record.format.rows import ScalarRow
from align_hooks.record.reader import Run


class Pair(Struct, frozen=True, dict=True):
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
        ours, theirs = ({rank: manifest.place for rank, manifest in run.manifests.items()} for run in self.runs)
        kinds = {(run.facts.framework, run.world_size) for run in self.runs}
        return len(kinds) == 1 and ours != {} and ours.items() <= theirs.items()

    @property
    def compute_types(self) -> list[str | None]:
        """Return each side's compute type; None where it is unknown."""
        return [run.facts.training.compute_type for run in self.runs]

    @property
    def draws(self) -> bool:
        """Return whether the model of either side is known to draw random numbers."""
        return any(run.facts.training.draws for run in self.runs)

    @property
    def differing_types(self) -> tuple[str, str] | None:
        """Return both compute types where they are known and differ, else None."""
        ours, theirs = self.compute_types
        return (ours, theirs) if ours and theirs and ours != theirs else None

    @property
    def differing_products(self) -> tuple[str, str] | None:
        """Return the formats of both sides' matrix products where they are known and differ, else None."""
        ours, theirs = (run.facts.training for run in self.runs)
        known = ours.products is not None and theirs.products is not None and ours.products != theirs.products
        return (str(ours.products) or ours.precision, str(theirs.products) or theirs.precision) if known else None

    @property
    def coarser(self) -> str:
        """Return the types by which the pair is judged, as a run's precision."""
        kind = limits_for(*self.compute_types)[0]
        wider = [run.facts.training for run in self.runs if (products := run.facts.training.products) is not None and products.format]
        return max(wider, key=lambda one: with_products(limits_for(kind)[1], one.products).tokens).precision if wider else kind

    @cached_property
    def limits(self) -> Limits:
        """Return the default limits of the coarser types, for a model of this depth and losses of this resolution."""
        limits = limits_for(*self.compute_types)[1]
        for run in self.runs:
            limits = with_products(limits, run.facts.training.products)
        return limits.deep(self.layers).coarse(self.resolution, self.resolution_of("local_norms"))

    @property
    def converted(self) -> list[Side]:
        """Return the sides whose record was made from a log or a dump."""
        return [side for side, run in self.sides if run.facts.converted]

    @property
    def dumped(self) -> dict[Side, str]:
        """Return the sides whose record was made from another tool's dump, and the tool."""
        facts = {side: run.facts.converted for side, run in self.sides}
        return {side: str(table.get("tool")) for side, table in facts.items() if isinstance(table, dict) and "dump" in table}

    @cached_property
    def resolution(self) -> float:
        """Return the rounding of printed losses relative to the smallest of them; 0 where both were recorded."""
        if not (rounding := self.resolution_of("loss")):
            return 0.0
        losses = (abs(loss) for pair in self.rows for row in pair if (loss := row.loss) and math.isfinite(loss))
        return rounding / min(losses, default=math.inf)

    def resolution_of(self, quantity: str) -> float:
        """Return the relative rounding of printed ``local_norms`` or ``learning_rate``; 0 where both were recorded."""
        return math.fsum(max(run.facts.resolution.get(quantity, 0.0), 0.0) for run in self.runs)

    @property
    def layers(self) -> int:
        """Return the number of layers of the deeper model; 0 where no run says."""
        return max((count for run in self.runs if type(count := run.facts.model.get("num_hidden_layers")) is int), default=0)

    def pieces(self, run: Run) -> dict[str, tuple[int, ...]]:
        """Return name to shape of everything in a run's parameter tables."""
        return {shard.name: shard.shape for rank in run.manifests for shard in run.shards(rank)}

    @cached_property
    def nameless(self) -> dict[Side, frozenset[str]]:
        """Return, for two frameworks, each run's tensors that have only that framework's own names."""
        if self.reference.facts.side == self.candidate.facts.side:
            return {}
        own = {side: [shard.name for rank in run.manifests for shard in run.shards(rank) if shard.own] for side, run in self.sides}
        return {side: frozenset(names) for side, names in own.items() if names}

    @cached_property
    def incomparable(self) -> frozenset[str]:
        """Return the tensors of either run that the other framework does not know."""
        return frozenset[str]().union(*self.nameless.values())

    def steps(self, kind: str) -> list[int]:
        """Return the steps of which both runs recorded ``kind``; weights N where a common step leads from or to these."""
        return self._common(kind, lambda run: run.steps_of(kind))

    def sketched(self, kind: str) -> list[int]:
        """Return the steps of which both runs have sketches of ``kind``, and not both the tensors."""
        sketches = self._common(kind, lambda run: run.sketch_steps(kind)) if kind in SKETCHES else []
        return sorted({*sketches}.difference(self.steps(kind))) if sketches else []

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
        """Describe the steps that both runs were asked for and could have recorded, and that at least one lacks."""
        sources = [("gaps.lacks", BY_NAME[kind], [set(run.steps_of(kind)) for run in self.runs])]
        if kind in SKETCHES:
            sources.append(("gaps.lacks_sketches", SKETCHES[kind], [set(run.sketch_steps(kind)) for run in self.runs]))
        gaps = []
        for id, quantity, known in sources:
            ours, theirs = (run.asked(quantity.variable) for run in self.runs)
            wanted = {step for step in quantity.possible(self._made) if step in ours and step in theirs}
            lost = {side: sorted(wanted - steps) for (side, _), steps in zip(self.sides, known, strict=True) if wanted - steps}
            gaps += [message(id, side=side, count=len(steps), all=len(wanted), step=when(steps[0])) for side, steps in lost.items()]
        return gaps

    def why_not(self, kind: str) -> Message:
        """Say why there is nothing of ``kind`` to compare."""
        kinds = [BY_NAME[kind], *([SKETCHES[kind]] if kind in SKETCHES else [])]
        asked = [side for side, run in self.sides if any(run.asked(each.variable) for each in kinds)]
        if len(asked) == len(self.runs):
            return message("gaps.skipped" if self.skipped and BY_NAME[kind].of_gradients else "gaps.different_steps")
        return message("gaps.one_recorded", side=asked[0]) if asked else message("gaps.neither_recorded")

    def is_forced(self, step: int) -> bool:
        """Return whether blocks of one run were given, at a step, the inputs of the other's."""
        return is_given(*self.runs, step, "forced") and not all(step in run.facts.forced.steps for run in self.runs)

    @cached_property
    def _made(self) -> set[int]:
        """Return the steps that both completed."""
        return {ours.step for ours, _ in self.rows}

    def may_differ(self, column: str) -> list[int]:
        """Return the common steps at which ranks of one layout may differ in ``random`` or ``state``; elsewhere the texts are equal."""
        steps = sorted(self._made)
        ours, theirs = (run.columns(steps) for run in self.runs)
        differing = np.zeros(len(steps), bool)
        for rank, of_rank in ours.items():
            other = theirs[rank]
            differing |= of_rank["kept"] | other["kept"] | (of_rank[column] != other[column])
        return [step for step, differs in zip(steps, differing.tolist(), strict=True) if differs]

    def tokens(self) -> tuple[list[int], list[int]]:
        """Return the common steps of which the same ranks of both runs have digests of tokens, and those whose digests differ."""
        steps = sorted(self._made)
        ours, theirs = (run.columns(steps) for run in self.runs)
        both, one_only, differing = np.zeros((3, len(steps)), bool)
        for rank, of_rank in ours.items():
            mine, other = of_rank["token_digest"], theirs[rank]["token_digest"]
            here, there = mine > 0, other > 0
            both |= here & there
            one_only |= here != there
            differing |= here & there & (mine != other)
        at = np.array(steps, np.int64)
        return at[both & ~one_only].tolist(), at[differing].tolist()

    @property
    def first(self) -> int | None:
        """Return the first common step."""
        return self.rows[0][0].step if self.rows else None

    def is_exact(self, step: int) -> bool:
        """Return whether both runs have the same weights at a step: at the start, by equal records, or by a rate of 0 since."""
        return step in self._exact

    @cached_property
    def after_injected(self) -> list[int]:
        """Return weights N whose every update before used the same gradients in both runs: either run's, or a third run's."""
        injected = takewhile(lambda pair: is_given(*self.runs, pair[0].step, "injected"), self.rows)
        return sorted({row.step + 1 for row, _ in injected}.intersection(self.known("weights")))

    @cached_property
    def still(self) -> set[int]:
        """Return the steps before which no update since the start moved the weights: all rates were 0."""
        still: set[int] = set()
        for pair in self.rows:
            still.add(pair[0].step)
            if _moves(pair):
                return still
        return still | {ours.step + 1 for ours, _ in self.rows[-1:]}

    @cached_property
    def _exact(self) -> set[int]:
        ours, theirs = (run.steps[:1] for run in self.runs)
        same, known = ours == theirs != [], set(self.known("weights"))
        exact: set[int] = set()
        for pair in self.rows:
            step = pair[0].step
            if same or (step in known and self._weights_equal(step)):
                exact.add(step)
            same = step in exact and not _moves(pair)
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
        return all(measure(task).difference == 0.0 for task in tasks if not task.equal_by_digest)


def _moves(rows: tuple[ScalarRow, ScalarRow]) -> bool:
    """Return whether a step's update could move a weight of either run."""
    return any(not row.skipped and (any(rates) if isinstance(rates := row.learning_rate, list) else rates != 0) for row in rows)
