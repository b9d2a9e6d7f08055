"""The check of a record against itself: all ranks together hold every element once, and copies are equal."""

from __future__ import annotations

import math

from msgspec import Struct

from align_hooks.record.check import norm_checks
from align_hooks.record.check.contradictions import Contradiction
from align_hooks.record.check.step_checks import other_counts, other_means, other_weights, suspects, unequal_batches, unequal_numbers
from align_hooks.record.check.tolerances import COPY, HALF, relative_distance
from align_hooks.record.read.run_rows import RunRows
from align_hooks.record.read.sums import counted_totals


class SelfCheck(Struct, frozen=True):
    """The result of a self-check."""

    steps: tuple[int, ...]
    """Steps whose norms were compared with the framework's."""
    unchecked: tuple[int, ...]
    """Steps with norms at which the framework computed none."""
    copies: int
    """The number of copies on other ranks that were compared."""
    inexact: float
    """The largest relative distance of the framework's norm from the exact one: the framework's own rounding."""
    contradictions: tuple[Contradiction, ...]
    """All contradictions, by step."""

    @property
    def of_layout(self) -> list[Contradiction]:
        """Contradictions of the recorded shards, copies, batches and numbers of ranks."""
        return [contradiction for contradiction in self.contradictions if not contradiction.is_of_loss]

    @property
    def of_losses(self) -> list[Contradiction]:
        """Contradictions between the run's own loss function and its tokens' losses or mask; the record is complete."""
        return [contradiction for contradiction in self.contradictions if contradiction.is_of_loss]


def self_check(run: RunRows) -> SelfCheck:
    """Check every recorded step of a run, made by ``open_run``; raises RecordError for an incomplete file.

    The norms of a run that lacks a rank are unchecked: elements of the missing rank are not lost.
    """
    contradictions = [*norm_checks.held_twice(run)]
    checked: list[int] = []
    unchecked: list[int] = []
    inexact = 0.0
    limit = COPY.get(run.facts.training.compute_type or "float32", HALF)
    copies = norm_checks.copies_of(run)
    norms = run.local_norm_steps()
    ours = counted_totals(run, norms)
    for step in norms:
        calls = norm_checks.rechecks(run, step) if len(run.manifests) == run.world_size else []
        (checked if calls else unchecked).append(step)
        contradictions += norm_checks.recomputed(step, calls)
        contradictions += norm_checks.lost_or_repeated(run, step, calls, ours[step])
        inexact = max([inexact, *(relative_distance(call.norm, math.sqrt(call.exact)) for call in calls if call.exact is not None)])
    contradictions += norm_checks.unequal_gradients(run, norms, copies, limit)
    contradictions += norm_checks.unequal_computed(run, norms)
    for step in run.weight_steps():
        contradictions += norm_checks.unequal_weights(run, step, copies, limit)
    if run.manifests:
        for step in run.batch_steps():
            contradictions += [*unequal_batches(run, step), *other_means(run, step), *other_counts(run, step)]
        for step in suspects(run):
            rows = run.rank_rows(step)
            contradictions += [*unequal_numbers(rows, step), *other_weights(run, rows, step)]
    ordered = tuple(sorted(contradictions, key=lambda contradiction: contradiction.step))
    return SelfCheck(tuple(checked), tuple(unchecked), sum(len(ranks) - 1 for ranks in copies.values()), inexact, ordered)
