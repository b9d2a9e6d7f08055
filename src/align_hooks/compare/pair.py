"""Two runs side by side: what both completed, what both were asked to record, and where both stand on the same weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Container
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from align_hooks.compare.distances import weights
from align_hooks.compare.limits import SAME_SKETCH, Limits, limits_for
from align_hooks.messages import Message, Side, message
from align_hooks.quantities.kind import Kind
from align_hooks.quantities.registry import BY_NAME, SKETCHES
from align_hooks.record.reader import Run
from align_hooks.record.schema import Row


@dataclass(frozen=True)
class Pair:
    """A reference and a candidate, both made by ``open_run``."""

    reference: Run
    candidate: Run

    @property
    def both(self) -> tuple[Run, Run]:
        """Reference and candidate."""
        return self.reference, self.candidate

    @property
    def sides(self) -> tuple[tuple[Side, Run], tuple[Side, Run]]:
        """The same, each with what it is called."""
        return (Side.REFERENCE, self.reference), (Side.CANDIDATE, self.candidate)

    @property
    def is_itself(self) -> bool:
        """Whether both are one run: the same directory, or a copy of it."""
        ours, theirs = (run.facts.run_id for run in self.both)
        return bool(self.reference.path == self.candidate.path or (ours and ours == theirs))

    @cached_property
    def rows(self) -> list[tuple[Row, Row]]:
        """Rows of scalars of the steps that both completed."""
        theirs = {row.step: row for row in self.candidate.rows}
        return [(row, theirs[row.step]) for row in self.reference.rows if row.step in theirs]

    @property
    def compute_types(self) -> list[str | None]:
        """What each side computes in."""
        return [run.facts.training.compute_type for run in self.both]

    @cached_property
    def limits(self) -> Limits:
        """Default limits of the coarser of the two compute types, for a model as deep as this, and for losses as fine as these."""
        return limits_for(*self.compute_types)[1].deep(self.layers).coarse(self.resolution, self.resolution_of("local_norms"))

    @property
    def converted(self) -> list[Side]:
        """The sides whose record was made of a log."""
        return [side for side, run in self.sides if run.facts.converted]

    @cached_property
    def resolution(self) -> float:
        """What the last digit of printed losses leaves open, relative to the smallest of them; 0 where both were recorded."""
        open_digits = self.resolution_of("loss")
        if not open_digits:
            return 0.0
        losses = [abs(loss) for pair in self.rows for row in pair if (loss := row.loss) and math.isfinite(loss)]
        return open_digits / min(losses) if losses else 0.0

    def resolution_of(self, quantity: str) -> float:
        """The same of printed ``local_norms`` or ``learning_rate``, relative to each; 0 where both were recorded."""
        return math.fsum(max(run.facts.resolution.get(quantity, 0.0), 0.0) for run in self.both)

    @property
    def layers(self) -> int:
        """Layers of the deeper model; 0 where no run says."""
        found = [run.facts.model.get("num_hidden_layers") for run in self.both]
        return max((one for one in found if type(one) is int), default=0)

    @property
    def limits_note(self) -> Message:
        """Where the limits come from."""
        name, limits = limits_for(*self.compute_types)
        if self.layers:
            return message("notes.default_limits_by_layers", type=name, layers=self.layers, eps=limits.eps)
        return message("notes.default_limits", type=name, eps=limits.eps)

    def pieces(self, run: Run) -> dict[str, tuple[int, ...]]:
        """Canonical name to shape of everything in a run's parameter tables."""
        return {shard.name: shard.shape for rank in run.manifests for shard in run.shards(rank)}

    # ---- what was asked and what is there

    def steps(self, kind: str) -> list[int]:
        """Steps for which both runs recorded ``kind``; weights N among the states that common steps lead from or to."""
        ours, theirs = (set(run.steps_of(kind)) for run in self.both)
        return sorted(ours & theirs & self._possible(kind))

    def sketched(self, kind: str) -> list[int]:
        """Steps of which both runs have sketches of ``gradients`` or ``weights``, and not both the tensors; none of another kind."""
        if kind not in SKETCHES:
            return []
        ours, theirs = (set(run.sketch_steps(kind)) for run in self.both)
        return sorted((ours & theirs & self._possible(kind)) - set(self.steps(kind)))

    def known(self, kind: str) -> list[int]:
        """Steps of which both runs have ``kind``, stored or sketched."""
        return sorted({*self.steps(kind), *self.sketched(kind)})

    @cached_property
    def skipped(self) -> set[int]:
        """Steps whose update both sides skipped for an overflow: their gradients are not finite, and their weights stay."""
        return {ours.step for ours, theirs in self.rows if ours.skipped and theirs.skipped}

    def gaps(self, kind: str) -> list[Message]:
        """What both runs were asked for, could have and at least one lacks."""
        found = self._lacking(BY_NAME[kind], "gaps.lacks", lambda run: run.steps_of(kind))
        if kind in SKETCHES:
            found += self._lacking(SKETCHES[kind], "gaps.lacks_sketches", lambda run: run.sketch_steps(kind))
        return found

    def _lacking(self, kind: Kind, words: str, there: Callable[[Run], list[int]]) -> list[Message]:
        wanted = {step for step in kind.possible(self._made) if all(step in asked for asked in self._asked(kind))}
        lost = {side: sorted(wanted - set(there(run))) for side, run in self.sides}
        return [message(words, side=side, count=len(steps), all=len(wanted), step=steps[0]) for side, steps in lost.items() if steps]

    def why_not(self, kind: str) -> Message:
        """Why there is nothing of ``kind`` to compare."""
        kinds = [BY_NAME[kind], *([SKETCHES[kind]] if kind in SKETCHES else [])]
        asked = [any(wanted) for wanted in zip(*map(self._asked, kinds), strict=True)]
        if all(asked) and self.skipped and BY_NAME[kind].of_gradients:
            return message("gaps.skipped")
        if all(asked):
            return message("gaps.different_steps")
        recorded = [side for (side, _), wanted in zip(self.sides, asked, strict=True) if wanted]
        return message("gaps.one_recorded", side=recorded[0]) if recorded else message("gaps.neither_recorded")

    def _asked(self, kind: Kind) -> list[Container[int]]:
        """The steps at which each run was asked for ``kind``."""
        return [run.asked(kind.variable) for run in self.both]

    @property
    def _made(self) -> set[int]:
        """The steps that both completed."""
        return {ours.step for ours, _ in self.rows}

    def _possible(self, name: str) -> set[int]:
        """The numbers that ``name`` can be compared at."""
        kind = BY_NAME[name]
        return kind.possible(self._made) - (self.skipped if kind.of_gradients else set())

    # ---- where both stand on the same weights

    @property
    def first(self) -> int | None:
        """The first common step."""
        return self.rows[0][0].step if self.rows else None

    def is_exact(self, step: int) -> bool:
        """Whether both runs stand on the same weights at ``step``: the start, equal recorded weights, or a rate of 0 since."""
        return step in self._exact

    def is_still(self, step: int) -> bool:
        """Whether no update since the start could have moved the weights before ``step``: all rates were 0."""
        return step in self._still

    @cached_property
    def handed(self) -> list[int]:
        """Weights N of both that every update before made from the same gradients: the other's, or a third run's."""
        given = [_steps_handed(*self.both), _steps_handed(*reversed(self.both)), _both_handed(*self.both)]
        steps = max(given, key=len)
        found: list[int] = []
        for step in [ours.step for ours, _ in self.rows]:
            if step not in steps:
                break
            found.append(step + 1)
        return [step for step in found if step in self.known("weights")]

    @cached_property
    def _still(self) -> set[int]:
        still: set[int] = set()
        for ours, theirs in self.rows:
            still.add(ours.step)
            if _any_rate(ours) or _any_rate(theirs):
                return still
        return still | ({self.rows[-1][0].step + 1} if self.rows else set())

    @cached_property
    def _exact(self) -> set[int]:
        starts = [run.steps[0] for run in self.both if run.steps]
        same = len(starts) == 2 and starts[0] == starts[1]
        equal = {step for step in self.steps("weights") if self._weights_equal(step)}
        equal |= {step for step in self.sketched("weights") if self._sketches_equal(step)}
        exact: set[int] = set()
        for ours, theirs in self.rows:
            same = same or ours.step in equal
            if same:
                exact.add(ours.step)
            same = same and not _any_rate(ours) and not _any_rate(theirs)
        return exact

    def _weights_equal(self, step: int) -> bool:
        one, other = self.reference.weights(step), self.candidate.weights(step)
        return set(one) == set(other) and all(
            one.shape(name) == other.shape(name) and np.array_equal(one[name], other[name]) for name in one
        )

    def _sketches_equal(self, step: int) -> bool:
        found = list(weights(*self.both, step, self.limits.eps))
        return bool(found) and all(one.error <= SAME_SKETCH for one in found)


def _steps_handed(run: Run, source: Run) -> list[int]:
    """Steps at which ``run`` was handed the gradients of ``source``."""
    injected = run.facts.injected
    return list(injected.steps) if injected.run_id and injected.run_id == source.facts.run_id else []


def _both_handed(one: Run, other: Run) -> list[int]:
    """Steps at which both runs were handed the gradients of one and the same run."""
    ours, theirs = (run.facts.injected for run in (one, other))
    return sorted({*ours.steps} & {*theirs.steps}) if ours.run_id and ours.run_id == theirs.run_id else []


def _any_rate(row: Row) -> bool:
    """Whether the step's update could move a weight."""
    rates = row.learning_rate
    return not row.skipped and (any(rates) if isinstance(rates, list) else rates != 0)
