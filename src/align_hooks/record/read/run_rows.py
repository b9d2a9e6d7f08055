"""The rows of a run merged from its ranks: completed steps, their quantities and their numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial, reduce

import numpy as np

from align_hooks.messages import message
from align_hooks.quantities.batches import BATCHES
from align_hooks.quantities.gradients import GRADIENTS
from align_hooks.quantities.local_norms import LOCAL_NORMS
from align_hooks.quantities.optimizer_state import OPTIMIZER_STATE
from align_hooks.quantities.scalars import SCALARS
from align_hooks.quantities.weights import WEIGHTS
from align_hooks.record.format import crash_stack, layout
from align_hooks.record.format.ending import Ending, ending
from align_hooks.record.format.missing_batch import MissingBatchReason, known
from align_hooks.record.format.rows import RankRow, ScalarRow
from align_hooks.record.read.problems import Problem, ProblemKind
from align_hooks.record.read.run_files import RunFiles
from align_hooks.record.read.scalar_rows import merged_rows
from align_hooks.record.read.unrecorded import kind_named, not_whole, sketches_of


@dataclass(frozen=True, repr=False)
class RunRows(RunFiles):
    """The part of :class:`.reader.Run` about steps; readers of a quantity take this."""

    _known_steps: dict[str, list[int]] = field(default_factory=dict, init=False, compare=False)
    _step_sets: dict[str, set[int]] = field(default_factory=dict, init=False, compare=False)

    @property
    def made_by_hand(self) -> bool:
        """Whether this is a directory of bare ``step_N/rank_M`` arrays, as the guide's snippet saves them: batches are all that it has."""
        return not self.manifests

    @property
    def world_size(self) -> int:
        """How many ranks the job had, by the launcher; 0 for a directory made by hand."""
        return next((manifest.launch.world_size for manifest in self.manifests.values()), 0)

    @cached_property
    def steps(self) -> list[int]:
        """The steps that every rank completed, ascending; for a directory made by hand, those with tokens."""
        if self.made_by_hand:
            return layout.steps_with(self.path, 0, "tokens.npy")
        common: list[int] = reduce(np.intersect1d, (committed.rows.steps for committed in self.committed.values())).tolist()
        return common

    @cached_property
    def missing(self) -> Problem | None:
        """How many ranks left no manifest and which is the first; None where no rank is missing."""
        count = self.world_size - len(self.manifests)
        if count <= 0:
            return None
        first = next(rank for rank in range(self.world_size) if rank not in self.manifests)
        words = message("run.ranks_missing", count=count, ranks=self.world_size, rank=first)
        return Problem(ProblemKind.RANKS_MISSING, words, rank=first)

    @cached_property
    def endings(self) -> dict[int, Ending]:
        """Rank to how it ended, by its manifest, or by its crash stack where the manifest does not say."""
        return {
            rank: ending(rank, manifest.end, manifest.ended, None if manifest.ended else crash_stack.read(self.path, rank))
            for rank, manifest in self.manifests.items()
        }

    @cached_property
    def unseen(self) -> list[MissingBatchReason]:
        """What no rank could see of a batch that it recorded, with the way out of each; empty where everything was seen."""
        return known(word for committed in self.committed.values() for word in committed.rows.unseen)

    # ---- which steps have what

    def steps_of(self, quantity: str) -> list[int]:
        """The steps, ascending, that have a quantity on every rank: whole steps, or the numbers N of updates of a state. ``quantity`` is
        one of ``scalars``, ``batches``, ``local_norms``, ``gradients``, ``weights``, ``sketches/gradients``, ``sketches/weights``,
        ``optimizer_state``, ``routing`` and ``activations``; raises RecordError for any other."""
        kind = kind_named(quantity)
        if kind is SCALARS or (kind.saved_by_hand and self.made_by_hand):
            return self.steps
        if quantity not in self._known_steps:
            of_ranks = [self.lines(kind.name, rank).steps if kind.is_rows else self.recorded(rank, kind.whole) for rank in self.manifests]
            known = set.intersection(*map(set, of_ranks)) if of_ranks else set()
            self._known_steps[quantity] = sorted(known if kind.is_state else known & set(self.steps))
        return list(self._known_steps[quantity])

    def has(self, quantity: str, step: int) -> bool:
        """Whether :meth:`steps_of` a quantity has a step, however many there are."""
        return step in self._set(quantity, partial(self.steps_of, quantity))

    def batch_steps(self) -> list[int]:
        """Steps whose batch is recorded by every rank, ascending."""
        return self.steps_of(BATCHES.name)

    def local_norm_steps(self) -> list[int]:
        """Whole steps that have local norms, ascending."""
        return self.steps_of(LOCAL_NORMS.name)

    def gradient_steps(self) -> list[int]:
        """Whole steps whose gradients are stored, ascending; :meth:`sketch_steps` has those of which sketches can be had too."""
        return self.steps_of(GRADIENTS.name)

    def weight_steps(self) -> list[int]:
        """Numbers N, ascending, for which the weights after N updates are stored."""
        return self.steps_of(WEIGHTS.name)

    def optimizer_state_steps(self) -> list[int]:
        """Numbers N, ascending, for which the optimizer's state after N updates is recorded."""
        return self.steps_of(OPTIMIZER_STATE.name)

    def sketch_steps(self, kind: str) -> list[int]:
        """Steps whose ``gradients`` or ``weights`` were sketched, or stored, so that they can be sketched; numbered as these are."""
        sketches = sketches_of(kind)
        written = set(self.steps_of(sketches.name)) & sketches.possible(self.steps)
        return sorted(written | set(self.steps_of(kind)))

    def has_sketches(self, kind: str, step: int) -> bool:
        """Whether :meth:`sketch_steps` of a kind has a step."""
        return step in self._set(f"{kind}, stored or sketched", partial(self.sketch_steps, kind))

    # ---- numbers of every step

    @cached_property
    def rows(self) -> list[ScalarRow]:
        """The rows of whole steps, ascending, None for what is unknown. ``loss`` weighs every valid token alike; ``objective_loss`` is the
        mean over data-parallel ranks, or the same as ``loss`` in a run that differentiates per token."""
        per_token = bool(self.facts.training.per_token_loss)
        rows = {rank: committed.rows for rank, committed in self.committed.items()}
        return merged_rows(rows, self.steps, self.manifests, per_token=per_token) if self.manifests else []

    def row(self, step: int) -> ScalarRow | None:
        """The row of ``step``; None where the step is not whole."""
        return self._by_step.get(step)

    def rank_rows(self, step: int) -> dict[int, RankRow]:
        """Each rank's own row of scalars of a whole step; raises RecordError where the step is not whole."""
        if self.manifests and self.row(step) is None:
            raise not_whole(self.path, step, self.steps)
        return {rank: committed.rows[step] for rank, committed in self.committed.items()}

    @cached_property
    def _by_step(self) -> dict[int, ScalarRow]:
        return {row.step: row for row in self.rows}

    def _set(self, key: str, steps: Callable[[], list[int]]) -> set[int]:
        """Steps as a set, which is made once."""
        if key not in self._step_sets:
            self._step_sets[key] = set(steps())
        return self._step_sets[key]
