"""The files of a run by rank with their committed content, and its rows merged from all ranks; internals of :class:`.reader.Run`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial, reduce
from pathlib import Path

import numpy as np

from align_hooks.errors import RecordError
from align_hooks.messages import message
from align_hooks.process.storage import size_of
from align_hooks.process.work import WorkPool
from align_hooks.quantities.batches import BATCHES
from align_hooks.quantities.gradients import GRADIENTS
from align_hooks.quantities.local_norms import LOCAL_NORMS
from align_hooks.quantities.optimizer_state import OPTIMIZER_STATE
from align_hooks.quantities.scalars import SCALARS
from align_hooks.quantities.weights import WEIGHTS
from align_hooks.record.format import crash_stack, layout
from align_hooks.record.format.descriptions import Description
from align_hooks.record.format.ending import Ending, ending
from align_hooks.record.format.files import read_array, read_json
from align_hooks.record.format.folder import inside
from align_hooks.record.format.layout import Array
from align_hooks.record.format.missing_batch import MissingBatchReason, known
from align_hooks.record.format.rows import NormRow, RankRow, ScalarRow
from align_hooks.record.format.schema import Facts, Manifest
from align_hooks.record.format.shard import Shard
from align_hooks.record.format.structured import structured
from align_hooks.record.read.committed import Committed, read_committed
from align_hooks.record.read.lines import Lines
from align_hooks.record.read.norm_rows import NormRows, read_norm_rows
from align_hooks.record.read.problems import Problem, ProblemKind
from align_hooks.record.read.rank_rows import Columns
from align_hooks.record.read.scalar_rows import merged_rows
from align_hooks.record.read.unrecorded import kind_named, not_whole, sketches_of

SLOWER = 64
"""The time to read a byte of a row, in bytes of a tensor."""


@dataclass(frozen=True, slots=True)
class BatchSource:
    """The directory of a rank's batch in a run."""

    run: Path
    place: Path
    digest: str | None = None
    """The digest of batch.json; None in a directory made by hand."""

    def array(self, name: str, digest: str | None = None, *, headers_only: bool = False) -> Array:
        """Return an array by name; ``digest`` is of its file."""
        return read_array(inside(self.run, self.place / f"{name}.npy"), digest, headers_only=headers_only)

    def described(self) -> Description:
        """Return the rank's description of its batch."""
        path = self.place / layout.BATCH
        return structured(Description, read_json(inside(self.run, path), self.digest), path)


@dataclass(frozen=True, repr=False)
class RunRows:
    """The part of :class:`.reader.Run` about files and steps; readers of a quantity take this."""

    path: Path
    facts: Facts
    manifests: Mapping[int, Manifest]
    _norm_rows: dict[int, NormRows] = field(default_factory=dict, init=False, compare=False)
    _lines: dict[tuple[str, int], Lines] = field(default_factory=dict, init=False, compare=False)
    _known_steps: dict[str, list[int]] = field(default_factory=dict, init=False, compare=False)
    _step_sets: dict[str, set[int]] = field(default_factory=dict, init=False, compare=False)

    # ---- what the run is

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

    # ---- files by rank, and their committed content

    @cached_property
    def committed(self) -> dict[int, Committed]:
        """Rank to the rows that count, with their lists."""
        return {rank: _committed(self.path, rank, manifest) for rank, manifest in self.manifests.items()}

    def columns(self, steps: Sequence[int]) -> dict[int, Columns]:
        """Return the columns of each rank's rows of scalars at completed steps."""
        return {rank: committed.rows.columns(np.array(steps, np.int64)) for rank, committed in self.committed.items()}

    def shards(self, rank: int) -> Sequence[Shard]:
        """Return a rank's parameter table."""
        return self.manifests[rank].parameters

    def counted(self, rank: int, *, trainable: bool = True) -> list[Shard]:
        """Return the shards of a rank that are no copies; with ``trainable`` only trainable ones."""
        return [shard for shard in self.shards(rank) if shard.counted and (shard.trainable or not trainable)]

    def counted_once(self, rank: int, *, trainable: bool = True) -> list[Shard]:
        """Return those of :meth:`counted` that no earlier rank holds as its own too."""
        shards = self.counted(rank, trainable=trainable)
        return [shard for shard in shards if (rank, shard.name) not in self.held_twice] if self.held_twice else shards

    @cached_property
    def held_twice(self) -> dict[tuple[int, str], int]:
        """Rank and canonical name of each shard that an earlier rank holds as well, neither marked as a copy, to that rank."""
        first: dict[tuple[object, ...], int] = {}
        twice = {}
        for rank in sorted(self.manifests):
            for shard in self.shards(rank):
                # the framework's own names may be those of a stage
                if shard.counted and not shard.own and shard.elements:
                    earlier = first.setdefault((shard.name, shard.box, shard.flat), rank)
                    if earlier != rank:
                        twice[rank, shard.name] = earlier
        return twice

    def read_ahead(self, work: WorkPool) -> None:
        """Read the rows of all ranks by the workers of ``work``, where long; raises RecordError for an unreadable row."""
        paths = {rank: [layout.rows(self.path, name, rank) for name in (SCALARS.name, LOCAL_NORMS.name)] for rank in self.manifests}
        sizes = [SLOWER * sum(size_of(path) for path in of_rank) for of_rank in paths.values()]
        if not work.is_shared(sizes):
            return
        read = work.map(partial(_rows, self.path), list(self.manifests.items()), sizes)
        of_ranks = dict(zip(self.manifests, read, strict=True))
        self.__dict__["committed"] = {rank: committed for rank, (committed, _) in of_ranks.items()}
        self._norm_rows.update({rank: norms for rank, (_, norms) in of_ranks.items() if norms is not None})

    def norm_rows(self, rank: int) -> NormRows:
        """Return a rank's squared sums of all steps."""
        if rank not in self._norm_rows:
            self._norm_rows[rank] = read_norm_rows(self.lines(LOCAL_NORMS.name, rank), self.shards(rank))
        return self._norm_rows[rank]

    def weight_squares(self, rank: int, step: int) -> dict[str, float]:
        """Return the squared sums of a rank's weights after ``step`` updates, copies included."""
        if not self.has_file(rank, step, layout.SQUARED):
            return {}
        path, digest = self.file(rank, step, layout.SQUARED)
        return structured(NormRow, {"squared": read_json(path, digest)}, path, numbers=("squared",)).squared

    def batch_descriptions(self, step: int) -> dict[int, Description]:
        """Return each rank's batch.json."""
        return {rank: self.source(step, rank).described() for rank in self.manifests}

    def file(self, rank: int, step: int, name: str) -> tuple[Path, str]:
        """Return the path and the digest of a step's file, by its name in :mod:`.format.layout`.

        Raises RecordError where the file is missing or not listed, and where a link leads out of the run.
        """
        path, digest = inside(self.path, layout.step(self.path, step, rank) / name), self.recorded(rank, name).get(step)
        if digest is None or not path.exists():
            raise RecordError(f"{path} is missing; copy it again, or record step {step} again")
        return path, digest

    def has_file(self, rank: int, step: int, name: str) -> bool:
        """Whether a row lists a file."""
        return step in self.recorded(rank, name)

    def recorded(self, rank: int, name: str) -> Mapping[int, str]:
        """Return the steps of a rank's file or row, by its name in :mod:`.format.layout`, each with its digest."""
        return self.committed[rank].listed.get(name, {})

    def source(self, step: int, rank: int) -> BatchSource:
        """Return the directory of a rank's batch."""
        return BatchSource(self.path, layout.step(self.path, step, rank), self.recorded(rank, layout.BATCH).get(step))

    def lines(self, name: str, rank: int) -> Lines:
        """Return a rank's rows of a quantity, by its name."""
        if (name, rank) not in self._lines:
            self._lines[name, rank] = _lines(self.path, name, rank, self.committed[rank])
        return self._lines[name, rank]


def _committed(run: Path, rank: int, manifest: Manifest) -> Committed:
    return read_committed(inside(run, layout.scalars(run, rank)), manifest)


def _lines(run: Path, name: str, rank: int, committed: Committed) -> Lines:
    return Lines(inside(run, layout.rows(run, name, rank)), committed.listed.get(name, {}))


def _rows(run: Path, of_rank: tuple[int, Manifest]) -> tuple[Committed, NormRows | None]:
    """Return a rank's rows of scalars, and of norms or None."""
    rank, manifest = of_rank
    committed = _committed(run, rank, manifest)
    lines = _lines(run, LOCAL_NORMS.name, rank, committed)
    return committed, read_norm_rows(lines, manifest.parameters) if lines.steps else None
