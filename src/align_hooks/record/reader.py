"""A record, read back without a framework.

Whatever is not whole, not ours or contradicts itself is a RecordError that names the file.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from align_hooks.errors import RecordError, shown
from align_hooks.job.paths import path_of
from align_hooks.messages import Message, message
from align_hooks.quantities.batches import BATCHES
from align_hooks.quantities.gradients import GRADIENTS
from align_hooks.quantities.kind import Kind
from align_hooks.quantities.local_norms import LOCAL_NORMS
from align_hooks.quantities.optimizer_state import OPTIMIZER_STATE
from align_hooks.quantities.registry import BY_NAME, SKETCHES
from align_hooks.quantities.scalars import SCALARS
from align_hooks.quantities.weights import WEIGHTS
from align_hooks.record import batches, last_words, layout, sums
from align_hooks.record.batch import Batch, BatchFacts, Source, described
from align_hooks.record.committed import Committed, read_committed
from align_hooks.record.ending import Ending, ending
from align_hooks.record.files import read_json
from align_hooks.record.folder import inside
from align_hooks.record.lines import Lines
from align_hooks.record.lost import missing_ranks, problems
from align_hooks.record.manifests import read_facts, read_manifests, refuse_lost_manifests
from align_hooks.record.norm_rows import NormRows, read_norm_rows
from align_hooks.record.problems import Problem
from align_hooks.record.random_states import whole
from align_hooks.record.scalar_rows import merged_row
from align_hooks.record.schema import Description, Facts, Manifest, NormRow, RankRow, Row, State, structured
from align_hooks.record.self_check import SelfCheck, self_check
from align_hooks.record.shard import Shard
from align_hooks.record.sketch_rows import Sketches, of_tensors
from align_hooks.record.tensors import Tensors
from align_hooks.record.weakness import weakness
from align_hooks.settings import PREFIX, Steps


@dataclass(frozen=True, slots=True)
class OptimizerState:
    """Adam's state: ``moments`` maps ``exp_avg`` and ``exp_avg_sq`` to canonical name → whole fp32 array.

    ``updates`` is the exponent of the bias correction that made the last update. ``dtypes`` maps a moment's name to the type
    in which the optimizer keeps it, ``float32`` or ``bfloat16``; empty where the record does not say.
    """

    updates: int
    moments: Mapping[str, Tensors]
    dtypes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, repr=False)
class Run:
    """A recorded run; made by :func:`open_run`."""

    path: Path
    facts: Facts
    manifests: Mapping[int, Manifest]

    def __repr__(self) -> str:
        ranks = f"{self.world_size} ranks, " if self.world_size > 1 else ""
        faults = f", {len(self.problems)} problems" if self.problems else ""
        return f"Run({str(self.path)!r}, {self.facts.framework or 'made by hand'}, {ranks}{len(self.steps)} steps{faults})"

    @property
    def manifest(self) -> dict[str, Any]:
        """What the run was, as ``run.json`` has it, for scripts; :attr:`facts` is the same with types."""
        plain: dict[str, Any] = to_builtins(self.facts)
        return plain

    @property
    def made_by_hand(self) -> bool:
        """Whether this is a directory of bare ``step_N/rank_M`` arrays."""
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
        done = [set(one.rows) for one in self.committed.values()]
        return sorted(set.intersection(*done)) if done else []

    @cached_property
    def missing(self) -> Problem | None:
        """How many ranks left no manifest and which is the first; None where all are there."""
        return missing_ranks(self)

    @cached_property
    def problems(self) -> list[Problem]:
        """Why the run is not whole: ranks that are missing, ended early or stopped recording, and what was lost since."""
        return [] if self.made_by_hand else list(problems(self))

    @cached_property
    def endings(self) -> dict[int, Ending]:
        """How each rank ended: as its manifest has it, or its last words where it did not come to write that."""
        return {
            rank: ending(rank, manifest.ended, None if manifest.ended else last_words.read(self.path, rank))
            for rank, manifest in self.manifests.items()
        }

    @property
    def weaker(self) -> list[Message | str]:
        """What the file system that it was recorded on could not do of what a record rests on."""
        return [weakness(text) for text in dict.fromkeys(text for one in self.manifests.values() for text in one.weaker)]

    @cached_property
    def undigested(self) -> list[int]:
        """The steps of which no digest was kept, because they were recorded before format 2: what was changed in them is not noticed."""
        return sorted({step for one in self.committed.values() for step in one.unlisted})

    @property
    def without_digests(self) -> Message | None:
        """What :attr:`undigested` means; None where every step has digests."""
        return message("run.without_digests", count=len(self.undigested)) if self.undigested else None

    def shards(self, rank: int) -> Sequence[Shard]:
        """A rank's parameter table."""
        return self.manifests[rank].parameters

    @cached_property
    def rows(self) -> list[Row]:
        """One row a whole step, ascending, losses put together over the ranks that hold one.

        ``loss`` weighs every valid token alike; ``objective_loss`` is the mean over data-parallel ranks, or the same as
        ``loss`` in a run that differentiates per token.
        """
        per_token = bool(self.facts.training.per_token_loss)
        return [merged_row(self.rank_rows(step), self.manifests, per_token=per_token) for step in self.steps] if self.manifests else []

    def scalars(self) -> list[dict[str, Any]]:
        """The same as tables, without what no rank recorded."""
        return [to_builtins(row) for row in self.rows]

    def row(self, step: int) -> Row | None:
        """The row of ``step``; None where the step is not whole."""
        return self._by_step.get(step)

    @cached_property
    def _by_step(self) -> dict[int, Row]:
        return {row.step: row for row in self.rows}

    def local_norms(self, step: int) -> dict[str, float]:
        """Canonical name to the norm of its whole gradient at ``step``; raises RecordError where a missing rank holds a part of one."""
        return sums.norms(self, step)

    def counted_totals(self, steps: Sequence[int]) -> dict[int, float]:
        """Step to the sum of all squared sums that count."""
        return sums.counted_totals(self, steps)

    def norm_rows(self, rank: int) -> NormRows:
        """A rank's squared sums of all steps."""
        if rank not in self._norm_rows:
            self._norm_rows[rank] = read_norm_rows(self.lines(LOCAL_NORMS.name, rank), self.shards(rank))
        return self._norm_rows[rank]

    def weight_squares(self, rank: int, step: int) -> dict[str, float]:
        """Canonical name to the squared sum of what a rank held of the weights after ``step`` updates, copies too."""
        if not self._has(rank, step, layout.SQUARED):
            return {}
        path, digest = self.file(rank, step, layout.SQUARED)
        return structured(NormRow, {"squared": read_json(path, digest)}, path, numbers=("squared",)).squared

    def batch_descriptions(self, step: int) -> dict[int, Description]:
        """What each rank's batch.json says."""
        return {rank: described(self.source(step, rank)) for rank in self.manifests}

    def file(self, rank: int, step: int, name: str) -> tuple[Path, str | None]:
        """Where a file of a step lies, by its name in :mod:`.layout`, and its digest, None where none was kept; raises RecordError where it
        was recorded and is not there, and where a link leads out of the run."""
        path = inside(self.path, layout.step(self.path, step, rank) / name)
        if not path.exists():
            raise RecordError(f"{path} is missing; copy it again, or record step {step} again")
        return path, self.committed[rank].digest(name, step)

    def _has(self, rank: int, step: int, name: str) -> bool:
        """Whether a file was recorded: whether a row lists it, or where rows list nothing, whether it is there."""
        one = self.committed[rank]
        if step in one.listed.get(name, {}):
            return True
        return one.older is not None and self._may_be_unlisted(one, name, step) and (layout.step(self.path, step, rank) / name).exists()

    @staticmethod
    def _may_be_unlisted(one: Committed, name: str, step: int) -> bool:
        """Whether of a step something may count that no row lists."""
        if layout.is_state(name):
            return one.older is not None and one.older.counts(name, step)
        return step in one.unlisted

    def source(self, step: int, rank: int) -> Source:
        """Where a rank's batch lies."""
        return Source(self.path, layout.step(self.path, step, rank), self.committed[rank].digest(layout.BATCH, step))

    def lines(self, name: str, rank: int) -> Lines:
        """A rank's rows of a quantity, by its name."""
        if (name, rank) not in self._lines:
            one = self.committed[rank]
            path = inside(self.path, layout.rows(self.path, name, rank))
            unlisted = functools.partial(self._may_be_unlisted, one, name) if one.older is not None else None
            self._lines[name, rank] = Lines(path, one.listed.get(name, {}), unlisted)
        return self._lines[name, rank]

    @cached_property
    def _lines(self) -> dict[tuple[str, int], Lines]:
        return {}

    def rank_rows(self, step: int) -> dict[int, RankRow]:
        """Each rank's own row of scalars."""
        return {rank: one.rows[step] for rank, one in self.committed.items()}

    def random_states(self, step: int) -> dict[int, list[dict[str, str]]]:
        """Each rank's digests of its random generators' states: at the start of the step, then of each micro-batch (:mod:`.random_states`).

        The list ends where no generator moved any more; it is empty where the run recorded none.
        """
        return {rank: whole(row.random) for rank, row in self.rank_rows(step).items()}

    @cached_property
    def unrecorded_inputs(self) -> list[str]:
        """Names of what the model was given beside the batch, on any rank: it is neither recorded nor replayed."""
        return sorted({name for one in self.committed.values() for row in one.rows.values() for name in row.unrecorded_inputs})

    @cached_property
    def self_check(self) -> SelfCheck:
        """Whether the ranks together hold every element once and copies are copies; see :mod:`.self_check`."""
        return self_check(self)

    def asked(self, kind: str) -> Steps:
        """For which steps the run was asked to record ``kind``, the name of a recording setting."""
        return self.facts.asked(kind)

    def steps_of(self, quantity: str) -> list[int]:
        """Of which steps every rank recorded a quantity, by its name, ascending: whole steps, or of a state the numbers N of updates."""
        kind = BY_NAME[quantity]
        if kind is SCALARS or (kind.saved_by_hand and self.made_by_hand):
            return self.steps
        if quantity not in self._known_steps:
            tables = [set(self._steps_on(rank, kind)) for rank in self.manifests]
            known = set.intersection(*tables) if tables else set()
            self._known_steps[quantity] = sorted(known if kind.is_state else known & set(self.steps))
        return list(self._known_steps[quantity])

    def _steps_on(self, rank: int, kind: Kind) -> Iterable[int]:
        return self.lines(kind.name, rank).steps if kind.is_rows else self.recorded(rank, kind.whole)

    def local_norm_steps(self) -> list[int]:
        """Whole steps that have local norms."""
        return self.steps_of(LOCAL_NORMS.name)

    def gradient_steps(self) -> list[int]:
        """Whole steps whose gradients are recorded."""
        return self.steps_of(GRADIENTS.name)

    def weight_steps(self) -> list[int]:
        """Numbers N for which the weights after N updates are recorded."""
        return self.steps_of(WEIGHTS.name)

    def batch_steps(self) -> list[int]:
        """Steps whose batch is recorded by every rank."""
        return self.steps_of(BATCHES.name)

    def recorded(self, rank: int, name: str) -> Iterator[int]:
        """The steps of which a rank recorded a file, or a row, by its name in :mod:`.layout`."""
        one = self.committed[rank]
        yield from one.listed.get(name, {})
        if one.older is not None:
            yield from (step for step in layout.steps_with(self.path, rank, name) if self._may_be_unlisted(one, name, step))

    @cached_property
    def _known_steps(self) -> dict[str, list[int]]:
        """Quantity to the steps that have it on every rank, looked for once."""
        return {}

    def gradients(self, step: int) -> Tensors:
        """Gradients of ``step``: reduced, unscaled, not clipped."""
        return self._tensors(step, GRADIENTS, layout.GRADIENTS)

    def weights(self, step: int) -> Tensors:
        """Weights after ``step`` updates."""
        return self._tensors(step, WEIGHTS, layout.MODEL, layout.WEIGHT_PADDING)

    def sketch_steps(self, kind: str) -> list[int]:
        """Steps of which ``gradients`` or ``weights`` were sketched, or stored, of which a sketch can be made; numbered as these are."""
        sketches = SKETCHES[kind]
        written = set(self.steps_of(sketches.name)) & sketches.possible(self.steps)
        return sorted(written | set(self.steps_of(kind)))

    def sketches(self, kind: str, step: int) -> Sketches:
        """Canonical name to sketch (:mod:`.sketch`) of whole ``gradients`` or ``weights``; made here where only the tensors were stored."""
        sums.refuse_parts(self, "sketch")
        files = self._sketch_files[kind]
        if not files or not all(step in file.steps for file in files.values()):
            if (kind, step) not in self._sketched:
                self._sketched[kind, step] = of_tensors(self.gradients(step) if kind == "gradients" else self.weights(step))
            return self._sketched[kind, step]
        return sums.sketches(self, kind, step, files)

    @cached_property
    def _sketch_files(self) -> dict[str, dict[int, Lines]]:
        """Kind to rank to rows."""
        return {kind: {rank: self.lines(sketches.name, rank) for rank in self.manifests} for kind, sketches in SKETCHES.items()}

    @cached_property
    def _sketched(self) -> dict[tuple[str, int], Sketches]:
        """Sketches that were made of tensors, each once."""
        return {}

    def optimizer_state_steps(self) -> list[int]:
        """Numbers N for which the optimizer's state after N updates is recorded."""
        return self.steps_of(OPTIMIZER_STATE.name)

    def optimizer_state(self, step: int) -> OptimizerState:
        """Adam's moments after ``step`` updates, and how many updates the optimizer counted."""
        moments = {moment: self._tensors(step, OPTIMIZER_STATE, f"optimizer_state/{moment}.safetensors") for moment in layout.MOMENTS}
        path, digest = self.file(min(self.manifests), step, layout.STATE)
        state = structured(State, read_json(path, digest), path)
        return OptimizerState(state.updates, moments, state.dtypes)

    def _tensors(self, step: int, kind: Kind, required: str, *optional: str) -> Tensors:
        files = {}
        for rank in self.manifests:
            if not self._has(rank, step, required):
                path = layout.step(self.path, step, rank) / required
                raise RecordError(f"{path} is missing; record the run with {PREFIX}{kind.variable.upper()}={step}")
            names = (required, *(name for name in optional if self._has(rank, step, name)))
            files[rank] = [self.file(rank, step, name) for name in names]
        if not files:
            raise RecordError(
                f"{self.path} was made by hand and holds no tensors; record the run with {PREFIX}{kind.variable.upper()}={step}"
            )
        tables = {rank: [one for one in self.shards(rank) if one.counted and (one.trainable or not kind.trainable)] for rank in files}
        return Tensors(files, tables)

    def batch(self, step: int, names: Sequence[str] = layout.BATCH_ARRAYS) -> Batch:
        """The batch that ``step`` consumed on all data-parallel ranks, with the arrays of ``names``; raises RecordError where a file is not
        whole."""
        return batches.whole(self, step, names)

    def batch_facts(self, step: int) -> BatchFacts:
        """What a batch is, after checking that its files are whole; of a recorded batch only headers are read."""
        return batches.facts(self, step)

    @cached_property
    def committed(self) -> dict[int, Committed]:
        """Rank to the rows that count, and what they list."""
        return {
            rank: read_committed(inside(self.path, layout.scalars(self.path, rank)), manifest) for rank, manifest in self.manifests.items()
        }

    @cached_property
    def _norm_rows(self) -> dict[int, NormRows]:
        return {}


def open_run(path: str | Path) -> Run:
    """Open a recorded run, or a directory made by hand with the guide's snippet (batches only).

    Raises RecordError where there is nothing, a format of another version, or ranks of different jobs.
    """
    try:
        run = path_of(path)
    except ValueError as error:
        raise RecordError(f"{shown(str(path))} {error}") from None
    if not run.is_dir():
        raise RecordError(f"{run} is not a directory; give the directory that ALIGN_HOOKS_RUN named")
    inside(run, run / "manifest")
    ranks = layout.ranks(run)
    if not ranks:
        refuse_lost_manifests(run)
        if not layout.steps_with(run, 0, "tokens.npy"):
            raise RecordError(f"{run} holds no run: neither manifest/rank_0.json nor step_N/rank_0/tokens.npy is there")
        return Run(run, Facts(), {})
    manifests, groups = read_manifests(run, ranks)
    return Run(run, read_facts(run, manifests, groups), manifests)
